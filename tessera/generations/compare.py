"""Comparing two generations on the same questions at the same offsets: the evidence that opens the gate.

Figures of each side, over the cases that are not stale:

* ``representability``: share of cases whose evidence lies whole in some chunk of its document. What is not
  represented cannot be retrieved by any ranking.
* ``recall``: share of cases whose evidence lies whole in one of the first k hits (recall@k).
* ``mrr``: mean of 1 / rank of the first such hit, 0 where there is none among the k (mean reciprocal rank).
* ``latency_ms``: p50 and p99 (nearest rank) of a question's time, texts of its hits included.

A case is stale where its evidence is no longer what the document says at its place, or the document is gone;
it is reported and counts on neither side. A span that the document has no room for is a fault of the file,
unless the case names the content it was taken from, and the document has another one by now.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tessera.errors import CaseError, QueryError, RefusedError, StaleSnapshotError
from tessera.generations.bootstrap import read_registry
from tessera.generations.cases import Case, CaseSet
from tessera.generations.casework import holds, why_stale
from tessera.generations.registry import Evidence
from tessera.search.pinned import PinnedGeneration
from tessera.search.searcher import Searcher
from tessera.search.snapshot import Found
from tessera.store.base import ShardStore

LATENCY_FLOOR_MS: Final = 5.0
"""Latencies below count as this in a ratio: of a fraction of a millisecond it would measure the machine."""

SHOWN: Final = 100
"""Cases, and families of documents, named in the evidence: every worker reads the registry that holds it, and
where a broker refuses its record for its size, the comparison was made for nothing."""

OTHERS: Final = "(others)"
"""Stands for all families beyond :data:`SHOWN`; no source is called so."""

DIGITS: Final = 9
"""Figures are rounded to these, so that 0.8 - 0.7 is no more than a drop of 0.1."""


@dataclass(frozen=True, slots=True)
class Side:
    """How one generation did on one case; ``rank`` counts from 1, None where no hit holds the evidence."""

    represented: bool
    rank: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case on both sides. ``stale`` says why it does not count, empty where it does."""

    case: Case
    stale: str = ""
    baseline: Side | None = None
    candidate: Side | None = None


async def compare(
    searcher: Searcher,
    store: ShardStore,
    baseline: str,
    candidate: str,
    caseset: CaseSet,
    now_ms: int,
    ttl_s: float,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Evidence:
    """Ask both generations all questions, as the operator, and say whether the thresholds are met.

    ``on_progress`` is told cases done and cases in all. Raises :class:`~tessera.errors.CaseError` for a case
    that cannot be asked or whose span is outside its document, :class:`~tessera.errors.RefusedError` where
    there is no such generation, and as :meth:`~tessera.search.searcher.Searcher.pinned`.
    """
    if candidate == baseline:
        raise RefusedError("same_generation", f"{candidate} cannot be compared with itself", "name two")
    registry = await read_registry(store)
    for name in (baseline, candidate):
        if name not in registry.generations:
            known = ", ".join(sorted(registry.generations))
            raise RefusedError("unknown", f"there is no generation {name[:100]!r}", f"there are {known}")
    outcomes = []
    async with searcher.pinned([baseline, candidate]) as views:
        sides = (views[baseline], views[candidate])
        for done, case in enumerate(caseset.cases):
            on_progress(done, len(caseset.cases))
            outcomes.append(await _outcome(store, case, caseset.k, sides, done % 2 == 1))
        offsets = sides[0].as_of
    on_progress(len(caseset.cases), len(caseset.cases))
    figures = _figures(outcomes, caseset.k)
    checks = _checks(figures, caseset.thresholds)
    failed = tuple(name for name, check in checks.items() if not check["met"])
    if not figures["cases"]:
        failed = (*failed, "live_cases")
    return Evidence(
        baseline,
        registry.generations[baseline].contract.digest,
        registry.generations[candidate].contract.digest,
        caseset.digest,
        offsets,
        passed=not failed,
        failed=failed,
        figures={**figures, "checks": checks},
        at_ms=now_ms,
        expires_at_ms=now_ms + round(ttl_s * 1000),
    )


async def _outcome(
    store: ShardStore, case: Case, k: int, sides: tuple[PinnedGeneration, PinnedGeneration], swapped: bool
) -> Outcome:
    """One case on both sides, the candidate first where ``swapped``: neither is always the warmed one."""
    chunks = [side.document(case.source, case.doc_id) for side in sides]
    stale = await why_stale(store, case, chunks[0] or chunks[1])
    if stale:
        return Outcome(case, stale)
    found: dict[int, Side] = {}
    for number in (1, 0) if swapped else (0, 1):
        represented = any(holds(case, chunk) for chunk in chunks[number])
        hits, seconds = await _asked(sides[number], case, k)
        rank = next((rank for rank, hit in enumerate(hits, 1) if holds(case, hit)), None)
        found[number] = Side(represented, rank, seconds)
    return Outcome(case, "", found[0], found[1])


async def _asked(side: PinnedGeneration, case: Case, k: int) -> tuple[list[Found], float]:
    """Hits and seconds of the second of two runs: the first pays for what both sides find in caches."""
    hits: list[Found] = []
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        try:
            hits = side.find(case.question, k)
        except QueryError as error:
            raise CaseError(f"case {case.id!r}: its question cannot be asked: {error}") from error
        # A hit's document may be deleted since; its text is gone then, and its rank is still the pinned one.
        with suppress(StaleSnapshotError):
            await side.texts(hits)
        seconds = time.perf_counter() - began
    return hits, seconds


def _figures(outcomes: Sequence[Outcome], k: int) -> dict[str, Any]:
    live = [outcome for outcome in outcomes if not outcome.stale]
    stale = {outcome.case.id: outcome.stale for outcome in outcomes if outcome.stale}
    changed = [
        {"id": outcome.case.id, "baseline": outcome.baseline.rank, "candidate": outcome.candidate.rank}
        for outcome in live
        if outcome.baseline and outcome.candidate and outcome.baseline.rank != outcome.candidate.rank
    ]
    return {
        "k": k,
        "cases": len(live),
        "stale": len(stale),
        "stale_cases": dict(list(stale.items())[:SHOWN]),
        "baseline": _side_figures([outcome.baseline for outcome in live if outcome.baseline]),
        "candidate": _side_figures([outcome.candidate for outcome in live if outcome.candidate]),
        "families": _families(live),
        "rank_changes": changed[:SHOWN],
    }


def _side_figures(sides: Sequence[Side]) -> dict[str, Any]:
    latencies = sorted(side.seconds * 1000 for side in sides)
    return {
        "representability": _mean(float(side.represented) for side in sides),
        "recall": _mean(float(side.rank is not None) for side in sides),
        "mrr": _mean(_reciprocal(side.rank) for side in sides),
        "latency_ms": {"p50": _percentile(latencies, 0.5), "p99": _percentile(latencies, 0.99)},
    }


def _families(live: Iterable[Outcome]) -> dict[str, dict[str, Any]]:
    """How ranks moved by family of documents."""
    families: dict[str, Counter[str]] = {}
    for outcome in live:
        assert outcome.baseline is not None
        assert outcome.candidate is not None
        counts = families.setdefault(outcome.case.group, Counter())
        counts["cases"] += 1
        counts[rank_change(outcome.baseline.rank, outcome.candidate.rank)] += 1
    largest = sorted(families.items(), key=lambda each: (-each[1]["cases"], each[0]))
    shown = dict(largest[:SHOWN])
    if len(largest) > SHOWN:
        shown[OTHERS] = Counter()
        for _, counts in largest[SHOWN:]:
            shown[OTHERS].update(counts)
    kinds = ("cases", "found", "better", "same", "worse", "lost")
    return {family: {kind: counts[kind] for kind in kinds} for family, counts in sorted(shown.items())}


def rank_change(before: int | None, after: int | None) -> str:
    """``found``, ``better``, ``same``, ``worse`` or ``lost``; None is a rank beyond the first k."""
    if before == after:
        return "same"
    if before is None:
        return "found"
    if after is None:
        return "lost"
    return "better" if after < before else "worse"


def _checks(figures: Mapping[str, Any], thresholds: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """What each threshold demands and what was measured."""
    ours, theirs = figures["baseline"], figures["candidate"]
    before_ms, after_ms = (max(side["latency_ms"]["p99"], LATENCY_FLOOR_MS) for side in (ours, theirs))
    every = figures["cases"] + figures["stale"]
    measured = {
        "min_representability": theirs["representability"],
        "min_recall": theirs["recall"],
        "max_recall_drop": ours["recall"] - theirs["recall"],
        "min_mrr": theirs["mrr"],
        "max_mrr_drop": ours["mrr"] - theirs["mrr"],
        "max_latency_ratio": after_ms / before_ms,
        "max_stale_share": figures["stale"] / every if every else 0.0,
    }
    checks = {}
    for name, limit in thresholds.items():
        value = round(measured[name], DIGITS)
        met = value >= limit if name.startswith("min_") else value <= limit
        checks[name] = {"limit": limit, "measured": value, "met": met}
    return checks


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return round(math.fsum(values) / len(values), DIGITS) if values else 0.0


def _reciprocal(rank: int | None) -> float:
    return 0.0 if rank is None else 1 / rank


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank: the least value that ``share`` of all are not above."""
    return round(ordered[math.ceil(share * len(ordered)) - 1], 3) if ordered else 0.0
