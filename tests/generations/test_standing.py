"""Standing cases: counted as a slow look at all texts counts them, and again as documents change."""

from __future__ import annotations

import asyncio

import pytest
from installation import Installation

from tessera.errors import SettingsError
from tessera.generations.cases import Case, CaseSet, evidence_digest
from tessera.generations.standing import StandingFigures, measure_standing
from tessera.search import Searcher
from tessera.store.memory import MemoryStore

TEXT = "# Terms\n\nThe supplier delivers within ten days.\n\nThe buyer pays within thirty days.\n"


def case(name: str, question: str, evidence: str, text: str = TEXT, doc_id: str = "a.md") -> Case:
    start = text.index(evidence)
    return Case(name, question, "handbook", doc_id, start, start + len(evidence), evidence_digest(evidence))


CASES = CaseSet(
    (
        case("found", "when does the buyer pay", "The buyer pays within thirty days."),
        case("not asked for", "zebra", "The supplier delivers within ten days."),
        case("split", "supplier buyer", TEXT[TEXT.index("ten days") : TEXT.index("pays")]),
        case("gone", "buyer", "The buyer", doc_id="b.md"),
        Case("outside", "buyer", "handbook", "a.md", 5_000, 5_001, evidence_digest("x")),
    ),
    {},
    k=3,
)


def test_cases_are_represented_and_retrieved_or_stale_and_again_after_a_change() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.put("a.md", TEXT)
        searcher = Searcher(here.store)
        try:
            assert await measure_standing(searcher, here.store, CASES) == StandingFigures("g1", 3, 2, 2, 1)
            await here.put("a.md", TEXT.replace("thirty", "twenty"))
            assert await measure_standing(searcher, here.store, CASES) == StandingFigures("g1", 2, 3, 1, 0)
        finally:
            await searcher.close()

    asyncio.run(scenario())


def test_where_nothing_is_set_up_it_says_so() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        searcher = Searcher(store)
        with pytest.raises(SettingsError, match="no release is set"):
            await measure_standing(searcher, store, CASES)
        await searcher.close()

    asyncio.run(scenario())
