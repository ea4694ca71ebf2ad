"""Logs: files that grow. What was added is appended; what was rewritten is sent as a whole.

A log counts its lines by LF, and every line that is published ends in one. The last line of a file that
is still being written has none yet: it is held back until it has, so that neither a CR and its LF nor the
bytes of one character are ever parted.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tessera.documents.digests import log_digest
from tessera.documents.held import HeldDocument
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Append, Change, Upsert
from tessera.events.content import decode_content
from tessera.sources.content import FileContent
from tessera.sources.documents import Planned, is_same

APPEND_BYTES = 512 * 1024
"""Bound of one append, in bytes: a record of 900 KB or more would have to travel in parts."""

LastLine = Literal["hold", "settle", "publish"]
"""What to do with a last line that has no LF: hold it back; publish it up to the last whole character
(the writer paused, perhaps inside one); publish all of it (nothing more is expected)."""


@dataclass(frozen=True, slots=True)
class _Log:
    """A log as it is to be held: whole lines, as received and as UTF-8."""

    raw: bytes
    utf8: bytes
    digest: str

    @classmethod
    def of(cls, raw: bytes) -> _Log:
        content, undecodable = decode_content(raw)
        utf8 = content.encode() if undecodable else raw
        return cls(raw, utf8, log_digest(utf8))


def plan_log(
    file: FileContent,
    held: HeldDocument | None,
    declaration: SourceDeclaration,
    last_line: LastLine = "publish",
) -> Planned:
    """Compare one log with what the index holds of it: appends, an upsert of the whole, or nothing."""
    if held is not None and _is_held(file, held, declaration):
        return Planned([], held)
    log = _Log.of(whole_lines(file.content, last_line))
    after = HeldDocument(
        revision=0 if held is None else held.revision,
        content_digest=log.digest,
        media_type=file.media_type,
        access=declaration.access,
        lines=log.raw.count(b"\n"),
        size_bytes=len(log.utf8),
    )
    if held is None or held.deleted:
        changes = list(_appends(file, log.raw, 0, 1, declaration))
        return Planned(changes, after if changes else held)
    if is_same(held, log.digest, file, declaration):
        return Planned([], held)
    if _continues(log, held) and is_same(held, held.content_digest, file, declaration):
        start = held.size_bytes if log.raw is log.utf8 else _after_lines(log.raw, held.lines)
        return Planned(list(_appends(file, log.raw, start, held.lines + 1, declaration)), after)
    return Planned([_whole(file, log.raw, declaration)], after)


def whole_lines(content: bytes, last_line: LastLine) -> bytes:
    """The lines of a file that are to be published, each ending in LF."""
    end = content.rfind(b"\n") + 1
    if end == len(content) or last_line == "hold":
        return content[:end]
    if last_line == "settle":
        content = content[: len(content) - _incomplete(content)]
    return content if content.endswith(b"\n") else content + b"\n"


def _incomplete(content: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character and do not finish it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content[-3:])
    return len(decoder.getstate()[0])


def _is_held(file: FileContent, held: HeldDocument, declaration: SourceDeclaration) -> bool:
    """Whether the file is what the index holds, its last line included, with or without the LF it lacks."""
    if not file.content or file.content.endswith(b"\n"):
        return False  # plan_log's own comparison covers it
    forms = (file.content, file.content + b"\n")
    return any(is_same(held, _Log.of(form).digest, file, declaration) for form in forms)


def _continues(log: _Log, held: HeldDocument) -> bool:
    """Whether the log begins with all that is held and goes on after it."""
    size = held.size_bytes
    return (
        held.ends_with_newline
        and len(log.utf8) > size
        and log_digest(log.utf8[:size]) == held.content_digest
        and log.utf8[:size].count(b"\n") == held.lines
    )


def _appends(
    file: FileContent, raw: bytes, position: int, line: int, declaration: SourceDeclaration
) -> Iterator[Change]:
    """Yield the lines of ``raw`` from byte ``position`` on, the first of which has number ``line``."""
    while position < len(raw):
        piece = raw[position : _piece_end(raw, position)]
        content, undecodable = decode_content(piece)
        yield Append(
            source=declaration.name,
            doc_id=file.doc_id,
            first_line=line,
            content=content,
            media_type=file.media_type,
            access=declaration.access,
            undecodable=undecodable,
            raw=piece if undecodable else None,
        )
        position += len(piece)
        line += piece.count(b"\n")


def _piece_end(raw: bytes, start: int) -> int:
    """Where the append that begins at ``start`` ends: whole lines, one at least, within the bound."""
    last = raw.rfind(b"\n", start, start + APPEND_BYTES)
    return (last if last >= 0 else raw.index(b"\n", start)) + 1


def _after_lines(raw: bytes, lines: int) -> int:
    """The byte position after so many lines, as received: undecodable bytes have another length as UTF-8."""
    position = 0
    for _ in range(lines):
        position = raw.index(b"\n", position) + 1
    return position


def _whole(file: FileContent, raw: bytes, declaration: SourceDeclaration) -> Upsert:
    content, undecodable = decode_content(raw)
    return Upsert(
        source=declaration.name,
        doc_id=file.doc_id,
        revision=None,
        media_type=file.media_type,
        content=content,
        access=declaration.access,
        undecodable=undecodable,
        raw=raw if undecodable else None,
    )
