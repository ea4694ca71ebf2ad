"""The bytes of one file, and the text they decode to."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from tessera.errors import SourceError
from tessera.events.change import MediaType
from tessera.sources.scan import FileState, SourceFile, file_state


class FileContent(NamedTuple):
    """One file as it was read: raw bytes, and its modification time in nanoseconds since the epoch."""

    doc_id: str
    media_type: MediaType
    content: bytes
    mtime_ns: int


def read_file(file: SourceFile, max_bytes: int) -> tuple[FileContent, FileState, bool]:
    """Read a file: its content, its state, and whether nothing wrote to it in the meantime.

    Raises OSError where it cannot be read, and :class:`~tessera.errors.SourceError` where it holds more
    than ``max_bytes`` or is no longer a regular file.
    """
    # NOFOLLOW: the path has its links resolved, so a link there now was put in since, to lead elsewhere.
    # NONBLOCK: a named pipe put in the file's place would wait for a writer for ever.
    descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as stream:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise SourceError("not a regular file")
        if before.st_size > max_bytes:
            raise _too_large(max_bytes)
        content = _read(stream.fileno(), max_bytes)
        state = file_state(os.fstat(descriptor))
    stable = state == file_state(before) and state.size_bytes == len(content)
    return FileContent(file.doc_id, file.media_type, content, state.mtime_ns), state, stable


def _read(descriptor: int, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(descriptor, 1 << 20):
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
    return b"".join(pieces)


def _too_large(max_bytes: int) -> SourceError:
    return SourceError(
        f"larger than {max_bytes:,} bytes; an earlier version that is indexed stays as it is: split the "
        "file, or raise max_document_bytes in tessera.toml (TESSERA_MAX_DOCUMENT_BYTES)"
    )
