"""Where the headings of a text stand, for parsers whose chunks may begin and end anywhere."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tessera.ingestion.blocks import Headings, blocks, heading_path, is_heading_block, opened
from tessera.ingestion.chunk import Around, Parse, Span
from tessera.ingestion.lines import bom_length
from tessera.ingestion.resume import Resume

NOWHERE: Final = Around()


def parsed(
    text: str,
    begin: Resume,
    outline: Outline,
    bounds: Sequence[tuple[int, int]],
    *,
    by_lines: bool = False,
) -> Parse:
    """The parse whose spans have these rising starts and ends in ``text``, the source from ``begin`` on.

    The next cut begins at the last span; earlier where the text ends in headings that a next line could make
    text, and ``by_lines`` at the last one before that where a line starts.
    """
    spans: list[Span] = []
    around: list[Around] = []
    counted, line = 0, begin.start_line
    for start, stop in bounds:
        around.append(outline.around(start))
        line += text.count("\n", counted, start)
        counted = start
        spans.append((start, stop, line, line + text.count("\n", start, stop), outline.path(start, stop)))
    end = moved(begin, text, len(text), len(spans))
    number = min(bisect_right(bounds, outline.settled, key=lambda bound: bound[1]), len(spans) - 1)
    while by_lines and number and text[spans[number][0] - 1] != "\n":
        number -= 1
    at = spans[number][0]
    place = moved(begin, text, at, number)
    if number:
        place = replace(place, headings=outline.before(at), inside=outline.inside(at))
    return Parse(spans, place, replace(end, headings=outline.opened[-1], inside=""), around)


def nothing(text: str, begin: Resume) -> Parse:
    """The parse of a text without content."""
    return Parse([], begin, moved(begin, text, len(text), 0))


def moved(begin: Resume, text: str, start: int, ordinal: int) -> Resume:
    """The place at ``start`` of ``text``, the source from ``begin`` on, behind ``ordinal`` chunks of it."""
    return replace(
        begin,
        ordinal=begin.ordinal + ordinal,
        start=begin.start + start,
        start_line=begin.start_line + text.count("\n", 0, start),
    )


class Outline:
    """The blocks and headings of one text, the source from ``begin`` on.

    ``starts`` and ``ends`` are those of its blocks, ``is_heading`` says which are heading blocks. The
    headings ``opened[n]`` are open from ``opened_at[n]`` on. What ends at ``settled`` or before stays as it
    is, whatever lines are appended.
    """

    def __init__(self, text: str, begin: Resume) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.is_heading: list[bool] = []
        self.opened_at = [-1]
        self.opened: list[Headings] = [begin.headings]
        self.settled = len(text)
        self._text = text
        # Of the headings that are open, which opened each; 0 stands for those that were open before.
        self._openers: list[tuple[int, ...]] = [(0,) * len(begin.headings)]
        # Where runs of heading blocks start, and where the content after each does.
        self._chains: list[int] = []
        self._contents: list[int] = []
        self._bom = bom_length(text, begin.start)
        self._read(text, begin)

    def _read(self, text: str, begin: Resume) -> None:
        bom = self._bom
        inside = begin.inside
        for start, end, *_ in blocks(text, bom, begin.start_line):
            at = start or bom
            is_heading = inside == "heading" if inside else is_heading_block(text, at, end)
            if is_heading:
                if inside and text[at] != "#":
                    # The rest of a heading that is open already.
                    at = text.find("\n", at, end) + 1 or end
                self._open(text, start, at, end)
            elif self._chains and len(self._contents) < len(self._chains):
                self._contents.append(start)
            self.starts.append(start)
            self.ends.append(end)
            self.is_heading.append(is_heading)
            inside = ""
        self._contents.append(len(text))
        if self.is_heading and self.is_heading[-1] and text.count("\n", self.ends[-1]) < 2:
            self.settled = self.starts[-1]

    def _open(self, text: str, start: int, at: int, end: int) -> None:
        if len(self._contents) == len(self._chains):
            self._chains.append(start)
        for where, headings in opened(self.opened[-1], text, at, end):
            self._openers.append((*self._openers[-1][: len(headings) - 1], len(self.opened_at)))
            self.opened_at.append(where)
            self.opened.append(headings)

    def path(self, start: int, end: int) -> tuple[str, ...]:
        """The path at the first content of ``start:end`` that is no heading, else at its last character."""
        chain = bisect_right(self._chains, start) - 1
        at = start
        if chain >= 0 and start < self._contents[chain]:
            at = min(self._contents[chain], end - 1)
        return heading_path(self.opened[bisect_right(self.opened_at, at) - 1])

    def before(self, at: int) -> Headings:
        """The headings opened before ``at``."""
        return self.opened[bisect_left(self.opened_at, at) - 1]

    def around(self, start: int) -> Around:
        """What is around a chunk that begins at ``start``, the heading that may begin there not.

        What comes behind its first line has no say: a chunk is as long as its context leaves room for.
        """
        number = bisect_left(self.opened_at, start)
        openers = self._openers[number - 1]
        begins = start or self._bom
        if number < len(self.opened_at) and self.opened_at[number] == begins:
            openers = self._openers[number][:-1]
        if not openers:
            return NOWHERE
        innermost = openers[-1]
        headings = heading_path(self.opened[number - 1][: len(openers)])
        if not innermost:
            return Around(headings)
        next_at = innermost + 1
        lead_end = self.opened_at[next_at] if next_at < len(self.opened_at) else len(self._text)
        lead_start = self._text.find("\n", self.opened_at[innermost], lead_end)
        return Around(headings, lead_start, min(lead_end, start)) if lead_start >= 0 else Around(headings)

    def inside(self, at: int) -> str:
        """The kind of the block that began before ``at`` and goes on behind it, empty where none does."""
        block = bisect_right(self.starts, at) - 1
        if self.starts[block] == at:
            return ""
        return "heading" if self.is_heading[block] else "text"
