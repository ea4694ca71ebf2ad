"""Texts of documents, stored once, in immutable blocks.

The UTF-8 bytes of a text are cut into blocks of 65,536 bytes; the last may be shorter. A block's blob id is
``text/<text_id>/<n>/<length>``: a log that grows replaces only its last block, under a new length, and what
a reader resolved before stays readable. Within one ``text_id`` the bytes up to a length never change, so
equal ids mean equal bytes. Blobs hold one zstd frame with its checksum.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import zstandard

from tessera.errors import CorruptionError

BLOCK_BYTES = 65_536
"""Large enough to compress well, small enough that an append rewrites little and a hit reads little."""

_LEVEL = 3


class _Zstd(threading.local):
    """One compressor and decompressor per thread: used by two at once, they corrupt what they make."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def block_length(size_bytes: int, block: int) -> int:
    """Bytes in block number ``block`` of a text of ``size_bytes``."""
    return min(BLOCK_BYTES, size_bytes - block * BLOCK_BYTES)


def block_id(text_id: str, size_bytes: int, block: int) -> str:
    """The blob id of one block of a text of ``size_bytes``."""
    return f"text/{text_id}/{block}/{block_length(size_bytes, block)}"


def block_ids(text_id: str, size_bytes: int, start_byte: int = 0, end_byte: int | None = None) -> list[str]:
    """Blob ids of the blocks that hold the half-open byte range, in order; all blocks by default."""
    end = size_bytes if end_byte is None else min(end_byte, size_bytes)
    if end <= start_byte:
        return []
    return [
        block_id(text_id, size_bytes, block)
        for block in range(start_byte // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1)
    ]


def blocks_from(text_id: str, data: bytes, first_block: int, size_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield (blob id, uncompressed bytes) of the blocks from ``first_block`` to the end of the text.

    ``data`` begins at the first byte of ``first_block`` and reaches to ``size_bytes``.
    """
    for position in range(0, len(data), BLOCK_BYTES):
        block = first_block + position // BLOCK_BYTES
        yield block_id(text_id, size_bytes, block), data[position : position + BLOCK_BYTES]


def compress(data: bytes) -> bytes:
    """One block as it is stored."""
    return _zstd.compressor.compress(data)


def decompress(blob: bytes, blob_id: str) -> bytes:
    """The bytes of one stored block; raises CorruptionError naming ``blob_id``."""
    try:
        return _zstd.decompressor.decompress(blob, max_output_size=BLOCK_BYTES)
    except zstandard.ZstdError as error:
        raise CorruptionError(
            f"text block {blob_id} cannot be read ({error}): publish its document again, "
            "or restore the server from a backup"
        ) from error
