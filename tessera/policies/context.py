"""Parent context: what is indexed beside a chunk's text, so that it is found by what it stands in.

``headings`` are those of the sections that a chunk lies in and does not begin, outermost first; where they
take too much, the innermost that fit. ``section`` is these and, on the lines behind, how the innermost of
these sections begins: its text up to its next heading, never beyond the chunk's start, cut before the token
that would be too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from tessera.ingestion import Around, Chunk, heading_titles
from tessera.policies.tokenizer_files import StartsOf

SEPARATOR: Final = " > "

SECTION_TOKENS: Final = 200
"""Bounds a section's context where half the size is more: else what stands before a thousand short sections
would be indexed whole with each."""

MAX_CONTEXT_CHARACTERS: Final = 2_000
"""Characters of a path, and of what a section begins with, at most: one token can be a megabyte long, and
would go with every chunk."""

_BLANK: Final = " \t\r\n"


class Contexts:
    """The contexts of the chunks of one text whose tokens start at ``token_starts``, by one policy.

    ``is_section`` tells ``section`` from ``headings``. ``size`` is the policy's: a context has half of it at
    most, for the chunk's own text comes first.
    """

    def __init__(
        self,
        text: str,
        token_starts: npt.NDArray[np.int64],
        starts_of: StartsOf,
        size: int | None,
        *,
        is_section: bool,
    ) -> None:
        self._text, self._token_starts, self._starts_of = text, token_starts, starts_of
        self._is_section = is_section
        self._limit = None if size is None else size // 2
        if is_section:
            self._limit = SECTION_TOKENS if self._limit is None else min(self._limit, SECTION_TOKENS)
        self._path = cache(self._fitting_path)
        self._of_section = cache(self._section)

    def of(self, around: Around) -> str:
        """The context of a chunk that has this around it."""
        return self._of_section(around)[0] if self._is_section else self._path(around.headings)[0]

    def reserve(self, around: Around) -> int:
        """Tokens of that context."""
        return self._of_section(around)[1] if self._is_section else self._path(around.headings)[1]

    def _fitting_path(self, headings: tuple[str, ...]) -> tuple[str, int]:
        """The innermost headings that fit, and their tokens."""
        short = _innermost(headings)
        for first in range(len(short)):
            path = SEPARATOR.join(short[first:])
            tokens = len(self._starts_of(path))
            if self._limit is None or tokens <= self._limit:
                return path, tokens
        return "", 0

    def _section(self, around: Around) -> tuple[str, int]:
        path, taken = self._path(around.headings)
        assert self._limit is not None
        lead, tokens = self._lead(around.lead_start, around.lead_end, self._limit - taken)
        return "\n".join(part for part in (path, lead) if part), taken + tokens

    def _lead(self, start: int, end: int, limit: int) -> tuple[str, int]:
        """The text from ``start`` to ``end`` up to its last token that fits, and the tokens of it."""
        first, after = self._token_starts.searchsorted((start, end)).tolist()
        if limit < 1 or first == after:
            return "", 0
        if (
            end - start > MAX_CONTEXT_CHARACTERS
        ):  # up to the last token that begins within, which may end beyond
            after = int(self._token_starts.searchsorted(start + MAX_CONTEXT_CHARACTERS)) - 1
            if after <= first:
                return "", 0
            end = int(self._token_starts[after])
        if after - first > limit:
            end = int(self._token_starts[first + limit])
        while True:
            lead = self._text[start:end].strip(_BLANK)
            starts = self._starts_of(lead)
            # What is cut in a line can have other tokens than the line.
            if len(starts) <= limit:
                return lead, len(starts)
            start = self._text.index(lead, start)
            end = start + int(starts[limit])


def paragraph_contexts(chunks: Iterable[Chunk]) -> list[Chunk]:
    """The chunks of parser ``paragraph``, each with the headings that its text does not hold as context."""
    return [chunk._replace(context=_without(chunk.headings, heading_titles(chunk.text))) for chunk in chunks]


def _without(path: Sequence[str], own: set[str]) -> str:
    return SEPARATOR.join(_innermost([title for title in path if title not in own]))


def _innermost(path: Sequence[str]) -> Sequence[str]:
    """The path from the outermost heading on that lets it be short enough; nothing where none does."""
    for first in range(len(path)):
        if sum(map(len, path[first:])) + len(SEPARATOR) * (len(path) - first - 1) <= MAX_CONTEXT_CHARACTERS:
            return path[first:]
    return ()
