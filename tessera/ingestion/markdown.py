"""Parser ``markdown``: the blocks of CommonMark, with tables and front matter, packed up to a size.

A heading leads its section: it goes into a chunk together with the content behind it, and so do headings one
right after another. One of the same or a higher level than the heading that a chunk begins with begins the
next chunk; a deeper one does where the chunk is half full, or where its first block would not fit. What is a
heading is CommonMark's: underlined ones are, lines in fences, HTML and front matter are not; headings inside
quotes and lists open no section.

Fences, tables and list items stay whole where they fit, a heading before them included; where they must be
cut, between lines. A paragraph is cut between sentences, a sentence between lines, and only a line that is
too long by itself, before a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tessera.ingestion.chunk import Around, Parse, Reserve, Span
from tessera.ingestion.commonmark import block_columns
from tessera.ingestion.lines import BLANKS, line_end
from tessera.ingestion.outline import moved
from tessera.ingestion.resume import Resume
from tessera.ingestion.sentence import sentence_spans

_BLANK: Final = BLANKS + "\n"
_LINE: Final = re.compile(r"[^\n]+")
_FINER: Final = {"paragraph": "sentence", "line": "token"}
"""What a block that does not fit is cut into; ``line`` where nothing else is said."""


def parse_markdown(
    text: str,
    begin: Resume,
    token_starts: npt.NDArray[np.int64],
    size: int | None,
    overlap: int,
    reserve: Reserve,
) -> Parse:
    """Cut a document, the source from ``begin`` on, whose lines end at LF.

    A chunk has at most ``size`` tokens, less what ``reserve`` says is indexed beside it, and one at least;
    without a size, it is one section's own content. It begins with up to ``overlap``
    tokens of whole blocks, sentences or lines of the one before, in the same section. Where the text grows,
    all of it is cut again: a line can change what stands before it.
    """
    packing = _Packing(text, token_starts, size, overlap, reserve)
    starts, ends, kinds, levels, titles = block_columns(text, begin.start)
    lead_ends = _lead_ends(starts, levels, len(text))
    for part, kind, title in zip(packing.parts(starts, ends, levels), kinds, titles, strict=True):
        if part.level:
            packing.heading(part, title, next(lead_ends))
        else:
            packing.content(part, kind)
    packing.finish()
    spans: list[Span] = []
    counted, line = 0, begin.start_line
    for start, end, path in packing.chunks:
        line += text.count("\n", counted, start)
        counted = start
        spans.append((start, end, line, line + text.count("\n", start, end), path))
    return Parse(spans, begin, moved(begin, text, len(text), len(spans)), packing.around)


class _Part(NamedTuple):
    """A block, or a piece of one: a half-open span in code points, one in tokens, and a heading's level."""

    start: int
    end: int
    first: int
    after: int
    level: int = 0


class _Heading(NamedTuple):
    """A heading that is open: its section begins with the text from ``lead_start`` to ``lead_end``."""

    level: int
    title: str
    lead_start: int
    lead_end: int


Headings = tuple[_Heading, ...]


class _Packing:
    """The chunk that is being packed, and those that are closed.

    ``chunks`` are start, end and path of the closed ones, ``around`` what is around each. Headings wait until
    the content behind them comes.
    """

    def __init__(
        self,
        text: str,
        token_starts: npt.NDArray[np.int64],
        size: int | None,
        overlap: int,
        reserve: Reserve,
    ) -> None:
        self.chunks: list[tuple[int, int, tuple[str, ...]]] = []
        self.around: list[Around] = []
        self._text, self._token_starts = text, token_starts
        self._size, self._overlap = size, overlap
        self._reserve = cache(reserve)
        self._open: Headings = ()
        self._waiting: list[_Part] = []
        self._around_waiting: Headings = ()
        # The chunk that is being packed. Its first ``_kept`` parts are in the one before, too. ``_limit`` is
        # the token where it ends at the latest.
        self._parts: list[_Part] = []
        self._kept = 0
        self._limit = 0
        self._path: tuple[str, ...] = ()
        self._around = Around()

    def parts(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], levels: Iterable[int]
    ) -> Iterator[_Part]:
        """The parts between these offsets, with the tokens that start in each."""
        columns = (starts, ends, *map(self._token_starts.searchsorted, (starts, ends)))
        return map(_Part, *(column.tolist() for column in columns), levels)

    def heading(self, part: _Part, title: str, lead_end: int) -> None:
        """Let a heading wait for its content; the next one begins at ``lead_end``."""
        outside = _outside(self._open, part.level)
        around = _outside(self._around_waiting, part.level) if self._waiting else outside
        if self._waiting and part.after - self._waiting[0].first > self._room(around, self._waiting[0].start):
            self._lead(self._waiting[-1].after)
            self._close()
            around = outside
        self._open = (*outside, _Heading(part.level, title, part.end, lead_end))
        self._around_waiting = around
        if part.after - part.first <= self._room(around, part.start):
            self._waiting.append(part)
            return
        self._close()
        self._add_tokens(part, around)
        self._waiting, self._parts = self._parts, []

    def content(self, part: _Part, kind: str) -> None:
        """Put content behind what is there, cut where it is too long for a chunk."""
        if self._waiting:
            self._lead(part.after)
        elif not self._parts:
            self._begin(part, self._open)
        if part.after > self._limit:
            self._make_room(part)
        if part.after <= self._limit:
            self._parts.append(part)
        elif (finer := _FINER.get(kind, "line")) == "token":
            self._add_tokens(part, self._open)
        else:
            for piece in self._pieces(part, finer):
                self.content(piece, finer)

    def finish(self) -> None:
        """Close the last chunk; headings with nothing behind them are in it or are one."""
        if self._waiting:
            self._lead(self._waiting[-1].after)
        self._close()

    def _lead(self, after: int) -> None:
        """Put the waiting headings into a chunk that reaches to the token ``after``, a new one if need be."""
        if self._parts and (after > self._limit or self._begins_chunk()):
            self._close()
        if not self._parts:
            self._begin(self._waiting[0], self._around_waiting)
        self._parts += self._waiting
        self._waiting = []

    def _begins_chunk(self) -> bool:
        first = self._parts[0]
        if self._size is None or min(part.level for part in self._waiting) <= first.level or not first.level:
            return True
        return 2 * (self._waiting[-1].after - first.first) > self._limit - first.first

    def _make_room(self, part: _Part) -> None:
        """Begin another chunk, unless this one has nothing of its own but headings.

        What it repeats of the one before gives way where the part would be whole without it.
        """
        if len(self._parts) > self._kept and not self._parts[-1].level:
            kept = self._shared()
            self._close()
            self._begin(kept[0] if kept else part, self._open)
            self._parts, self._kept = kept, len(kept)
        if part.after - part.first > self._room(self._open, part.start):
            return
        while self._kept and part.after > self._limit:
            del self._parts[0]
            self._kept -= 1
            self._begin(self._parts[0] if self._parts else part, self._open)

    def _shared(self) -> list[_Part]:
        """The last parts, of one section, that the next chunk may begin with; never all of them."""
        end = self._parts[-1].after
        count = 0
        for part in reversed(self._parts[1:]):
            if part.level or end - part.first > self._overlap:
                break
            count += 1
        return self._parts[len(self._parts) - count :] if self._overlap else []

    def _add_tokens(self, part: _Part, around: Headings) -> None:
        """Put a part behind what is there that no chunk can hold: cut before tokens."""
        rest = part
        while True:
            if not self._parts:
                self._begin(rest, around)
            if rest.after <= self._limit:
                self._parts.append(rest)
                return
            if self._limit > rest.first:
                border = int(self._token_starts[self._limit])
                end = rest.start + len(self._text[rest.start : border].rstrip(_BLANK))
                if end > rest.start:
                    self._parts.append(rest._replace(end=end, after=self._limit))
                rest = rest._replace(start=border, first=self._limit)
            self._close()

    def _pieces(self, part: _Part, by: str) -> Iterator[_Part]:
        """The sentences or the lines of a part."""
        text = self._text[part.start : part.end]
        if by == "sentence":
            spans = sentence_spans(text)
        else:
            lines = (match for match in _LINE.finditer(text) if match[0].strip(BLANKS))
            spans = [(line.start(), line_end(text, line.end())) for line in lines]
        starts, ends = np.array(spans, np.int64).T + part.start
        return self.parts(starts, ends, repeat(0))

    def _begin(self, part: _Part, around: Headings) -> None:
        """A chunk that begins with this part, under the open headings; its own are not ``around`` it."""
        self._path, self._around = _titles(self._open), _around(around, part.start)
        self._limit = part.first + self._room(around, part.start)

    def _close(self) -> None:
        """End the chunk that is being packed."""
        if len(self._parts) > self._kept:
            self.chunks.append((self._parts[0].start, self._parts[-1].end, self._path))
            self.around.append(self._around)
        self._parts, self._kept = [], 0

    def _room(self, around: Headings, start: int) -> int:
        """Tokens that a chunk beginning there may have beside these headings, one at least."""
        if self._size is None:
            return len(self._token_starts) + 1
        return max(1, self._size - self._reserve(_around(around, start)))


def _outside(headings: Headings, level: int) -> Headings:
    """The headings that a heading of this level leaves open."""
    return tuple(heading for heading in headings if heading[0] < level)


def _titles(headings: Headings) -> tuple[str, ...]:
    return tuple([heading[1] for heading in headings])


def _around(headings: Headings, start: int) -> Around:
    """What is around a chunk that begins at ``start``, under these headings."""
    if not headings:
        return Around()
    _, _, lead_start, lead_end = headings[-1]
    return Around(_titles(headings), lead_start, min(lead_end, start))


def _lead_ends(starts: npt.NDArray[np.int64], levels: Sequence[int], end: int) -> Iterator[int]:
    """For each heading, where the next one begins."""
    headings = starts[np.array(levels, bool)]
    return iter([*headings[1:].tolist(), end])
