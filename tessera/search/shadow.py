"""Shadow reads: a share of live queries is also run on the generation that may be served next.

They run one at a time, behind the live queries and off their path; what they find is counted and thrown away.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tessera.errors import TesseraError
from tessera.search.answer import Answer, Hit
from tessera.search.searcher import Searcher
from tessera.search.snapshot import Found

logger = logging.getLogger(__name__)

QUEUED = 64
"""Shadow reads that may wait. Without a bound, they would go on long after a burst of queries."""

SEED = 7
"""So that two runs of the same load sample the same queries."""

Outcome = Literal["compared", "dropped", "failed"]
Observe = Callable[[Outcome, float | None], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    query: str
    k: int
    principals: frozenset[str] | None
    source: str | None
    answer: Answer


class ShadowReads:
    """Runs a sample, ``share`` (0 to 1), of the queries offered; ``observe`` gets outcome and overlap."""

    def __init__(self, searcher: Searcher, share: float, observe: Observe, seed: int = SEED) -> None:
        self._searcher = searcher
        self._share = share
        self._observe = observe
        self._random = random.Random(seed)  # noqa: S311 - a sample, not a secret
        self._waiting: asyncio.Queue[_Asked] = asyncio.Queue(QUEUED)
        self._told = ""

    def offer(
        self, query: str, k: int, principals: frozenset[str] | None, source: str | None, answer: Answer
    ) -> None:
        """Take note of a query that was answered; waits for nothing."""
        if self._random.random() >= self._share or self._searcher.candidate is None:
            return
        try:
            self._waiting.put_nowait(_Asked(query, k, principals, source, answer))
        except asyncio.QueueFull:
            self._observe("dropped", None)

    async def run(self) -> None:
        """Run what was sampled, until cancelled."""
        while True:
            asked = await self._waiting.get()
            try:
                await self._run(asked)
            finally:
                self._waiting.task_done()

    async def settle(self) -> None:
        """Wait until nothing that was sampled is left to run."""
        await self._waiting.join()

    async def _run(self, asked: _Asked) -> None:
        candidate = self._searcher.candidate
        if candidate is None or candidate == asked.answer.generation:
            return
        try:
            found = await self._searcher.found_in(
                candidate, asked.query, asked.k, asked.principals, asked.source
            )
        except TesseraError as error:
            self._observe("failed", None)
            if str(error) != self._told:
                self._told = str(error)
                logger.warning("shadow reads of generation %s fail: %s", candidate, error)
        else:
            self._observe("compared", overlap(asked.answer.hits, found))


def overlap(hits: Sequence[Hit], found: Sequence[Found]) -> float:
    """The share of hits, on both sides together, that share text with a hit of the other side; 0 to 1.

    Chunks of two policies have no names in common, so what counts is the range of the source: one code point
    of the same document is enough. Where neither side found anything they agree: 1.
    """
    ours = [(hit.source, hit.doc_id, hit.start, hit.end) for hit in hits]
    theirs = []
    for each in found:
        values = each.values()
        theirs.append((each.document.source, each.document.doc_id, values["start"], values["end"]))
    if not ours and not theirs:
        return 1.0
    met = sum(_meets(span, theirs) for span in ours) + sum(_meets(span, ours) for span in theirs)
    return met / (len(ours) + len(theirs))


_Span = tuple[str, str, int, int]


def _meets(span: _Span, others: Sequence[_Span]) -> bool:
    source, doc_id, start, end = span
    return any(
        (source, doc_id) == (other_source, other_id) and start < other_end and other_start < end
        for other_source, other_id, other_start, other_end in others
    )
