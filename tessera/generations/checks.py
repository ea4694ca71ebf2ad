"""What must hold before a release moves to another generation: named checks, each with what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tessera.generations.moments import shown
from tessera.generations.progress import Progress, progress
from tessera.generations.readers import Reader, following, lacking
from tessera.generations.registry import Evidence, Generation, Registry
from tessera.generations.transitions import when_retired
from tessera.settings import Settings
from tessera.shards.status import IndexStatus
from tessera.store.base import Head, ShardId

WAIVABLE: Final = ("documents", "parity", "evidence", "lag", "parse_failures", "dead_letters", "readers")
"""Checks that an operator may overrule. Not those that keep a part of the corpus from being served."""

CLOCK_SKEW_MS: Final = 2_000
"""Clocks of operators' machines differ: evidence made a moment ahead is not from the future."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: whether it passed, what was found, and whether a waiver overrules it."""

    name: str
    passed: bool
    detail: str
    waived: bool = False

    @property
    def stands(self) -> bool:
        """Whether it does not keep the step from being made."""
        return self.passed or self.waived


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything the checks look at, read at one time. ``ends`` are the logs' next offsets, where known."""

    registry: Registry
    index: IndexStatus
    ends: Mapping[ShardId, int]
    broker_trouble: str
    readers: Mapping[str, Reader]
    now_ms: int

    @property
    def shards(self) -> list[ShardId]:
        """All shards, in the order of :attr:`heads`."""
        return [shard.shard for shard in self.index.shards]

    @property
    def heads(self) -> list[Head | None]:
        """Where they stand."""
        return [shard.head for shard in self.index.shards]


def cutover_checks(situation: Situation, candidate: Generation, settings: Settings) -> list[Check]:
    """All checks of a cutover to ``candidate``, waivers in force applied."""
    checks = [
        _state(situation, candidate),
        *shard_checks(situation, candidate.name),
        _documents(situation, candidate.name),
        _evidence(situation.registry, candidate, situation.now_ms),
        _lag(situation, settings.cutover_max_lag),
        _bounded(
            "parse_failures",
            sum(source.parse_failures for source in situation.index.sources.values()),
            settings.cutover_max_parse_failures,
            "documents not in UTF-8",
        ),
        _bounded(
            "dead_letters",
            situation.index.total("waiting_deadletters"),
            settings.cutover_max_dead_letters,
            "waiting dead letters",
        ),
        readers_check(situation.readers, candidate.name),
    ]
    return [waived(check, candidate, situation.now_ms) for check in checks]


def shard_checks(situation: Situation, name: str) -> list[Check]:
    """Whether every shard holds the generation whole, and the same documents as the serving one."""
    serving = situation.registry.serving.name
    found = _progress(situation, name)
    complete = Check("shards", True, f"all {found.shards} shards hold it whole, {found.documents} documents")
    if not found.shards:
        complete = Check("shards", False, "there are no shards yet: start a worker")
    elif not found.done:
        named = ", ".join(map(str, found.missing[:4])) + (" …" if len(found.missing) > 4 else "")
        complete = Check(
            "shards", False, f"{len(found.missing)} of {found.shards} shards do not hold it whole: {named}"
        )
    return [complete, _parity(situation.heads, name, serving)]


def _progress(situation: Situation, name: str) -> Progress:
    serving = situation.registry.serving.name
    return progress(situation.shards, situation.heads, name, serving, situation.now_ms)


def _documents(situation: Situation, name: str) -> Check:
    """Whether there is anything to serve: an index that was emptied has no evidence of what it will hold."""
    standings = [head.standings.get(name) for head in situation.heads if head is not None]
    documents = sum(standing.documents for standing in standings if standing is not None)
    if not documents:
        return Check(
            "documents", False, "it holds no document: nothing was published, or is not read again yet"
        )
    return Check("documents", True, f"it holds {documents:,} documents")


def readers_check(readers: Mapping[str, Reader], name: str) -> Check:
    """Whether every live searcher that will serve the generation has loaded it."""
    followers = following(readers)
    behind = lacking(followers, name)
    if behind:
        return Check("readers", False, f"{len(behind)} of {len(followers)} searchers have not loaded it yet")
    told = f"all {len(followers)} searchers have loaded it" if followers else "no searcher runs"
    return Check("readers", True, told)


def waived(check: Check, candidate: Generation, now_ms: int) -> Check:
    """The check, overruled where the candidate's waiver covers it now."""
    waiver = candidate.waiver
    if check.passed or waiver is None or not waiver.covers(check.name, now_ms):
        return check
    until = shown(waiver.expires_at_ms)
    detail = f"{check.detail}; waived by {waiver.actor} until {until}: {waiver.why}"
    return replace(check, waived=True, detail=detail)


def _state(situation: Situation, candidate: Generation) -> Check:
    name = candidate.name
    filled = _progress(situation, name).done
    detail = {
        "gated": "it is gated",
        "ready": "it is verified, and not gated: see evidence",
        "building": f"it is building and not verified: `tessera generation verify {name}`"
        if filled
        else f"it is building: wait for its backfill (`tessera generation backfill {name}`), then verify it",
        "serving": "it is served already",
        "retired": f"it is retired: {when_retired(situation.registry, name)}",
    }.get(candidate.state, f"it is {candidate.state}, for good")
    return Check("state", candidate.state in ("ready", "gated"), detail)


def _parity(heads: Sequence[Head | None], name: str, serving: str) -> Check:
    differing = []
    for head in heads:
        ours = head.standings.get(name) if head is not None else None
        theirs = head.standings.get(serving) if head is not None else None
        if ours is None or theirs is None:
            continue  # told by the check of shards
        if (ours.documents, ours.fingerprint) != (theirs.documents, theirs.fingerprint):
            differing.append(
                f"{head.shard if head else ''} ({ours.documents} and {theirs.documents} documents)"
            )
    if differing:
        return Check("parity", False, f"{name} and {serving} differ in {', '.join(differing[:4])}")
    return Check("parity", True, f"{name} and {serving} hold the same documents and revisions in every shard")


def _evidence(registry: Registry, candidate: Generation, now_ms: int) -> Check:
    evidence = candidate.evidence
    if evidence is None:
        serving = registry.serving.name
        return Check(
            "evidence", False, f"none: `tessera generation compare {serving} {candidate.name} --cases FILE`"
        )
    against = _why_worthless(evidence, registry.serving, candidate, now_ms)
    if against:
        return Check("evidence", False, f"{against}: compare again")
    until = shown(evidence.expires_at_ms)
    return Check("evidence", True, f"passed against {evidence.baseline}, valid until {until}")


def _why_worthless(evidence: Evidence, serving: Generation, candidate: Generation, now_ms: int) -> str:
    if evidence.baseline != serving.name or evidence.baseline_contract != serving.contract.digest:
        return f"it compares with {evidence.baseline}, and {serving.name} is served"
    if evidence.candidate_contract != candidate.contract.digest:
        return "it is for another contract"
    if evidence.at_ms > now_ms + CLOCK_SKEW_MS:
        return f"it is of {shown(evidence.at_ms)}, which is in the future: set the clocks right"
    if evidence.expires_at_ms <= now_ms:
        return f"it expired at {shown(evidence.expires_at_ms)}"
    if not evidence.passed:
        return f"thresholds not met: {', '.join(evidence.failed) or 'not named'}"
    return ""


def _lag(situation: Situation, bound: int) -> Check:
    if situation.broker_trouble:
        return Check("lag", False, f"not known: {situation.broker_trouble}")
    lags = {
        status.shard: max(0, situation.ends[status.shard] - status.applied - 1)
        for status in situation.index.shards
    }
    worst = max(lags.values(), default=0)
    behind = [str(shard) for shard, lag in lags.items() if lag > bound]
    if behind:
        return Check(
            "lag", False, f"up to {worst:,} records behind, at most {bound:,}: {', '.join(behind[:4])}"
        )
    return Check("lag", True, f"at most {worst:,} records behind, {bound:,} allowed")


def _bounded(name: str, found: int, bound: int, what: str) -> Check:
    return Check(name, found <= bound, f"{found:,} {what}, at most {bound:,} allowed")
