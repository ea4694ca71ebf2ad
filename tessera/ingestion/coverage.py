"""Which content of a text no chunk holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tessera.ingestion.lines import bom_length, line_end
from tessera.ingestion.resume import Resume

_BLANK_LINES = re.compile(r"[ \t\r\n]*\n")
_BEGINNING = Resume.begin()
_CONTENT = re.compile(r"[^ \t\r\n]")


class UncoveredRange(NamedTuple):
    """Content that no chunk holds: code points, half-open, and lines from 1, inclusive."""

    start: int
    end: int
    start_line: int
    end_line: int


class Spanned(Protocol):
    """Anything with a half-open span of code points: a chunk, a span."""

    @property
    def start(self) -> int:
        """The first code point."""
        ...

    @property
    def end(self) -> int:
        """The code point behind the last."""
        ...


def uncovered_ranges(text: str, spans: Iterable[Spanned], begin: Resume = _BEGINNING) -> list[UncoveredRange]:
    """Return the maximal ranges of content in ``text`` that none of ``spans`` holds, in rising order.

    ``text`` is the source from ``begin`` on, its lines end at LF (a document's do after
    :func:`~tessera.ingestion.lines.lf_lines`); ``spans`` count from the source's start, in any order, and may
    overlap. One range per hole: it begins and ends with a line that has content in the hole, blank lines
    between included.
    """
    ranges = []
    start = begin.start
    counted, line = 0, begin.start_line
    bom = bom_length(text, start)
    for hole_start, hole_end in _holes(len(text), ((span.start - start, span.end - start) for span in spans)):
        content = _content(text, hole_start, hole_end, bom)
        if content is None:
            continue
        first_line = line + text.count("\n", counted, content[0])
        line = first_line + text.count("\n", *content)
        counted = content[1]
        ranges.append(UncoveredRange(start + content[0], start + content[1], first_line, line))
    return ranges


def covered_by_one(text: str, one: Sequence[Spanned], other: Sequence[Spanned]) -> list[UncoveredRange]:
    """The ranges of content in ``text`` that spans of ``one`` hold and none of ``other``, in rising order."""
    return uncovered_ranges(text, [*other, *uncovered_ranges(text, one)])


def _holes(size: int, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    covered = 0
    for span_start, span_end in sorted(spans):
        if span_start > covered:
            yield covered, span_start
        covered = max(covered, span_end)
    if covered < size:
        yield covered, size


def _content(text: str, start: int, end: int, bom: int) -> tuple[int, int] | None:
    """Return the hole ``start:end`` without the blank lines around it; None where it holds no content."""
    after_bom = max(start, bom)
    if not _CONTENT.search(text, after_bom, end):
        return None
    blank = _BLANK_LINES.match(text, after_bom, end)
    content_end = start + len(text[start:end].rstrip(" \t\r\n"))
    line_feed = text.find("\n", content_end, end)
    return (blank.end() if blank else start), (line_end(text, line_feed) if line_feed >= 0 else end)
