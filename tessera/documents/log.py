"""Texts of logs while appends are applied to them: lines held, lines missing, lines new.

A log's lines count by LF. Lines that have not come yet stand as empty lines in the text, so that line
numbers hold, and are listed as gaps, so that they are never taken for real blank lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tessera.documents.record import Gap
from tessera.errors import EventError

NEWLINE = b"\n"

MAX_GAPS = 1000
"""Filling one costs as many steps as there are gaps: more of them mean a source that loses lines at will."""


def count_lines(data: bytes) -> int:
    """Lines of a log by LF; a last line without LF counts."""
    return data.count(NEWLINE) + (1 if data and not data.endswith(NEWLINE) else 0)


@dataclass(slots=True)
class LogText:
    """A log's text as a batch changes it.

    ``base`` is the text before the appends, from its first byte where ``whole`` is true, else only its
    end; ``added`` is what the appends brought. ``rewritten`` says that a gap was filled, so that ``base``
    is a new text that must be cut again from its start.
    """

    base: bytes
    whole: bool
    lines: int
    size_bytes: int
    ends_with_newline: bool
    gaps: tuple[Gap, ...] = ()
    added: list[bytes] = field(default_factory=list)
    rewritten: bool = False

    def data(self) -> bytes:
        """``base`` and all that was added."""
        if self.added:
            self.base = b"".join([self.base, *self.added])
            self.added.clear()
        return self.base

    def append(self, first_line: int, content: bytes, max_bytes: int) -> bool:
        """Apply one append of whole lines and say whether anything changed.

        Raises EventError, and changes nothing, where held lines differ (``append_conflict``) or the text
        would pass ``max_bytes`` (``gap_too_large``, ``document_too_large``).
        """
        if not content:
            return False
        if first_line > self.lines:
            self._extend(first_line, content, max_bytes)
            return True
        return self._merge(first_line, content, max_bytes)

    def _extend(self, first_line: int, content: bytes, max_bytes: int) -> None:
        missing = first_line - self.lines - 1
        closing = b"" if self.ends_with_newline else NEWLINE
        size = self.size_bytes + len(closing) + missing + len(content)
        if size > max_bytes:
            reason = "gap_too_large" if missing > len(content) else "document_too_large"
            raise EventError(
                reason,
                f"an append at line {first_line} to a log of {self.lines} lines would make it {size} bytes, "
                f"over the maximum of {max_bytes}: start a new log, or raise max_document_bytes",
                "first_line",
            )
        if missing and len(self.gaps) >= MAX_GAPS:
            raise EventError(
                "too_many_gaps",
                f"the log has {len(self.gaps)} gaps: fill them, or publish the whole log as an upsert",
                "first_line",
            )
        self.added += [closing, NEWLINE * missing, content]
        if missing:
            self.gaps += ((self.lines + 1, first_line - 1),)
        self.lines = first_line - 1 + count_lines(content)
        self.size_bytes = size
        self.ends_with_newline = True

    def _merge(self, first_line: int, content: bytes, max_bytes: int) -> bool:
        if not self.whole:
            raise ValueError(f"line {first_line} is held, but only the end of the text was loaded")
        held = split_lines(self.data())
        new = split_lines(content)
        filled = self._check_overlap(first_line, held, new)
        rest = NEWLINE.join([*new[self.lines - first_line + 1 :], b""])
        if filled:
            size = self.size_bytes + 1 + sum(len(new[line - first_line]) for line in filled)
            if size + len(rest) > max_bytes:
                raise EventError(
                    "document_too_large",
                    f"filling lines {filled[0]} to {filled[-1]} would pass the maximum of {max_bytes} bytes: "
                    "raise max_document_bytes",
                    "content",
                )
            self._fill(filled, held, first_line, new)
        if rest:
            self._extend(self.lines + 1, rest, max_bytes)
        return bool(filled or rest)

    def _check_overlap(self, first_line: int, held: list[bytes], new: list[bytes]) -> list[int]:
        """Line numbers that fill gaps; raises EventError at the first held line that differs."""
        filled = []
        for line in range(first_line, min(self.lines, first_line + len(new) - 1) + 1):
            if any(first <= line <= last for first, last in self.gaps):
                filled.append(line)
            elif held[line - 1] != new[line - first_line]:
                raise EventError(
                    "append_conflict",
                    f"line {line} is held with other content: publish the whole log as an upsert",
                    "content",
                )
        return filled

    def _fill(self, filled: list[int], held: list[bytes], first_line: int, new: list[bytes]) -> None:
        for line in filled:
            held[line - 1] = new[line - first_line]
        self.base = NEWLINE.join([*held, b""])
        self.size_bytes = len(self.base)
        self.ends_with_newline = True
        self.gaps = without_lines(self.gaps, filled[0], filled[-1])
        self.rewritten = True


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a log without their LF."""
    lines = data.split(NEWLINE)
    if not lines[-1]:
        lines.pop()
    return lines


def without_lines(gaps: tuple[Gap, ...], first: int, last: int) -> tuple[Gap, ...]:
    """``gaps`` less the lines ``first`` to ``last``, inclusive."""
    left: list[Gap] = []
    for start, end in gaps:
        if start < first:
            left.append((start, min(end, first - 1)))
        if end > last:
            left.append((max(start, last + 1), end))
    return tuple(sorted(set(left)))


@dataclass(frozen=True, slots=True)
class Region:
    """A run of lines without a gap: its bytes, and where they begin (byte within the data, line)."""

    start_byte: int
    start_line: int
    data: bytes


def regions(data: bytes, first_line: int, gaps: tuple[Gap, ...]) -> Iterator[Region]:
    """Cut ``data``, which begins at line ``first_line``, at the gaps; yields one region at least.

    A region after a gap is yielded even where it is empty, so that cutting goes on behind the gap.
    """
    position, line = 0, first_line
    for first, last in sorted(gaps):
        if last < line:
            continue
        end = _line_start(data, position, line, first)
        yield Region(position, line, data[position:end])
        position, line = end + (last - first + 1), last + 1
    yield Region(position, line, data[position:])


def _line_start(data: bytes, position: int, line: int, wanted: int) -> int:
    """Byte at which line ``wanted`` begins, given that ``line`` begins at ``position``."""
    while line < wanted:
        position = data.index(NEWLINE, position) + 1
        line += 1
    return position
