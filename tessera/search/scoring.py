"""What a query weighs, and what it may be.

A chunk's score is the sum over the query's distinct terms of ``count in query · idf · tf part``, added up in
the order of (live document frequency, term). The order depends on the live documents alone, and so do the
frequencies, hence every layout of segments gives the same bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from tessera.errors import QueryError
from tessera.index.analyzer import Analyzer

MAX_K = 1000
"""Hits in one answer: more would read that many texts for one request."""

MAX_QUERY_CHARACTERS = 8192
"""Length of a query: one request must not keep the analyzer busy."""

MAX_TERMS = 64
"""Distinct terms of a query: cost grows with each; 64 common terms already take a hundred times an
ordinary query."""


def idf(chunks: int, frequency: int) -> float:
    """``ln(1 + (N - n + 0.5) / (n + 0.5))``, Lucene's BM25 idf; positive. ``math.log``: numpy's differs."""
    return math.log(1 + (chunks - frequency + 0.5) / (frequency + 0.5))


def query_terms(query: str, k: int, analyzer: Analyzer) -> Counter[str]:
    """The distinct terms of a query and how often each occurs.

    Raises :class:`~tessera.errors.QueryError` where the query or ``k`` is outside its bounds.
    """
    if isinstance(k, bool) or not 1 <= k <= MAX_K:
        raise QueryError(f"k must be between 1 and {MAX_K}, got {k}")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise QueryError(
            f"a query may have {MAX_QUERY_CHARACTERS} characters, this one has {len(query)}: shorten it"
        )
    counts = Counter(analyzer.query_terms(query))
    if len(counts) > MAX_TERMS:
        raise QueryError(
            f"a query may have {MAX_TERMS} distinct terms, this one has {len(counts)}: leave some out"
        )
    return counts


def weigh(counts: Counter[str], chunks: int, frequency_of: Callable[[str], int]) -> list[tuple[str, float]]:
    """Terms that occur in a live chunk, in canonical order, each with ``count in query · idf``."""
    found = sorted((frequency, term) for term in counts if (frequency := frequency_of(term)))
    return [(term, counts[term] * idf(chunks, frequency)) for frequency, term in found]
