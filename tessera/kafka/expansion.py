"""How large a compressed batch becomes, found out without holding it: a megabyte can stand for gigabytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import zstandard

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Of a batch uncompressed. Producers fill batches up to a bound of at most a few MiB before they compress."""

_ATTRIBUTES_AT: Final = 21
_RECORDS_AT: Final = 61
"""In a batch of version 2: its attributes, and where its records begin."""

_CODEC_MASK: Final = 0x07
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_LZ4_HEADER_BYTES: Final = 7
_STEP: Final = 1024 * 1024

_SMALL_BYTES: Final = {_GZIP: MAX_BATCH_BYTES // 1033}
"""What cannot become too large, by the most that the format makes of a byte: it is not looked into."""


def require_bounded(batch: bytes) -> None:
    """ValueError where a batch of version 2 becomes more than :data:`MAX_BATCH_BYTES`."""
    if len(batch) < _RECORDS_AT:
        return
    codec = int.from_bytes(batch[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2], "big") & _CODEC_MASK
    expanded = _EXPANDED.get(codec)
    records = memoryview(batch)[_RECORDS_AT:]
    if expanded is None or len(records) <= _SMALL_BYTES.get(codec, 0):
        return
    if expanded(records) > MAX_BATCH_BYTES:
        raise ValueError(f"it becomes more than {MAX_BATCH_BYTES // 2**20} MiB uncompressed")


def _of_gzip(data: memoryview) -> int:
    stream, size, left = zlib.decompressobj(wbits=31), 0, bytes(data)
    while left and size <= MAX_BATCH_BYTES:
        size += len(stream.decompress(left, _STEP))
        left = stream.unconsumed_tail
    return size


def _of_zstd(data: memoryview) -> int:
    size = zstandard.frame_content_size(data)
    if size >= 0:
        return size
    size = 0
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        while size <= MAX_BATCH_BYTES and (step := reader.read(_STEP)):
            size += len(step)
    return size


def _of_snappy(data: memoryview) -> int:
    """Every block begins with its length; Java's stream has a header, and the blocks' sizes between them."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _varint(data)
    size, at = 0, _XERIAL_HEADER_BYTES
    while at + 4 <= len(data) and size <= MAX_BATCH_BYTES:
        (length,) = struct.unpack_from(">i", data, at)
        if length <= 0:
            break
        size += _varint(data[at + 4 : at + 4 + length])
        at += 4 + length
    return size


def _varint(data: memoryview) -> int:
    value = 0
    for number, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            break
    return value


def _of_lz4(data: memoryview) -> int:
    """A frame's blocks, each as large as its header allows: what is in them is not looked into."""
    if len(data) < _LZ4_HEADER_BYTES:
        return 0
    flags, block_bytes = data[4], 1 << (8 + 2 * (data[5] >> 4 & 7))
    size, at = 0, _LZ4_HEADER_BYTES + 8 * bool(flags & 0x08) + 4 * bool(flags & 0x01)
    while at + 4 <= len(data) and size <= MAX_BATCH_BYTES:
        length = int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF
        if not length:
            break
        size += block_bytes
        at += 4 + length + 4 * bool(flags & 0x10)
    return size


_EXPANDED: Final[Mapping[int, Callable[[memoryview], int]]] = {
    _GZIP: _of_gzip,
    _SNAPPY: _of_snappy,
    _LZ4: _of_lz4,
    _ZSTD: _of_zstd,
}
