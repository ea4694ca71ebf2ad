"""Segments as bytes.

Layout, version 2: ``TSEG``, version (u16), BLAKE2b-128 of all that follows, then seven sections, each a
length (u32) and one zstd frame. Integers are little-endian.

=========  =============================================================================================
documents  JSON: one list per field of DocumentEntry
headings   JSON: per heading path, how many titles it begins with as the path before, then its other titles
terms      UTF-8, separated by LF (a term holds none)
columns    residuals of the chunks' columns, see :func:`_column_residuals`
counts     postings per term
chunks     per term the first chunk, then the distances to the next
tfs        term frequencies
=========  =============================================================================================

The last four are arrays: width in bytes (u8), number of values (u32), then the values' lowest bytes, their
second bytes, and so on: bytes of equal significance compress best beside each other.

Version 1, which is still read, has the heading paths in full: a long title was there again for each section
under it, in megabytes where the document has kilobytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from os.path import commonprefix
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from tessera.errors import CorruptionError
from tessera.index.segment import COLUMNS, I64, DocumentEntry, HeadingPath, Segment

MAGIC = b"TSEG"
VERSION = 2
_READ = (1, VERSION)
_HEADER = struct.Struct("<4sH16s")
_LENGTH = struct.Struct("<I")
_ARRAY = struct.Struct("<BI")
_LEVEL = 3
_SPANS = (
    ("start", "end"),
    ("start_byte", "end_byte"),
    ("start_line", "end_line"),
    ("start_token", "end_token"),
)


class _Zstd(threading.local):
    """One compressor and decompressor per thread: used by two at once, they corrupt what they make."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def encode(segment: Segment) -> bytes:
    """The segment as bytes; equal segments give equal bytes under one zstd library."""
    counts = np.diff(segment.term_start)
    sections = [
        _json([list(field) for field in zip(*segment.documents, strict=True)]),
        _json(list(_front_coded(segment.headings))),
        "\n".join(segment.terms).encode(),
        b"".join(map(_pack, _column_residuals(segment))),
        _pack(counts),
        _pack(_distances(segment.posting_chunk.astype(np.int64), segment.term_start[:-1][counts > 0])),
        _pack(segment.posting_tf),
    ]
    body = b"".join(_framed(section) for section in sections)
    return _HEADER.pack(MAGIC, VERSION, _checksum(body)) + body


def decode(data: bytes) -> Segment:
    """The segment that :func:`encode` wrote.

    Raises :class:`~tessera.errors.CorruptionError` where bytes are missing, changed, or of a version that
    this build does not know.
    """
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise CorruptionError(f"not a segment ({len(data)} bytes): it should begin with {MAGIC!r}; {_REMEDY}")
    _, version, checksum = _HEADER.unpack_from(data)
    if version not in _READ:
        known = " and ".join(map(str, _READ))
        raise CorruptionError(
            f"segment of version {version}; this build reads versions {known}: use the build that wrote it"
        )
    body = memoryview(data)[_HEADER.size :]
    if _checksum(body) != checksum:
        raise CorruptionError(
            f"segment of {len(data)} bytes fails its checksum: cut short or changed; {_REMEDY}"
        )
    try:
        return _decode_body(body, version)
    except (zstandard.ZstdError, struct.error, ValueError, LookupError, TypeError, OverflowError) as error:
        # Its checksum is right, so it was written like this.
        raise CorruptionError(
            f"segment of {len(data)} bytes holds no segment ({type(error).__name__}); {_REMEDY}"
        ) from error


_REMEDY = "restore the server from a backup, or rebuild the generation"


def _decode_body(body: memoryview, version: int) -> Segment:
    documents, headings, terms, columns, counts, chunks, tfs = _sections(body)
    fields = json.loads(documents)
    term_counts = next(_unpack(counts))
    term_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(term_counts)])
    starts = term_start[:-1][term_counts > 0]
    return Segment(
        documents=tuple(_document(values) for values in zip(*fields, strict=True)),
        headings=_paths(json.loads(headings), version),
        terms=tuple(terms.decode().split("\n")) if terms else (),
        columns=_columns(list(_unpack(columns))),
        term_start=term_start,
        posting_chunk=_running(next(_unpack(chunks)), starts).astype(np.uint32),
        posting_tf=next(_unpack(tfs)).astype(np.uint32),
    )


def _front_coded(paths: Iterable[HeadingPath]) -> Iterator[list[int | str]]:
    before: HeadingPath = ()
    for path in paths:
        alike = len(commonprefix([before, path]))  # noqa: RUF071 - of titles, not of a string
        yield [alike, *path[alike:]]
        before = path


def _paths(coded: Iterable[list[Any]], version: int) -> tuple[HeadingPath, ...]:
    if version == 1:
        return tuple(map(tuple, coded))
    paths: list[HeadingPath] = [()]
    for alike, *titles in coded:
        paths.append((*paths[-1][:alike], *titles))
    return tuple(paths[1:])


def _document(values: Sequence[Any]) -> DocumentEntry:
    entry = DocumentEntry(*values)
    return entry._replace(access=tuple(entry.access))


def _column_residuals(segment: Segment) -> Iterator[I64]:
    """Arrays of small numbers that give the columns back, in the order in which :func:`_columns` takes them.

    document: difference to the one before. ordinal and spans: distance from the end of the one before in
    the same document (from 0 in its first chunk), then the span's length; bytes less code points. heading:
    difference to the one before. length: as it is.
    """
    column = {name: segment.column(name).astype(np.int64) for name in COLUMNS}
    yield np.diff(column["document"], prepend=0)
    firsts = _firsts(column["document"])
    yield _zigzag(_gaps(column["ordinal"], column["ordinal"] + 1, firsts))
    for start, end in _SPANS:
        yield _zigzag(_gaps(column[start], column[end], firsts))
        size = column[end] - column[start]
        yield _zigzag(size - (column["end"] - column["start"]) if start == "start_byte" else size)
    yield _zigzag(np.diff(column["heading"], prepend=0))
    yield column["length"]


def _columns(residuals: Sequence[I64]) -> npt.NDArray[np.uint32]:
    document, ordinal, *spans, heading, length = residuals
    column = {"document": np.cumsum(document), "length": length, "heading": np.cumsum(_unzigzag(heading))}
    firsts = _firsts(column["document"])
    column["ordinal"] = _running(_unzigzag(ordinal) + 1, firsts) - 1
    for (start, end), gap, excess in zip(_SPANS, spans[::2], spans[1::2], strict=True):
        size = _unzigzag(excess) + (column["end"] - column["start"] if start == "start_byte" else 0)
        column[end] = _running(_unzigzag(gap) + size, firsts)
        column[start] = column[end] - size
    return np.stack([column[name] for name in COLUMNS], axis=1).astype(np.uint32)


def _firsts(document: I64) -> I64:
    """Numbers of the chunks that begin a document."""
    return np.flatnonzero(np.diff(document, prepend=-1))


def _gaps(start: I64, end: I64, firsts: I64) -> I64:
    gaps = start.copy()
    gaps[1:] -= end[:-1]
    gaps[firsts] = start[firsts]
    return gaps


def _distances(values: I64, firsts: I64) -> I64:
    """Differences to the value before; the value itself at ``firsts``."""
    distances = np.diff(values, prepend=0)
    distances[firsts] = values[firsts]
    return distances


def _running(steps: I64, firsts: I64) -> I64:
    """Running sums that begin anew at ``firsts`` (which holds 0 unless there are no steps)."""
    sums = np.cumsum(steps)
    before = sums[firsts] - steps[firsts]
    return sums - np.repeat(before, np.diff(firsts, append=len(steps)))


def _zigzag(values: I64) -> I64:
    """Signed to unsigned, small magnitudes to small numbers."""
    return (values << 1) ^ (values >> 63)


def _unzigzag(values: I64) -> I64:
    return (values >> 1) ^ -(values & 1)


def _pack(values: npt.NDArray[Any]) -> bytes:
    most = int(values.max(initial=0))
    width = next(width for width in (1, 2, 4, 8) if most < 1 << (8 * width))
    narrow = values.astype(f"<u{width}")
    planes = narrow.view(np.uint8).reshape(-1, width).T
    return _ARRAY.pack(width, len(values)) + planes.tobytes()


def _unpack(data: bytes) -> Iterator[I64]:
    position = 0
    while position < len(data):
        width, count = _ARRAY.unpack_from(data, position)
        position += _ARRAY.size
        planes = np.frombuffer(data, np.uint8, width * count, position).reshape(width, count)
        yield np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(count).astype(np.int64)
        position += width * count


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _framed(section: bytes) -> bytes:
    frame = _zstd.compressor.compress(section)
    return _LENGTH.pack(len(frame)) + frame


def _sections(body: memoryview) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        yield _zstd.decompressor.decompress(body[position : position + length])
        position += length


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
