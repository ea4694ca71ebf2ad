"""How many hits of an answer say again what a better hit has said: overlap of shingles.

A shingle is a run of :data:`SHINGLE` words, in lower case. A hit nearly repeats a better one where more than
:data:`REPEATS` of the shorter one's shingles are the other's too: a sentence repeats the page that it is of.
See Broder, On the resemblance and containment of documents, 1997.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

SHINGLE: Final = 5
REPEATS: Final = 0.8

MAX_HITS: Final = 20
MAX_WORDS: Final = 2_000
"""Hits, and words of each, that are looked at: what is measured must cost little beside what it measures."""

_WORDS: Final = re.compile(r"\w+")


def near_duplicates(texts: Sequence[str]) -> float:
    """The share (0 to 1) of texts, best first, that nearly repeat one before them; of those looked at."""
    looked = [_shingles(text) for text in texts[:MAX_HITS]]
    if not looked:
        return 0.0
    repeated = sum(
        any(_contained(each, before) > REPEATS for before in looked[:number])
        for number, each in enumerate(looked)
    )
    return repeated / len(looked)


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    """A text shorter than a shingle is one."""
    words = [found[0].lower() for found, _ in zip(_WORDS.finditer(text), range(MAX_WORDS), strict=False)]
    return frozenset(tuple(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1)))


def _contained(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    return len(one & other) / min(len(one), len(other))
