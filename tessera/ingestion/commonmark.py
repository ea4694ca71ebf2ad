"""The outermost blocks of a Markdown document: CommonMark's, with tables and front matter.

pulldown-cmark finds them, through pyromark. Here its blocks become whole lines of this project's kind (see
:mod:`tessera.ingestion.lines`), all lines of a text at once: Python runs per event and per heading only.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyromark

from tessera.ingestion.blocks import heading_title
from tessera.ingestion.lines import BLANKS, bom_length, line_end

Integers = npt.NDArray[np.int64]


class Block(NamedTuple):
    """A block of whole lines: code points ``start`` to ``end``, the final line end left out.

    ``kind`` is ``heading``, ``paragraph``, ``fence``, ``table``, ``item`` or ``other``; ``level`` and
    ``title`` are a heading's, its lines joined by a space, without the marks of a heading.
    """

    start: int
    end: int
    kind: str
    level: int = 0
    title: str = ""


_FRONT_MATTER: Final = re.compile(
    r"""
      ---[ \t]*+\r?\n    (?![ \t\r]*+\n) (?:[^\n]*+\n)*? (?:---|\.\.\.)[ \t\r]*+(?:\n|\Z)
    | \+\+\+[ \t]*+\r?\n (?![ \t\r]*+\n) (?:[^\n]*+\n)*? \+\+\+[ \t\r]*+(?:\n|\Z)
    """,
    re.VERBOSE,
)
"""YAML or TOML at the very start. A rule before a blank line is a rule, as in Pandoc."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LONE_CR: Final = re.compile(r"\r(?!\n)")
_NO_SPACE: Final = str.maketrans("\x0b\x0c", "\x01\x01")
_LEVELS: Final = {f"H{level}": level for level in range(1, 7)}
_KINDS: Final = {
    "Paragraph": "paragraph",
    "Heading": "heading",
    "CodeBlock": "fence",
    "Table": "table",
    "List": "list",
}
_LF: Final = ord("\n")
_CR: Final = ord("\r")


class Columns(NamedTuple):
    """Blocks by column: a value of each for every block."""

    starts: Integers
    ends: Integers
    kinds: list[str]
    levels: list[int]
    titles: list[str]


def markdown_blocks(text: str, start: int = 0) -> list[Block]:
    """The blocks of a document whose lines end at LF, in its order; every line with content is in one.

    ``text`` is the source from code point ``start`` on. The items of the outermost lists are blocks each;
    what stands inside a quote or an item is no block of its own.
    """
    starts, ends, kinds, levels, titles = block_columns(text, start)
    return list(map(Block, starts.tolist(), ends.tolist(), kinds, levels, titles))


def block_columns(text: str, start: int = 0) -> Columns:
    """The same as :func:`markdown_blocks` by column, at half the cost."""
    bom = bom_length(text, start)
    front = None if start else _FRONT_MATTER.match(text, bom)
    begin = front.end() if front else bom
    starts, ends, kinds, levels = _by_lines(_readable(text[begin:]))
    starts, ends = starts + begin, ends + begin
    if front:
        last = len(text[:begin].rstrip(BLANKS + "\n"))
        line_feed = text.find("\n", last)
        end = line_end(text, line_feed) if line_feed >= 0 else len(text)
        starts, ends = np.insert(starts, 0, 0), np.insert(ends, 0, end)
        kinds, levels = ["other", *kinds], [0, *levels]
    elif len(starts) and starts[0] == bom:
        starts[0] = 0
    titles = [""] * len(levels)
    for at, level in enumerate(levels):
        if level:
            titles[at] = _title(text[max(starts[at], bom) : ends[at]])
    return Columns(starts, ends, kinds, levels, titles)


def _readable(text: str) -> str:
    """``text`` for a parser of CommonMark, code point for code point.

    It would end lines at any CR, and takes form feeds for blank space, which they are neither in CommonMark
    nor here. Half a character has no UTF-8.
    """
    if "\r" in text:
        text = _LONE_CR.sub(" ", text)
    if "\x0b" in text or "\x0c" in text:
        text = text.translate(_NO_SPACE)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def _by_lines(source: str) -> tuple[Integers, Integers, list[str], list[int]]:
    """Start, end, kind and level of each block, in code points, where blocks are whole lines."""
    data = np.frombuffer(source.encode(), np.uint8)
    feeds = np.flatnonzero(data == _LF)
    starts = np.concatenate(([0], feeds + 1))
    ends = np.append(feeds, len(data))
    if starts[-1] == len(data):
        starts, ends = starts[:-1], ends[:-1]
    if not len(starts):
        return starts, ends, [], []
    is_content = (data != _LF) & (data != _CR) & (data != ord(" ")) & (data != ord("\t"))
    filled = np.logical_or.reduceat(is_content, starts)
    ends = ends - ((ends > starts) & (data[ends - 1] == _CR))
    kinds, levels, begins, stops = _outermost(source)
    first, last = _line_ranges(starts, filled, begins, stops)
    loose_first, loose_last = _loose(filled, first, last)
    if len(loose_first):
        order = np.argsort(np.concatenate((first, loose_first)), kind="stable").tolist()
        first = np.concatenate((first, loose_first))[order]
        last = np.concatenate((last, loose_last))[order]
        kinds, levels = [*kinds, *["other"] * len(loose_first)], [*levels, *[0] * len(loose_first)]
        kinds, levels = [kinds[at] for at in order], [levels[at] for at in order]
    if not source.isascii():
        starts, ends = _in_code_points(data, starts, ends)
    return starts[first], ends[last], kinds, levels


def _in_code_points(
    data: npt.NDArray[np.uint8], starts: Integers, ends: Integers
) -> tuple[Integers, Integers]:
    """Starts and ends of all lines in code points: less the bytes that go on with one, up to there."""
    goes_on = ((data & 0xC0) == 0x80).view(np.uint8)
    in_line = np.add.reduceat(goes_on, starts, dtype=np.int64)
    up_to = np.cumsum(in_line)
    return starts - (up_to - in_line), ends - up_to


def _outermost(source: str) -> tuple[list[str], list[int], list[int], list[int]]:
    """Kind, level, start and end (in bytes) of the outermost blocks; of a list its items.

    Whatever begins before the end of a block is inside of it, its own end included; so are the empty cells
    that stand at the end of a table.
    """
    kinds, levels, starts, ends = [], [], [], []
    inside = 0
    list_end = -1
    events: Any = pyromark.events_with_range(source, options=pyromark.Options.ENABLE_TABLES)
    for event, span in events:
        start = span["start"]
        if start < inside:
            continue
        begun: Any = event if event.__class__ is str else event.get("Start")
        if begun is None or start == span["end"]:
            continue
        kind = "item" if start < list_end else _kind(begun)
        if kind == "list":
            list_end = span["end"]
            continue
        inside = span["end"]
        kinds.append(kind)
        levels.append(_LEVELS[begun["Heading"]["level"]] if kind == "heading" else 0)
        starts.append(start)
        ends.append(inside)
    return kinds, levels, starts, ends


def _kind(begun: Any) -> str:
    """The kind of a block by what begins it; ``list`` for a list."""
    if begun.__class__ is str:
        return _KINDS.get(begun, "other")
    name, value = next(iter(begun.items()))
    return _KINDS.get(name, "other") if value != "Indented" else "other"


def _line_ranges(
    starts: Integers, filled: npt.NDArray[np.bool_], begins: list[int], stops: list[int]
) -> tuple[Integers, Integers]:
    """First and last line of each block. The blank lines at its end are nobody's."""
    first = starts.searchsorted(np.array(begins, np.int64), "right") - 1
    last = starts.searchsorted(np.array(stops, np.int64) - 1, "right") - 1
    last_filled = np.maximum.accumulate(np.where(filled, np.arange(len(filled)), -1))
    return first, last_filled[last]


def _loose(filled: npt.NDArray[np.bool_], first: Integers, last: Integers) -> tuple[Integers, Integers]:
    """First and last line of what stands between the blocks, such as definitions of links."""
    held = np.zeros(len(filled) + 1, np.int8)
    held[first] += 1
    held[last + 1] -= 1
    lines = np.flatnonzero(filled & (np.cumsum(held, dtype=np.int8)[:-1] == 0))
    if not len(lines):
        return lines, lines
    blocks_before = first.searchsorted(lines)
    border = np.flatnonzero(blocks_before[1:] != blocks_before[:-1])
    return lines[np.append(0, border + 1)], lines[np.append(border, len(lines) - 1)]


def _title(lines: str) -> str:
    """A heading's text without its marks. An underlined one has two lines or more, any other has one."""
    if "\n" in lines:
        return " ".join(line.strip(BLANKS) for line in lines.split("\n")[:-1])
    return heading_title(lines.lstrip(BLANKS).lstrip("#")).strip(BLANKS)
