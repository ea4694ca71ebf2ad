"""Ranges of characters, per document: half-open spans of code points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Span = tuple[int, int]
Ranges = Mapping[str, Sequence[Span]]
"""Disjoint, rising spans by document."""


def union(spans: Iterable[tuple[str, int, int]]) -> dict[str, list[Span]]:
    """The same characters in disjoint spans; those that touch become one."""
    joined: dict[str, list[Span]] = {}
    for key, start, end in sorted(spans):
        own = joined.setdefault(key, [])
        if own and start <= own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], end))
        else:
            own.append((start, end))
    return joined


def length(ranges: Ranges) -> int:
    """How many characters they hold."""
    return sum(end - start for spans in ranges.values() for start, end in spans)


def shared(some: Ranges, others: Ranges) -> int:
    """How many characters are in both."""
    return sum(
        max(0, min(end, last) - max(start, first))
        for key, spans in some.items()
        for start, end in spans
        for first, last in others.get(key, ())
    )
