"""Parser ``runner``: logs of CI runners, cut at messages.

A message is a stamped line with the unstamped lines that continue it; until the first stamp each line is a
message. Units of messages: a group from its mark to its end mark, to the next group's start or to the end of
the log; outside groups an error, a warning or a notice; the other messages run together between those.

A unit is cut before the message that follows its 61st line, a message within itself after each 60 of its own
lines. Blank lines count, and are left out where they would begin or end a chunk.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import repeat
from typing import Final

from tessera.ingestion.chunk import Chunk, Parse, Span, build_chunks
from tessera.ingestion.lines import BLANKS, bom_length, line_end
from tessera.ingestion.resume import Resume

MAX_LINES: Final = 60
"""A unit closes after the message that passes this; without it a group of a long build is one vast chunk."""

_SINGLE: Final = ("error", "warning", "notice")

# All repeats are possessive: a line of 100,000 escapes must not be tried again at each of them.
_ESCAPE = r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)|[@-Z\\^_])"
"""Terminal escapes (ECMA-48): control sequences, operating system commands, two-character escapes."""

_UNSEEN = rf"(?:{_ESCAPE}|\ufeff)*+"
_COLUMNS = rf"(?:[^\t]*+\t[^\t]*+\t{_UNSEEN})??"
"""Job and step, as ``gh run view --log`` puts them; tried only where the line does not match without."""

_STAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
_MARK = r"##\[(group|endgroup|error|warning|notice)\]"

_STAMPED = re.compile(rf"{_UNSEEN}{_COLUMNS}{_STAMP}{_UNSEEN}(?: |(?=[\t\r])|\Z){_UNSEEN}(?:{_MARK})?")
_MARKED = re.compile(rf"{_UNSEEN}{_COLUMNS}{_MARK}")
_ESCAPES = re.compile(_ESCAPE)


def parse_log_chunks(text: str, stem: str) -> list[Chunk]:
    """Cut a whole runner log at messages.

    Returns chunks in source order, disjoint and rising, that hold every line with content; ids are
    ``<stem>:chunk<n>``, ``headings`` the title of the group a chunk belongs to. Lines end at LF only.
    """
    begin = Resume.begin()
    return build_chunks(text, parse_messages(text, begin).spans, stem, begin, repeat((None, None)))


def parse_messages(text: str, begin: Resume) -> Parse:
    """Find the spans of ``text``, the log from ``begin`` on. The next cut begins at the last span's start."""
    return _Units(text, begin).parse()


class _Units:
    """The state of one pass over a log's lines."""

    def __init__(self, text: str, begin: Resume) -> None:
        self.text = text
        self.begin = begin
        self.open = self.start = begin
        self.seen_stamp = begin.seen_stamp
        self.group = begin.group
        self.closing = begin.closing
        self.spans: list[Span] = []
        # Of the open unit since its last cut: all lines, and those of the current message.
        self.lines = 0
        self.own_lines = 0
        # From the first to the last line with content of the open unit since its last cut.
        self.first: tuple[int, int] | None = None
        self.last = (0, 0)

    def parse(self) -> Parse:
        text = self.text
        lines = text.split("\n")
        if not lines[-1]:
            del lines[-1]
        at = 0
        bom = bom_length(text, self.begin.start)
        for number, line in enumerate(lines, self.begin.start_line):
            stamped = _STAMPED.match(line)
            if stamped or not self.seen_stamp:
                self._message(line, stamped or _MARKED.match(line), at, number)
                self.seen_stamp = self.seen_stamp or stamped is not None
            elif self.own_lines == MAX_LINES:
                self._close()
                self._restart(at, number)
            self.lines += 1
            self.own_lines += 1
            after = at + len(line)
            if stamped or line[bom:].strip(BLANKS):
                self.first = self.first or (at, number)
                self.last = (after, number)
            bom = 0
            at = after + 1
        self._close()
        end = self._place(len(text), self.begin.start_line + text.count("\n"))
        return Parse(self.spans, self.open, end)

    def _message(self, line: str, marked: re.Match[str] | None, at: int, number: int) -> None:
        """Begin a message at the line ``number``, which starts at ``at``, and the unit it may begin."""
        mark = marked[1] if marked else None
        begins_unit = mark == "group" or (mark in _SINGLE and self.group is None)
        if self.closing or begins_unit:
            self._close()
            self.group = None
            self.closing = False
            self._restart(at, number)
        elif self.lines > MAX_LINES:
            self._close()
            self._restart(at, number)
        self.own_lines = 0
        if marked and mark == "group":
            self.group = _ESCAPES.sub("", line[marked.end() :]).strip(BLANKS)
        elif mark and mark != "endgroup":
            self.closing = self.group is None
        elif mark:
            self.closing = self.group is not None

    def _close(self) -> None:
        """End the open chunk behind its last line with content; blank lines alone make none."""
        if self.first:
            start, start_line = self.first
            end, end_line = self.last
            headings = (self.group,) if self.group else ()
            self.spans.append((start, line_end(self.text, end), start_line, end_line, headings))
            self.open = self.start

    def _restart(self, at: int, number: int) -> None:
        """Begin a chunk, of the same unit or the next, at the line ``number``, which starts at ``at``."""
        self.lines = self.own_lines = 0
        self.first = None
        self.start = self._place(at, number)

    def _place(self, at: int, number: int) -> Resume:
        return replace(
            self.begin,
            ordinal=self.begin.ordinal + len(self.spans),
            start=self.begin.start + at,
            start_line=number,
            seen_stamp=self.seen_stamp,
            group=self.group,
            closing=self.closing,
        )
