"""Source lines around a span, with the span and chunk borders marked."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tessera.ingestion import lf_lines
from tessera.lab.corpus import LabDocument
from tessera.lab.cuts import LabChunk

LINES_AROUND: Final = 2
MOST_LINES: Final = 40
"""A span of thousands of lines would hide all others; the document is at hand."""

LONGEST: Final = 400
"""Code points of a fragment: some texts have a paragraph of pages on one line. The middle is left out."""

_LINE_END: Final = re.compile("\n")


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of one line, ``marked`` where it is of the span that is shown.

    ``borders`` stand before it, such as ``chunk 4 begins``.
    """

    text: str
    marked: bool
    borders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """A line of the source by its number, from 1."""

    number: int
    fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of document ``key``; ``left_out`` says how many of the span are not shown."""

    key: str
    lines: tuple[ExcerptLine, ...]
    left_out: int = 0


def excerpt(document: LabDocument, start: int, end: int, chunks: Sequence[LabChunk] = ()) -> Excerpt:
    """The lines around a span of a document, with the borders of those ``chunks`` that share some of it."""
    text = document.text
    marks: dict[int, list[str]] = defaultdict(list)
    for chunk in chunks:
        if chunk.entry.start < end and start < chunk.entry.end:
            marks[chunk.entry.start].append(f"chunk {chunk.entry.ordinal} begins")
            marks[chunk.entry.end].insert(0, f"chunk {chunk.entry.ordinal} ends")
    # lf_lines keeps every code point in its place.
    lines = lf_lines(text) if not document.is_log else text
    starts = [0, *(found.end() for found in _LINE_END.finditer(lines))]
    first = max(_line(starts, start) - LINES_AROUND, 0)
    last = min(_line(starts, max(start, end - 1)) + LINES_AROUND, len(starts) - 1)
    shown = min(last, first + MOST_LINES - 1)
    bounds = [*starts[first : shown + 1], starts[shown + 1] if shown + 1 < len(starts) else len(text) + 1]
    found = tuple(
        ExcerptLine(first + number + 1, _fragments(text, line_start, next_start - 1, start, end, marks))
        for number, (line_start, next_start) in enumerate(pairwise(bounds))
    )
    return Excerpt(document.key, found, last - shown)


def _line(starts: Sequence[int], at: int) -> int:
    return bisect_right(starts, at) - 1


def _fragments(
    text: str, line_start: int, line_end: int, start: int, end: int, marks: dict[int, list[str]]
) -> tuple[Fragment, ...]:
    cuts = {line_start, line_end, start, end, *marks}
    places = sorted(at for at in cuts if line_start <= at <= line_end)
    found = [
        Fragment(_shortened(text[before:after]), start <= before < end, tuple(marks.get(before, ())))
        for before, after in pairwise(places)
    ]
    # A border at the line's end stands behind its last character; at its start it was shown already.
    if places[-1] in marks and (len(places) > 1 or line_start == line_end):
        found.append(Fragment("", False, tuple(marks[places[-1]])))
    return tuple(found)


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} [… {len(text) - 2 * half:,} characters …] {text[-half:]}"
