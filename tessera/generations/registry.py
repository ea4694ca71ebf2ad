"""Generations and releases as they stand: one value, moved step by step by the control log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tessera.releases import Contract, Release

State = Literal[
    "building", "ready", "gated", "serving", "retired", "contracting", "contracted", "abandoned"
]

WRITTEN: tuple[State, ...] = ("building", "ready", "gated", "serving", "retired")
"""States whose generations every shard writes."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a generation's life, as the control log has it: Unix milliseconds, action, who, and why."""

    at_ms: int
    action: str
    actor: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a comparison proved, bound to contracts, offsets and the case set; worthless after ``expires_at_ms``.

    ``offsets`` maps ``topic/partition`` to the applied offset both sides were read at. ``figures`` holds the
    report's figures by name for both sides; ``failed`` names thresholds that were not met.
    """

    baseline: str
    baseline_contract: str
    candidate_contract: str
    cases_digest: str
    offsets: Mapping[str, int]
    passed: bool
    failed: tuple[str, ...]
    figures: Mapping[str, Any]
    at_ms: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: a contract that never changes, and where it is in its life.

    ``rate`` bounds its backfill in documents a second and shard, None for no bound. ``hold`` is why it may
    not be contracted, empty for no hold. ``retain_until_ms`` is when it may be contracted at the earliest.
    """

    name: str
    contract: Contract
    state: State
    created_at_ms: int = 0
    paused: bool = False
    rate: float | None = None
    hold: str = ""
    retain_until_ms: int = 0
    evidence: Evidence | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Registry:
    """All generations ever made, the release that is served, and the one before it (to roll back to)."""

    version: int
    release: Release
    previous: Release | None = None
    generations: Mapping[str, Generation] = field(default_factory=dict)

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the generations that every shard writes, sorted."""
        return tuple(sorted(n for n, g in self.generations.items() if g.state in WRITTEN))
