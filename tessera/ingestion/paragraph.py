"""Parser ``paragraph``: blocks between blank lines, each led by the heading blocks before it (ADR 0021).

A block is a run of non-blank lines. One made of nothing but ATX headings leads the block that follows;
headings chain. The rule knows nothing of fences, setext headings or indented headings: it is frozen, so
that chunk ids stay.

Regular expressions over the whole text do the work: Python runs per block, not per line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

from tessera.ingestion.chunk import Chunk, Parse, Span, build_chunks
from tessera.ingestion.lines import BLANKS, bom_length, lf_lines, line_end
from tessera.ingestion.resume import Heading, Resume

_BLANK_LINES = re.compile(r"[ \t\r\n]*\n")
_SEPARATOR = re.compile(r"\n[ \t\r\n]*\n")
"""A block's last line end and the blank lines after it. It begins with a literal, so it is found fast."""

_HEADING_BLOCK = re.compile(r"(?:#{1,6}[ \t]++\S[^\n]*+\n)*+#{1,6}[ \t]++\S[^\n]*+")
_HEADING = re.compile(r"(#{1,6})[ \t]+([^\n]*)")


_Stack = tuple[Heading, ...]


def chunk_text(text: str, stem: str) -> list[Chunk]:
    """Cut a whole source at blank lines, headings going with what they lead.

    Returns chunks in source order, disjoint and rising, that hold every line with content; ids are
    ``<stem>:chunk<n>``. A source with CR but no LF has lines that end at CR.
    """
    begin = Resume.begin()
    parse = parse_paragraphs(lf_lines(text), begin)
    return build_chunks(text, parse.spans, stem, begin, repeat((None, None)))


def parse_paragraphs(text: str, begin: Resume) -> Parse:
    """Find the spans of ``text``, the source from ``begin`` on, whose lines end at LF.

    The next cut begins at the last span, even where a blank line has closed it: so every append writes its
    document's newest piece.
    """
    spans: list[Span] = []
    stack = stack_before = begin.headings
    path = _path(stack)
    chain: Span | None = None
    bom = bom_length(text, begin.start)
    for start, end, line, end_line in _blocks(text, bom, begin.start_line):
        at = start or bom
        if text.startswith("#", at) and _HEADING_BLOCK.fullmatch(text, at, end):
            if not chain:
                stack_before = stack
            stack = _opened(stack, text, at, end)
            path = _path(stack)
            chain = (chain[0], end, chain[2], end_line, path) if chain else (start, end, line, end_line, path)
        elif chain:
            spans.append((chain[0], end, chain[2], end_line, path))
            chain = None
        else:
            stack_before = stack
            spans.append((start, end, line, end_line, path))
    if chain:
        spans.append(chain)
    place = _place(text, begin, spans[-1][0], len(spans) - 1, stack_before) if spans else begin
    return Parse(spans, place, _place(text, begin, len(text), len(spans), stack))


def _blocks(text: str, bom: int, line: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield start, end, start line and end line of the runs of non-blank lines."""
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


def _opened(stack: _Stack, text: str, start: int, end: int) -> _Stack:
    """Return the open headings after the heading block at ``start:end``."""
    for match in _HEADING.finditer(text, start, end):
        level = len(match[1])
        stack = (*(heading for heading in stack if heading[0] < level), (level, _heading_text(match[2])))
    return stack


def _heading_text(line: str) -> str:
    """Return a heading's text without its closing marks, which a space or tab sets off."""
    text = line.rstrip(BLANKS)
    bare = text.rstrip("#")
    return text if bare and bare[-1] not in " \t" else bare.rstrip(BLANKS)


def _path(stack: _Stack) -> tuple[str, ...]:
    return tuple(text for _, text in stack)


def _place(text: str, begin: Resume, start: int, ordinal: int, stack: _Stack) -> Resume:
    return replace(
        begin,
        ordinal=begin.ordinal + ordinal,
        start=begin.start + start,
        start_line=begin.start_line + text.count("\n", 0, start),
        headings=stack,
    )
