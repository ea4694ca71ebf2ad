"""Verifying and comparing as an operator does it: what passes is recorded, and moves the candidate on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tessera.errors import RefusedError
from tessera.generations.cases import CaseSet
from tessera.generations.compare import compare
from tessera.generations.operations import Operator
from tessera.generations.registry import WRITTEN, Evidence
from tessera.generations.report import VerifyReport
from tessera.generations.transitions import known
from tessera.generations.verify import verify
from tessera.search.searcher import Searcher
from tessera.shards.deadletters import all_shards

SAMPLE: Final = 50
"""Documents cut anew by default: a policy applied wrongly shows in each, one lost chunk in the parity."""

Told = Callable[[int, int], None]


def _quiet(_done: int, _total: int) -> None:
    pass


async def verify_candidate(
    operator: Operator, name: str, *, sample: int = SAMPLE, seed: int = 0, on_progress: Told = _quiet
) -> VerifyReport:
    """Verify a generation against the serving one; where it passes, ``building`` becomes ``ready``."""
    registry = await operator.registry()
    generation = known(registry, name)
    if generation.state not in WRITTEN:
        raise RefusedError(
            "state",
            f"{name!r} is {generation.state}: there is nothing to verify",
            "`tessera generation list` shows what is written",
        )
    if generation.state == "serving":
        raise RefusedError(
            "served",
            f"{name!r} is served, and a candidate is verified against it",
            "`tessera generation list` shows the candidates",
        )
    shards = await all_shards(operator.store)
    report = await verify(
        operator.store,
        shards,
        name,
        registry.serving.name,
        sample=sample,
        seed=seed,
        on_progress=on_progress,
    )
    if report.passed and generation.state in ("building", "ready"):
        documents = sum(source.documents for source in report.sources.values())
        note = (
            f"{documents} documents as in {report.baseline}, {report.sampled} cut anew (seed {report.seed})"
        )
        await operator.record_verified(name, report.baseline, note)
    return report


async def compare_candidate(
    operator: Operator,
    searcher: Searcher,
    baseline: str,
    candidate: str,
    cases: CaseSet,
    *,
    expires_s: int | None = None,
    on_progress: Told = _quiet,
) -> tuple[Evidence, bool]:
    """Compare on query cases; evidence, and whether it was recorded.

    It is, where ``candidate`` is verified and ``baseline`` serves: passing, it becomes ``gated``, failing,
    ``ready``. Any two others that are written can be compared for one's own knowledge.
    """
    registry = await operator.registry()
    state = known(registry, candidate).state
    if state == "building":
        raise RefusedError(
            "state",
            f"{candidate!r} is building: what it does not hold yet cannot be found in it",
            f"`tessera generation verify {candidate}` comes first",
        )
    ttl_s = operator.settings.evidence_ttl_s if expires_s is None else expires_s
    evidence = await compare(
        searcher, operator.store, baseline, candidate, cases, operator.now_ms(), ttl_s, on_progress
    )
    recorded = state in ("ready", "gated") and baseline == registry.serving.name
    if recorded:
        await operator.record_compared(candidate, evidence)
    return evidence, recorded
