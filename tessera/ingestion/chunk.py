"""The values that cutting a text yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

from tessera.ingestion.resume import Resume


class Chunk(NamedTuple):
    """A span of one text. ``text == source[start:end]``, verbatim, the final line end left out.

    ``id`` is ``<stem>:chunk<n>``, n from 0 in source order. ``start``/``end`` are code points, half-open;
    ``start_line``/``end_line`` 1-based, inclusive. ``headings`` is the path of enclosing headings, its own
    included, outermost first (in runner logs: the title of the group). ``start_token``/``end_token`` are
    half-open indices into the source's token sequence, None until a policy with a tokenizer sets them.
    ``context``, where a policy gives one, is indexed with the chunk and is no part of its text.
    """

    id: str
    text: str
    start: int
    end: int
    start_line: int
    end_line: int
    headings: tuple[str, ...] = ()
    start_token: int | None = None
    end_token: int | None = None
    context: str = ""


Span = tuple[int, int, int, int, tuple[str, ...]]
"""Start, end, start line, end line and headings of a chunk in the text that a parser was given.

Start and end count from that text's start, lines from the source's. A plain tuple: there is one for every
chunk, and a named one takes as long to make as the chunk takes to be found.
"""


class Around(NamedTuple):
    """What a chunk lies in and does not begin: the headings of its sections, outermost first.

    ``lead_start`` to ``lead_end``, half-open in the text that the parser was given, is how the innermost of
    these sections begins: from its heading to the next heading, as far as that stands before the chunk.
    """

    headings: tuple[str, ...] = ()
    lead_start: int = 0
    lead_end: int = 0


class Parse(NamedTuple):
    """What a parser found in one text.

    ``open`` is where the next cut begins when the text grows, the start of the last span: spans from there on
    may still change, earlier ones cannot. ``end`` is the state behind the last line; after missing lines
    cutting goes on from :meth:`Resume.after_gap` of it. Parsers count no tokens: ``start_token`` of both is
    that of the beginning. ``around``, where a parser gives it, is what a reader of each span alone would
    miss, and what the parser left room for.
    """

    spans: list[Span]
    open: Resume
    end: Resume
    around: list[Around] | None = None


Reserve = Callable[[Around], int]
"""Tokens that a policy indexes beside a chunk with this around it."""


def build_chunks(
    text: str,
    spans: Iterable[Span],
    stem: str,
    begin: Resume,
    tokens: Iterable[tuple[int | None, int | None]],
) -> list[Chunk]:
    """Return the chunks at ``spans`` of ``text``, which is the source from ``begin`` on.

    ``tokens`` pairs with ``spans``: token offsets in the source, or None.
    """
    base = begin.start
    prefix = f"{stem}:chunk"
    new = tuple.__new__  # what Chunk(...) calls, without its argument parsing: twice as fast
    return [
        new(
            Chunk,
            (
                f"{prefix}{ordinal}",
                text[start:end],
                base + start,
                base + end,
                start_line,
                end_line,
                headings,
                start_token,
                end_token,
                "",
            ),
        )
        for (start, end, start_line, end_line, headings), (start_token, end_token), ordinal in zip(
            spans, tokens, count(begin.ordinal), strict=False
        )
    ]
