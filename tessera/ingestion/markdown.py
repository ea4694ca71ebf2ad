"""Parser ``markdown``: the blocks of CommonMark, with tables and front matter, packed up to a size.

A heading leads its section: no chunk ends with one that has content behind it, and one of the same or a
higher level than the first heading of a chunk begins the next chunk. What is a heading is CommonMark's:
underlined ones are, lines in fences, HTML and front matter are not; headings inside quotes and lists open no
section.
Fences, tables and list items stay whole where they fit; where they must be cut, between lines. A paragraph is
cut between sentences, and only what has no other border inside a line, before a token.

Blocks are found by pulldown-cmark, through pyromark.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyromark

from tessera.ingestion.blocks import Headings, heading_path, heading_title
from tessera.ingestion.chunk import Parse, Span
from tessera.ingestion.lines import BLANKS, bom_length
from tessera.ingestion.outline import moved
from tessera.ingestion.resume import Resume
from tessera.ingestion.sentence import sentence_spans

Reserve = Callable[[tuple[str, ...]], int]

_OPTIONS: Final = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_YAML_STYLE_METADATA_BLOCKS
    | pyromark.Options.ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS
)
_BLANK: Final = BLANKS + "\n"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ATX: Final = re.compile(r"\ufeff?[ \t]{0,3}#{1,6}(?=[ \t\r\n]|$)[ \t]*")
_LEVELS: Final = {f"H{level}": level for level in range(1, 7)}


class Block(NamedTuple):
    """A block of whole lines: code points ``start`` to ``end``, the final line end left out.

    ``kind`` is ``heading``, ``paragraph``, ``fence``, ``table``, ``item`` or ``other``; ``level`` and
    ``title`` are a heading's.
    """

    start: int
    end: int
    kind: str
    level: int = 0
    title: str = ""


def markdown_blocks(text: str, start: int = 0) -> list[Block]:
    """The blocks of a document whose lines end at LF, in its order; every line with content is in one.

    ``text`` is the source from code point ``start`` on. The items of the outermost lists are blocks each.
    """
    bom = bom_length(text, start)
    source = _SURROGATE.sub("\ufffd", text[bom:])
    place = _code_points(source)
    blocks: list[Block] = []
    done = 0
    for kind, begins, ends, level in _outermost(source):
        first = text.rfind("\n", 0, place(begins) + bom) + 1
        last = _line_end(text, place(ends) + bom)
        first = max(first, done)
        if last <= first:
            continue
        if first > done + 1:
            blocks += _loose(text, done, first)
        title = _title(text[first:last]) if kind == "heading" else ""
        blocks.append(Block(first, last, kind, level, title))
        done = min(last + 1, len(text))
    return blocks + list(_loose(text, done, len(text)))


def _outermost(source: str) -> Iterator[tuple[str, int, int, int]]:
    """Kind, start, end (in bytes) and level of the outermost blocks; of a list its items.

    Whatever begins before the end of a block is inside of it, its own end included.
    """
    inside = 0
    list_end = -1
    events: Any = pyromark.events_with_range(source, options=_OPTIONS)
    for event, span in events:
        start = span["start"]
        if start < inside:
            continue
        begun: Any = event if event.__class__ is str else event.get("Start")
        if begun is None:
            continue
        name = begun if begun.__class__ is str else next(iter(begun))
        if name == "List" and start >= list_end:
            list_end = span["end"]
            continue
        inside = span["end"]
        if start < list_end:
            yield "item", start, inside, 0
        elif name == "Heading":
            yield "heading", start, inside, _LEVELS[begun["Heading"]["level"]]
        elif name == "CodeBlock" and begun["CodeBlock"] != "Indented":
            yield "fence", start, inside, 0
        else:
            yield _KINDS.get(name, "other"), start, inside, 0


_KINDS: Final = {"Paragraph": "paragraph", "Table": "table"}


def _code_points(source: str) -> Callable[[int], int]:
    """From an offset in the UTF-8 of ``source`` to one in its code points."""
    if source.isascii():
        return lambda at: at
    data = np.frombuffer(source.encode(), np.uint8)
    before = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))
    return lambda at: int(before[at])


def _line_end(text: str, end: int) -> int:
    """The end of the last line with content before ``end``, its line end left out."""
    while end and text[end - 1] in _BLANK:
        end -= 1
    line_feed = text.find("\n", end)
    last = len(text) if line_feed < 0 else line_feed
    return last - 1 if last and text[last - 1] == "\r" else last


def _loose(text: str, start: int, end: int) -> Iterator[Block]:
    """Lines with content that no block of the parser holds, such as definitions of links."""
    if text[start:end].strip(_BLANK):
        first = start + len(text[start:end]) - len(text[start:end].lstrip(_BLANK))
        first = max(start, text.rfind("\n", start, first) + 1)
        yield Block(first, start + len(text[start:end].rstrip(_BLANK)), "other")


def _title(lines: str) -> str:
    """A heading's text without its marks; of an underlined one over several lines the last."""
    atx = _ATX.match(lines)
    if atx:
        return heading_title(lines[atx.end() :]).strip(BLANKS)
    return lines.rstrip(_BLANK).rpartition("\n")[0].rpartition("\n")[2].strip(BLANKS)


def parse_markdown(
    text: str,
    begin: Resume,
    token_starts: npt.NDArray[np.int64],
    size: int | None,
    overlap: int,
    reserve: Reserve,
) -> Parse:
    """Cut a document, the source from ``begin`` on, whose lines end at LF.

    A chunk has at most ``size`` tokens, less what ``reserve`` says that its headings take beside it; without
    a size, it is one section's own content. It begins with up to ``overlap`` tokens of whole blocks of the
    one before, in the same section. Where the text grows, all of it is cut again: a line can change what
    stands before it.
    """
    packing = _Packing(text, token_starts.tolist(), size, overlap, reserve)
    for block in markdown_blocks(text, begin.start):
        packing.add(block)
    packing.close()
    spans: list[Span] = []
    counted, line = 0, begin.start_line
    for start, end, path in packing.chunks:
        line += text.count("\n", counted, start)
        counted = start
        spans.append((start, end, line, line + text.count("\n", start, end), path))
    return Parse(spans, begin, moved(begin, text, len(text), len(spans)))


@dataclass(slots=True)
class _Part:
    """A block, or a piece of one, in the chunk that is being packed."""

    start: int
    end: int
    tokens: int
    level: int


class _Packing:
    """The chunk that is being packed, and those that are closed: start, end and headings of each."""

    def __init__(
        self, text: str, borders: Sequence[int], size: int | None, overlap: int, reserve: Reserve
    ) -> None:
        self.chunks: list[tuple[int, int, tuple[str, ...]]] = []
        self._text, self._borders = text, borders
        self._size, self._overlap = size, overlap
        self._reserve = cache(lambda headings: reserve(heading_path(headings)))
        self._parts: list[_Part] = []
        self._used = 0
        self._contents = 0
        self._fresh = 0
        self._outside: Headings = ()
        self._open: Headings = ()
        self._path: tuple[str, ...] = ()

    def add(self, block: Block) -> None:
        """Put a block behind what is there."""
        if block.level:
            self._heading(block)
        else:
            self._content(block.start, block.end, block.kind)

    def _heading(self, block: Block) -> None:
        tokens = self._count(block.start, block.end)
        if self._parts and (self._begins_chunk(block) or self._used + tokens > self._room()):
            self.close()
        outside = tuple(each for each in self._open if each[0] < block.level)
        self._open = (*outside, (block.level, block.title))
        if not self._parts:
            self._outside = outside
        if tokens <= self._room():
            self._append(block.start, block.end, block.level)
            return
        for start, end in self._pieces(block.start, block.end, "token", self._room()):
            self._append(start, end, block.level)
            self.close()

    def _begins_chunk(self, block: Block) -> bool:
        """Whether a heading ends the chunk before it; it never parts from headings just before it."""
        if not self._contents:
            return False
        first = next((part.level for part in self._parts if part.level), 0)
        if self._size is None or block.level <= first or not first:
            return True
        return 2 * (self._used + self._count(block.start, block.end)) > self._room()

    def _content(self, start: int, end: int, kind: str) -> None:
        """Put content behind what is there, cut where it is too long for a chunk of its own."""
        tokens = self._count(start, end)
        if self._used + tokens <= self._room():
            self._append(start, end, 0)
            return
        if self._contents:
            self.close(overlapped=True)
            while self._parts and self._used + tokens > self._room():
                self._drop_first()
            if self._used + tokens <= self._room():
                self._append(start, end, 0)
                return
        finer = {"paragraph": "sentence", "sentence": "token", "line": "token"}.get(kind, "line")
        room = max(1, self._room() - self._used)
        for first, last in self._pieces(start, end, finer, room):
            if finer != "token":
                self._content(first, last, finer)
            else:
                if self._used + self._count(first, last) > self._room():
                    self.close()
                self._append(first, last, 0)

    def _pieces(self, start: int, end: int, by: str, room: int) -> Iterator[tuple[int, int]]:
        """Pieces of a stretch of text: its sentences, its lines, or runs of so many tokens."""
        text = self._text
        if by == "sentence":
            yield from ((start + a, start + b) for a, b in sentence_spans(text[start:end]))
        elif by == "line":
            for match in re.finditer(r"[^\n]+", text[start:end]):
                if match[0].strip(BLANKS):
                    yield start + match.start(), start + len(text[start : start + match.end()].rstrip("\r"))
        else:
            first, after = (bisect_left(self._borders, at) for at in (start, end))
            cuts = [start, *self._borders[first + room : after : max(1, self._room(alone=True))], end]
            for begin, stop in pairwise(cuts):
                yield begin, begin + len(text[begin:stop].rstrip(_BLANK))

    def _append(self, start: int, end: int, level: int) -> None:
        if not self._contents:
            self._path = heading_path(self._open)
        self._hold(_Part(start, end, self._count(start, end), level))
        self._fresh += 1

    def _hold(self, part: _Part) -> None:
        self._parts.append(part)
        self._used += part.tokens
        self._contents += not part.level

    def _drop_first(self) -> None:
        part = self._parts.pop(0)
        self._used -= part.tokens
        self._contents -= not part.level

    def close(self, *, overlapped: bool = False) -> None:
        """End the chunk that is being packed; the next begins with parts of it where it is ``overlapped``."""
        if self._fresh:
            self.chunks.append((self._parts[0].start, self._parts[-1].end, self._path))
        kept = self._shared() if overlapped and self._overlap else []
        self._parts, self._used, self._contents, self._fresh = [], 0, 0, 0
        for part in kept:
            self._hold(part)
        self._path = heading_path(self._open)
        self._outside = self._open

    def _shared(self) -> list[_Part]:
        """The last parts that the next chunk may begin with, never all of them."""
        kept: list[_Part] = []
        tokens = 0
        for part in reversed(self._parts[1:]):
            tokens += part.tokens
            if part.level or tokens > self._overlap:
                break
            kept.append(part)
        return kept[::-1]

    def _room(self, *, alone: bool = False) -> int:
        """Tokens that the chunk may have, one at least; ``alone``: one without headings of its own."""
        if self._size is None:
            return len(self._borders) + 1
        outside = self._open if alone else self._outside
        return max(1, self._size - self._reserve(outside))

    def _count(self, start: int, end: int) -> int:
        return bisect_left(self._borders, end) - bisect_left(self._borders, start)
