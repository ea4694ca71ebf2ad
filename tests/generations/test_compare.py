from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from dual_index import DOCUMENTS, DualIndex
from hypothesis import given
from hypothesis import strategies as st

from tessera.documents.digests import document_digest
from tessera.errors import CaseError, QueryError, RefusedError
from tessera.generations import compare as comparison
from tessera.generations.bootstrap import read_registry
from tessera.generations.cases import Case, CaseSet, evidence_digest
from tessera.generations.compare import compare, rank_change
from tessera.generations.registry import Evidence
from tessera.search.searcher import Searcher
from tessera.store.base import ShardId

TEXTS = {
    "law/terms.md": "# Terms\n\nThe agreement renews every twelve months unless notice is given.\n",
    "law/notice.md": "# Notice\n\nNotice is given thirty days before the end.\n",
    "people/leave.md": "# Leave\n\nFive unused days of leave move into the next year.\n",
    "readme.md": "Everything about terms, notice and leave.\n",
}
NOW_MS = 1_800_000_000_000


def case(name: str, question: str, doc_id: str, evidence: str) -> Case:
    start = TEXTS[doc_id].index(evidence)
    return Case(name, question, "handbook", doc_id, start, start + len(evidence), evidence_digest(evidence))


RENEWS = case(
    "renews",
    "how often does the agreement renew: every twelve months?",
    "law/terms.md",
    "every twelve months",
)
WHOLE = case(
    "whole",
    "agreement renews every twelve months",
    "law/terms.md",
    "The agreement renews every twelve months unless notice is given.",
)
NOTICE = case("notice", "thirty days notice before the end", "law/notice.md", "thirty days")
LEAVE = case("leave", "unused days of leave", "people/leave.md", "Five unused days")
README = case("readme", "everything about terms", "readme.md", "Everything about terms")
CASES = (RENEWS, WHOLE, NOTICE, LEAVE, README)


async def filled() -> DualIndex:
    index = await DualIndex().open()
    for doc_id, text in TEXTS.items():
        await index.put(doc_id, text)
    await index.add_candidate()
    return index


def compared(
    cases: tuple[Case, ...] = CASES,
    change: Callable[[DualIndex], Awaitable[None]] | None = None,
    k: int = 3,
    ttl_s: float = 60,
    **thresholds: float,
) -> Evidence:
    async def run() -> Evidence:
        index = await filled()
        if change:
            await change(index)
        searcher = Searcher(index.store)
        caseset = CaseSet(cases, thresholds or {"min_recall": 0.0}, k)
        try:
            return await compare(searcher, index.store, "g1", "g2", caseset, NOW_MS, ttl_s)
        finally:
            await searcher.close()

    return asyncio.run(run())


def test_evidence_is_bound_to_contracts_offsets_and_cases_and_expires() -> None:
    async def run() -> None:
        index = await filled()
        generations = (await read_registry(index.store)).generations
        searcher = Searcher(index.store)
        caseset = CaseSet(CASES, {"min_recall": 0.0}, 3)
        steps: list[tuple[int, int]] = []
        evidence = await compare(
            searcher, index.store, "g1", "g2", caseset, NOW_MS, 1.5, lambda *step: steps.append(step)
        )
        await searcher.close()
        assert evidence.baseline == "g1"
        assert evidence.baseline_contract == generations["g1"].contract.digest
        assert evidence.candidate_contract == generations["g2"].contract.digest
        assert evidence.cases_digest == caseset.digest
        assert evidence.offsets == {"tessera.documents/0": 3, "tessera.logs/0": -1}
        assert (evidence.at_ms, evidence.expires_at_ms) == (NOW_MS, NOW_MS + 1500)
        assert steps == [(n, 5) for n in range(6)]
        assert Evidence.from_value(json.loads(json.dumps(evidence.to_value()))) == evidence

    asyncio.run(run())


def test_what_a_window_tears_apart_is_not_represented_and_not_found() -> None:
    figures = compared().figures
    assert figures["cases"] == 5
    assert figures["baseline"]["representability"] == figures["baseline"]["recall"] == 1.0
    assert figures["candidate"]["representability"] == 0.8
    assert figures["candidate"]["recall"] == 0.8
    assert {"id": "whole", "baseline": 1, "candidate": None} in figures["rank_changes"]


def test_ranks_move_by_family_of_documents() -> None:
    families = compared().figures["families"]
    assert sorted(families) == ["handbook", "handbook/law", "handbook/people"]
    assert families["handbook/law"]["cases"] == 3
    assert families["handbook/law"]["lost"] == 1
    assert families["handbook/people"] == {
        "cases": 1,
        "found": 0,
        "better": 0,
        "same": 1,
        "worse": 0,
        "lost": 0,
    }


def test_figures_of_known_ranks_are_as_defined() -> None:
    sides = [comparison.Side(True, rank, 0.001 * n) for n, rank in enumerate((1, 2, None, 4), 1)]
    sides[2] = replace(sides[2], represented=False)
    assert comparison._side_figures(sides) == {
        "representability": 0.75,
        "recall": 0.75,
        "mrr": (1 + 1 / 2 + 1 / 4) / 4,
        "latency_ms": {"p50": 2.0, "p99": 4.0},
    }


@given(st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
def test_a_rank_beyond_the_first_k_is_worse_than_any(before: int | None, after: int | None) -> None:
    worst = 99
    sign = (after or worst) - (before or worst)
    expected = "same" if not sign else "better" if sign < 0 else "worse"
    expected = {(True, False): "found", (False, True): "lost"}.get((before is None, after is None), expected)
    assert rank_change(before, after) == expected


@pytest.mark.parametrize(
    ("thresholds", "failed"),
    [
        ({"min_representability": 0.8, "min_recall": 0.8, "max_recall_drop": 0.2}, ()),
        ({"min_representability": 0.81}, ("min_representability",)),
        ({"min_recall": 0.81, "max_recall_drop": 0.19}, ("min_recall", "max_recall_drop")),
        ({"min_mrr": 1.0}, ("min_mrr",)),
        ({"max_mrr_drop": 0.0}, ("max_mrr_drop",)),
        ({"max_latency_ratio": 0.001}, ("max_latency_ratio",)),
        ({"max_latency_ratio": 1000.0, "max_stale_share": 0.0}, ()),
    ],
)
def test_thresholds_that_are_not_met_are_named(thresholds: dict[str, float], failed: tuple[str, ...]) -> None:
    evidence = compared(**thresholds)
    assert evidence.failed == failed
    assert evidence.passed is not bool(failed)
    assert {name for name, check in evidence.figures["checks"].items() if not check["met"]} == set(failed)


def test_a_drop_is_not_made_greater_by_binary_fractions() -> None:
    figures = {
        "cases": 10,
        "stale": 0,
        "baseline": {"representability": 1, "recall": 0.8, "mrr": 0.3, "latency_ms": {"p99": 0.1}},
        "candidate": {"representability": 1, "recall": 0.7, "mrr": 0.2, "latency_ms": {"p99": 4.9}},
    }
    limits = {"max_recall_drop": 0.1, "max_mrr_drop": 0.1, "max_latency_ratio": 1.0}
    assert all(check["met"] for check in comparison._checks(figures, limits).values())


def test_stale_cases_are_reported_and_count_on_neither_side() -> None:
    async def edit(index: DualIndex) -> None:
        await index.put("law/terms.md", TEXTS["law/terms.md"].replace("twelve", "eleven"))
        await index.delete("readme.md")

    evidence = compared(change=edit, min_recall=1.0, max_stale_share=0.6)
    assert evidence.passed
    assert evidence.figures["stale_cases"] == {
        "renews": "the document says something else there now",
        "whole": "the document says something else there now",
        "readme": "the document is not held",
    }
    assert (evidence.figures["cases"], evidence.figures["stale"]) == (2, 3)
    assert compared(change=edit, max_stale_share=0.5).failed == ("max_stale_share",)


def test_nothing_but_stale_cases_proves_nothing() -> None:
    async def delete(index: DualIndex) -> None:
        await index.delete("readme.md")

    evidence = compared((README,), delete, max_stale_share=1.0, max_recall_drop=1.0)
    assert not evidence.passed
    assert evidence.failed == ("live_cases",)


def test_a_span_outside_its_document_is_refused_by_case() -> None:
    outside = replace(README, end=43, start=42)
    with pytest.raises(
        CaseError, match=r"case 'readme': its span 42 to 43 .* handbook/readme.md, which has 42"
    ):
        compared((outside,))
    assert compared((replace(README, end=42),)).figures["stale"] == 1


def test_a_span_that_fitted_the_content_it_was_taken_from_is_stale_in_a_shorter_document() -> None:
    async def shorten(index: DualIndex) -> None:
        await index.put("readme.md", "Everything.\n")

    taken_from = replace(README, content_digest=document_digest(TEXTS["readme.md"]))
    assert compared((taken_from, NOTICE), shorten).figures["stale_cases"] == {
        "readme": "the document has only 12 characters now"
    }
    with pytest.raises(CaseError, match=r"has 12 characters.* with the content_digest of the document"):
        compared((README, NOTICE), shorten)
    never_fitted = replace(taken_from, end=43, start=42)
    with pytest.raises(CaseError, match=r"which has 42 characters: mend the case or take it out$"):
        compared((never_fitted,))


def test_a_question_that_cannot_be_asked_is_refused_by_case() -> None:
    with pytest.raises(CaseError, match=r"case 'readme': its question cannot be asked: .*64"):
        compared((replace(README, question=" ".join(f"w{n}" for n in range(65))),))


def test_both_sides_are_asked_at_the_same_offsets_while_documents_change() -> None:
    async def run() -> None:
        index = await filled()
        searcher = Searcher(index.store)
        real = index.store.blobs

        async def busy(shard: ShardId, ids: Sequence[str]) -> Any:
            if any(name.startswith("text/") for name in ids):
                await index.put("law/new.md", "thirty days notice before the end, and thirty days more\n" * 3)
            return await real(shard, ids)

        index.store.blobs = busy  # type: ignore[method-assign]
        caseset = CaseSet(CASES, {"min_recall": 0.0}, 1)
        evidence = await compare(searcher, index.store, "g1", "g2", caseset, NOW_MS, 60)
        await searcher.close()
        assert index.offsets[DOCUMENTS] > evidence.offsets["tessera.documents/0"] + len(CASES)
        for name in ("cases", "stale", "families", "rank_changes"):
            assert evidence.figures[name] == undisturbed.figures[name]

    undisturbed = compared(k=1)
    asyncio.run(run())


def test_generations_that_cannot_be_compared_are_refused() -> None:
    async def run() -> None:
        index = await filled()
        searcher = Searcher(index.store)
        caseset = CaseSet(CASES, {"min_recall": 0.8})
        with pytest.raises(RefusedError, match="compared with itself"):
            await compare(searcher, index.store, "g1", "g1", caseset, NOW_MS, 60)
        with pytest.raises(RefusedError, match=r"no generation 'g9'.*g1, g2"):
            await compare(searcher, index.store, "g1", "g9", caseset, NOW_MS, 60)
        await searcher.close()

        index = await DualIndex().open()
        await index.put("readme.md", TEXTS["readme.md"])
        await index.add_candidate(backfill=False)
        searcher = Searcher(index.store)
        with pytest.raises(QueryError, match="g2"):
            await compare(searcher, index.store, "g1", "g2", caseset, NOW_MS, 60)
        await searcher.close()

    asyncio.run(run())


def test_evidence_names_no_more_families_than_it_has_room_for() -> None:
    side = comparison.Side(True, 1, 0.1)
    digest = evidence_digest("e")
    outcomes = [
        comparison.Outcome(Case(f"c{n}", "q", "handbook", f"folder-{n}/a.md", 0, 1, digest), "", side, side)
        for n in range(comparison.SHOWN + 30)
    ]
    families = comparison._figures(outcomes, 10)["families"]
    assert len(families) == comparison.SHOWN + 1
    assert families[comparison.OTHERS]["cases"] == families[comparison.OTHERS]["same"] == 30
