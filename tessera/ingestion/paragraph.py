"""Parser ``paragraph``: blocks between blank lines, each led by the heading blocks before it (ADR 0021).

A heading block leads the block that follows; headings chain. The rule knows nothing of fences, setext
headings or indented headings: it is frozen, so that chunk ids stay.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat

from tessera.ingestion.blocks import Headings, blocks, heading_path, is_heading_block, opened
from tessera.ingestion.chunk import Chunk, Parse, Span, build_chunks
from tessera.ingestion.lines import bom_length, lf_lines
from tessera.ingestion.resume import Resume


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
    path = heading_path(stack)
    chain: Span | None = None
    bom = bom_length(text, begin.start)
    for start, end, line, end_line in blocks(text, bom, begin.start_line):
        at = start or bom
        if is_heading_block(text, at, end):
            if not chain:
                stack_before = stack
            *_, (_, stack) = opened(stack, text, at, end)
            path = heading_path(stack)
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


def _place(text: str, begin: Resume, start: int, ordinal: int, stack: Headings) -> Resume:
    return replace(
        begin,
        ordinal=begin.ordinal + ordinal,
        start=begin.start + start,
        start_line=begin.start_line + text.count("\n", 0, start),
        headings=stack,
    )
