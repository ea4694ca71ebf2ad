"""Quotes checked against what they are cited from. Pure, and without any judgement of meaning.

A quote is ``supported`` where the cited chunk is current and holds it, verbatim: the same code points.
Nothing is normalized, as ingestion normalizes nothing: line ends, blank space, case and composed characters
count. It is ``stale`` where the cited chunk is no longer current, since its document was changed or deleted
or is cut in another way now. It is ``absent`` where the chunk is current and does not hold it, or was never
heard of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tessera.assembly.passage import Span

Verdict = Literal["supported", "stale", "absent"]
Reason = Literal["held", "changed", "deleted", "generation", "not_in_chunk", "unknown"]


class Judgement(NamedTuple):
    """A verdict and why.

    ``changed``: the document has other content now, ``deleted``: it has none, ``generation``: it is cut by
    another policy in what is served. ``unknown``: there is no such chunk, or the caller may not know of it.
    """

    verdict: Verdict
    reason: Reason


HELD: Final = Judgement("supported", "held")
NOT_IN_CHUNK: Final = Judgement("absent", "not_in_chunk")
UNKNOWN: Final = Judgement("absent", "unknown")
CHANGED: Final = Judgement("stale", "changed")
DELETED: Final = Judgement("stale", "deleted")
GENERATION: Final = Judgement("stale", "generation")


@dataclass(frozen=True, slots=True)
class Citation:
    """What a quote is cited from: a chunk of ``revision``, and the document's digest then, where it is told.

    ``known_policy``: some generation, however long ago, was cut by the policy it names; ``served_policy``:
    the one that is asked is.
    """

    revision: int
    content_digest: str | None
    known_policy: bool
    served_policy: bool


@dataclass(frozen=True, slots=True)
class Current:
    """What is there now of the cited document. ``chunk`` is the text of the cited chunk, None without one."""

    revision: int
    content_digest: str
    deleted: bool = False
    chunk: str | None = None


def judge(quote: str, citation: Citation, current: Current | None) -> Judgement:
    """The judgement of a quote; ``current`` None where there is no document that the caller may know of."""
    if current is None:
        return UNKNOWN
    moved = citation.content_digest not in (None, current.content_digest)
    if current.chunk is not None:
        if quote in current.chunk:
            return HELD
        return CHANGED if moved else NOT_IN_CHUNK
    if not citation.known_policy or citation.revision > current.revision:
        return UNKNOWN
    if current.deleted:
        return DELETED
    if citation.revision < current.revision:
        return CHANGED
    if not citation.served_policy:
        return GENERATION
    return CHANGED if moved else UNKNOWN


def place(quote: str, text: str) -> Span | None:
    """Where ``text`` holds the quote first, in code points, half-open; None where it does not."""
    start = text.find(quote)
    return None if start < 0 else (start, start + len(quote))


def has_evidence(judged: Iterable[tuple[Judgement, float | None]], floor: float | None) -> bool:
    """Whether some quote is supported and scores ``floor`` or more; one without a score reaches no floor."""
    return any(
        judgement.verdict == "supported" and (floor is None or (score is not None and score >= floor))
        for judgement, score in judged
    )
