"""Generations and releases as they stand: one value, moved step by step by the control log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from tessera.errors import CorruptionError
from tessera.releases import Contract, Release

FORMAT = 1
"""Written into every stored registry and control record: a build must not guess at what a later one wrote."""

State = Literal["building", "ready", "gated", "serving", "retired", "contracting", "contracted", "abandoned"]

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
    """What a comparison proved, bound to contracts, offsets and the case set.

    It is worth nothing after ``expires_at_ms``. ``offsets`` maps ``topic/partition`` to the applied offset
    both sides were read at. ``figures`` holds the report's figures by name for both sides; ``failed`` names
    thresholds that were not met. Contracts are named by their :attr:`~tessera.releases.Contract.digest`.
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

    def to_value(self) -> dict[str, Any]:
        """The evidence as JSON values."""
        return asdict(self) | {"failed": list(self.failed)}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Evidence:
        """The evidence of :meth:`to_value`; raises as looking up and converting do."""
        return cls(**{**value, "failed": tuple(value["failed"])})


@dataclass(frozen=True, slots=True)
class Waiver:
    """One check of the cutover that an operator overrules, from ``at_ms`` to before ``expires_at_ms``."""

    check: str
    why: str
    actor: str
    at_ms: int
    expires_at_ms: int

    def covers(self, check: str, now_ms: int) -> bool:
        """Whether it overrules this check now. A clock that has jumped behind its beginning ends it too."""
        return check == self.check and self.at_ms <= now_ms < self.expires_at_ms


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
    waiver: Waiver | None = None
    steps: tuple[Step, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """The generation as JSON values."""
        return {
            "name": self.name,
            "contract": self.contract.to_value(),
            "state": self.state,
            "created_at_ms": self.created_at_ms,
            "paused": self.paused,
            "rate": self.rate,
            "hold": self.hold,
            "retain_until_ms": self.retain_until_ms,
            "evidence": self.evidence.to_value() if self.evidence else None,
            "waiver": asdict(self.waiver) if self.waiver else None,
            "steps": [asdict(step) for step in self.steps],
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Generation:
        """The generation of :meth:`to_value`; raises as looking up and converting do."""
        if value["state"] not in get_args(State):
            raise ValueError(f"unknown state {value['state']!r}")
        evidence, waiver = value["evidence"], value["waiver"]
        return cls(
            name=str(value["name"]),
            contract=Contract.from_value(value["contract"]),
            state=value["state"],
            created_at_ms=int(value["created_at_ms"]),
            paused=bool(value["paused"]),
            rate=None if value["rate"] is None else float(value["rate"]),
            hold=str(value["hold"]),
            retain_until_ms=int(value["retain_until_ms"]),
            evidence=Evidence.from_value(evidence) if evidence else None,
            waiver=Waiver(**waiver) if waiver else None,
            steps=tuple(Step(**step) for step in value["steps"]),
        )


@dataclass(frozen=True, slots=True)
class Registry:
    """All generations ever made, the release that is served, and the one before it (to roll back to).

    ``record`` is the id of the control record that made this version, empty for the first: what of the log
    stands behind that record has not been taken into account.
    """

    version: int
    release: Release
    previous: Release | None = None
    generations: Mapping[str, Generation] = field(default_factory=dict)
    record: str = ""

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the generations that every shard writes, sorted."""
        return tuple(sorted(n for n, g in self.generations.items() if g.state in WRITTEN))

    @property
    def last_step_ms(self) -> int:
        """The latest time that a step was recorded at, Unix milliseconds; 0 for none."""
        return max((step.at_ms for each in self.generations.values() for step in each.steps), default=0)

    @property
    def serving(self) -> Generation:
        """The generation that the release names."""
        return self.generations[self.release.generation]

    def to_json(self) -> bytes:
        """Canonical JSON: equal registries give equal bytes."""
        value = {
            "format": FORMAT,
            "version": self.version,
            "record": self.record,
            "release": self.release.to_value(),
            "previous": self.previous.to_value() if self.previous else None,
            "generations": {name: each.to_value() for name, each in self.generations.items()},
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, encoded: bytes) -> Registry:
        """The registry that :meth:`to_json` wrote; :class:`~tessera.errors.CorruptionError` otherwise."""
        try:
            value = json.loads(encoded)
            require_format(value["format"], "the registry of generations")
            previous = value["previous"]
            generations = {name: Generation.from_value(each) for name, each in value["generations"].items()}
            registry = cls(
                version=int(value["version"]),
                release=Release.from_value(value["release"]),
                previous=Release.from_value(previous) if previous else None,
                generations=generations,
                record=str(value["record"]),
            )
            if registry.release.generation not in generations:
                raise ValueError(f"it serves {registry.release.generation!r}, which it does not hold")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise CorruptionError(
                f"the registry of generations cannot be read: {error!r}; restore Redis from a backup"
            ) from error
        return registry


def require_format(found: object, what: str) -> None:
    """Raise :class:`~tessera.errors.CorruptionError` where ``what`` has a format this build cannot read."""
    if found != FORMAT:
        raise CorruptionError(
            f"{what} has format {found!r}, this build reads {FORMAT}: use the build that wrote it"
        )
