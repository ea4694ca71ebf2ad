"""Blocks of lines, and which of them are headings (ADR 0021): what all parsers of prose agree on.

A block is a run of non-blank lines. One made of nothing but ATX headings is a heading block.

Regular expressions over the whole text do the work: Python runs per block, not per line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tessera.ingestion.lines import BLANKS, line_end
from tessera.ingestion.resume import Heading

Headings = tuple[Heading, ...]
"""The open headings, outermost first."""

_BLANK_LINES = re.compile(r"[ \t\r\n]*\n")
_SEPARATOR = re.compile(r"\n[ \t\r\n]*\n")
"""A block's last line end and the blank lines after it. It begins with a literal, so it is found fast."""

_HEADING_BLOCK = re.compile(r"(?:#{1,6}[ \t]++\S[^\n]*+\n)*+#{1,6}[ \t]++\S[^\n]*+")
_HEADING_LINE = re.compile(r"^\ufeff?[ \t]{0,3}#{1,6}[ \t]+(\S[^\n]*)", re.MULTILINE)
_UNDERLINED = re.compile(r"^\ufeff?[ \t]*+(\S[^\n]*+)\n[ \t]{0,3}(?:=++|-++)[ \t\r]*+$", re.MULTILINE)
_HEADING = re.compile(r"(#{1,6})[ \t]+([^\n]*)")


def blocks(text: str, bom: int, line: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield start, end, start line and end line of the runs of non-blank lines, whose lines end at LF.

    ``bom`` is the length of the text's BOM, which the first block holds; ``line`` is the number of the first
    line.
    """
    content_end = len(text.rstrip(BLANKS + "\n"))
    if content_end <= bom:
        return
    blank = _BLANK_LINES.match(text, bom, content_end)
    start = blank.end() if blank else 0
    line += text.count("\n", 0, start)
    count = text.count
    has_cr = "\r" in text
    for separator in _SEPARATOR.finditer(text, start, content_end):
        line_feed, next_start = separator.span()
        end_line = line + count("\n", start, line_feed)
        yield start, line_end(text, line_feed) if has_cr else line_feed, line, end_line
        line = end_line + count("\n", line_feed, next_start)
        start = next_start
    line_feed = text.find("\n", content_end)
    end = line_end(text, line_feed) if line_feed >= 0 else len(text)
    yield start, end, line, line + count("\n", start, end)


def is_heading_block(text: str, start: int, end: int) -> bool:
    """Whether the block at ``start:end``, its BOM left out, holds nothing but ATX headings."""
    return text.startswith("#", start) and _HEADING_BLOCK.fullmatch(text, start, end) is not None


def opened(headings: Headings, text: str, start: int, end: int) -> Iterator[tuple[int, Headings]]:
    """Yield where each heading of the heading block at ``start:end`` begins, and those open from there on."""
    for match in _HEADING.finditer(text, start, end):
        level = len(match[1])
        headings = (
            *(heading for heading in headings if heading[0] < level),
            (level, heading_title(match[2])),
        )
        yield match.start(), headings


def heading_titles(text: str) -> set[str]:
    """The texts of those lines of ``text`` that look like headings, whatever stands around them."""
    titles = {heading_title(match[1]) for match in _HEADING_LINE.finditer(text)} if "#" in text else set()
    return titles | {match[1].strip(BLANKS) for match in _UNDERLINED.finditer(text)}


def heading_path(headings: Headings) -> tuple[str, ...]:
    """The texts of the open headings."""
    return tuple(text for _, text in headings)


def heading_title(line: str) -> str:
    """A heading's text without its closing marks, which a space or tab sets off."""
    text = line.rstrip(BLANKS)
    bare = text.rstrip("#")
    return text if bare and bare[-1] not in " \t" else bare.rstrip(BLANKS)
