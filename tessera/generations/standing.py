"""Standing cases: the same questions asked again and again of what is served, as its documents change."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tessera.errors import CaseError, QueryError
from tessera.generations.bootstrap import read_registry
from tessera.generations.cases import Case, CaseSet
from tessera.generations.casework import holds, why_stale
from tessera.search.pinned import PinnedGeneration
from tessera.search.searcher import Searcher
from tessera.store.base import ShardStore


@dataclass(frozen=True, slots=True)
class StandingFigures:
    """How the served generation did. ``stale`` cases speak of what their document no longer says.

    Of the ``live`` ones, the evidence of ``represented`` lies whole in some chunk, of ``retrieved`` in one
    of the first k hits.
    """

    generation: str
    live: int
    stale: int
    represented: int
    retrieved: int


async def measure_standing(searcher: Searcher, store: ShardStore, caseset: CaseSet) -> StandingFigures:
    """Ask the served generation all questions, as the operator, at one moment of it.

    A case that cannot be asked, or that never fitted its document, counts as stale: the others are measured.
    Raises as :meth:`~tessera.search.searcher.Searcher.pinned`.
    """
    serving = (await read_registry(store)).release.generation
    live = stale = represented = retrieved = 0
    async with searcher.pinned([serving]) as views:
        for case in caseset.cases:
            outcome = await _outcome(store, views[serving], case, caseset.k)
            await asyncio.sleep(0)  # queries of others go between
            if outcome is None:
                stale += 1
            else:
                live += 1
                represented += outcome[0]
                retrieved += outcome[1]
    return StandingFigures(serving, live, stale, represented, retrieved)


async def _outcome(
    store: ShardStore, served: PinnedGeneration, case: Case, k: int
) -> tuple[bool, bool] | None:
    """Whether its evidence is represented, and retrieved; None where the case is stale."""
    chunks = served.document(case.source, case.doc_id)
    try:
        if await why_stale(store, case, chunks):
            return None
        hits = served.find(case.question, k)
    except (CaseError, QueryError):
        return None
    return any(holds(case, chunk) for chunk in chunks), any(holds(case, hit) for hit in hits)
