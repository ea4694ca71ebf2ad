"""Generations as JSON values, for people and machines: what they are, and how the shards stand with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tessera.generations.progress import Progress, progress
from tessera.generations.registry import WRITTEN, Generation, Registry
from tessera.shards.status import IndexStatus


def described(registry: Registry, index: IndexStatus, now_ms: int) -> list[dict[str, Any]]:
    """All generations ever made, the oldest first."""
    by_age = sorted(registry.generations.values(), key=lambda each: (each.created_at_ms, each.name))
    return [summary(each, registry, index, now_ms) for each in by_age]


def summary(generation: Generation, registry: Registry, index: IndexStatus, now_ms: int) -> dict[str, Any]:
    """One generation in short. ``progress`` is None where it is no longer written."""
    name = generation.name
    sources = index.sources.values()
    written = generation.state in WRITTEN
    return {
        "generation": name,
        "state": generation.state,
        "serving": name == registry.release.generation,
        "policy": generation.contract.policy_id,
        "analyzer": generation.contract.analyzer,
        "embedding": generation.contract.embedding,
        "contract": generation.contract.digest,
        "created_at_ms": generation.created_at_ms,
        "paused": generation.paused,
        "rate": generation.rate,
        "hold": generation.hold,
        "retain_until_ms": generation.retain_until_ms,
        **_release(name, registry),
        "chunks": sum(source.chunks.get(name, 0) for source in sources),
        "uncovered": sum(source.uncovered.get(name, 0) for source in sources),
        "segments": sum(each.segments[name].count for each in index.shards if name in each.segments),
        "stored_chunks": sum(each.segments[name].chunks for each in index.shards if name in each.segments),
        "parity": _parity(index, name, registry.release.generation) if written else None,
        "evidence_expires_at_ms": generation.evidence.expires_at_ms if generation.evidence else None,
        "progress": _progress(_found(name, registry, index, now_ms)) if written else None,
    }


def detail(generation: Generation, registry: Registry, index: IndexStatus, now_ms: int) -> dict[str, Any]:
    """One generation with its policy, evidence, waiver, every step of its life, and each shard's standing."""
    standings = {
        str(status.shard): asdict(status.head.standings[generation.name])
        for status in index.shards
        if status.head is not None and generation.name in status.head.standings
    }
    return {
        **summary(generation, registry, index, now_ms),
        "policy_canonical": dict(generation.contract.policy_canonical),
        "evidence": generation.evidence.to_value() if generation.evidence else None,
        "waiver": asdict(generation.waiver) if generation.waiver else None,
        "steps": [asdict(step) for step in generation.steps],
        "shards": standings,
    }


def _parity(index: IndexStatus, name: str, serving: str) -> bool:
    """Whether every shard holds the same documents and revisions in it as in the serving one."""
    heads = [status.head for status in index.shards]
    standings = [
        (head.standings.get(name), head.standings.get(serving)) for head in heads if head is not None
    ]
    return len(standings) == len(heads) and all(
        ours is not None
        and theirs is not None
        and (ours.documents, ours.fingerprint) == (theirs.documents, theirs.fingerprint)
        for ours, theirs in standings
    )


def _release(name: str, registry: Registry) -> dict[str, str | None]:
    """The release that serves the generation, or that a rollback would serve; None where neither does."""
    releases = (registry.release, registry.previous)
    found = next((each for each in releases if each is not None and each.generation == name), None)
    return {
        "release": found.release if found else None,
        "assembly": found.context_assembly.id if found else None,
    }


def _found(name: str, registry: Registry, index: IndexStatus, now_ms: int) -> Progress:
    shards = [status.shard for status in index.shards]
    heads = [status.head for status in index.shards]
    return progress(shards, heads, name, registry.release.generation, now_ms)


def _progress(found: Progress) -> dict[str, Any]:
    return {
        "documents": found.documents,
        "of": found.of,
        "shards_complete": found.complete,
        "shards": found.shards,
        "eta_s": found.eta_s,
        "notes": found.notes,
    }
