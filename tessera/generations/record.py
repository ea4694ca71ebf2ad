"""Records of the control log: one step of a generation's life each, asked for by somebody."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from tessera.errors import CorruptionError
from tessera.generations.registry import FORMAT, Evidence, Waiver, require_format
from tessera.releases import Contract, Release

Action = Literal[
    "create",
    "rate",
    "pause",
    "resume",
    "verified",
    "compared",
    "waive",
    "cutover",
    "rollback",
    "hold",
    "release-hold",
    "contract",
    "contracted",
    "abandon",
]


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One step that an operator asks for, made for the registry's version ``expected``.

    ``id`` tells it from every other record, whoever made it. ``at_ms`` is the operator's clock (Unix
    milliseconds). The rest belongs to single actions: ``contract`` and ``limit`` (how many generations may be
    building at once) to create, ``rate`` to create and rate, ``evidence`` to compared, ``waiver`` to waive,
    ``release`` and ``retain_until_ms`` (of the generation that stops serving) to cutover. ``note`` says why.
    """

    action: Action
    generation: str
    expected: int
    actor: str
    at_ms: int
    id: str
    note: str = ""
    contract: Contract | None = None
    limit: int = 1
    rate: float | None = None
    evidence: Evidence | None = None
    waiver: Waiver | None = None
    release: Release | None = None
    retain_until_ms: int = 0

    def to_json(self, namespace: str) -> bytes:
        """The record's value on the control topic; ``namespace`` names the installation it belongs to."""
        value = {
            "format": FORMAT,
            "namespace": namespace,
            "action": self.action,
            "generation": self.generation,
            "expected": self.expected,
            "actor": self.actor,
            "at_ms": self.at_ms,
            "id": self.id,
            "note": self.note,
            "contract": self.contract.to_value() if self.contract else None,
            "limit": self.limit,
            "rate": self.rate,
            "evidence": self.evidence.to_value() if self.evidence else None,
            "waiver": asdict(self.waiver) if self.waiver else None,
            "release": self.release.to_value() if self.release else None,
            "retain_until_ms": self.retain_until_ms,
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, encoded: bytes) -> tuple[str, ControlRecord]:
        """Namespace and record as :meth:`to_json` wrote them.

        :class:`~tessera.errors.CorruptionError` for the format of a later build, ValueError for anything
        that is no control record at all.
        """
        value = json.loads(encoded)
        if not isinstance(value, dict) or "format" not in value:
            raise ValueError("it is not a control record")
        require_format(value["format"], "a record of the control log")
        try:
            return str(value["namespace"]), _record(value)
        except (KeyError, TypeError, AttributeError, CorruptionError) as error:
            raise ValueError(f"it is not a control record: {error!r}") from error


def _record(value: Mapping[str, Any]) -> ControlRecord:
    if value["action"] not in get_args(Action):
        raise ValueError(f"unknown action {value['action']!r}")
    contract, evidence = value["contract"], value["evidence"]
    waiver, release = value["waiver"], value["release"]
    return ControlRecord(
        action=value["action"],
        generation=str(value["generation"]),
        expected=int(value["expected"]),
        actor=str(value["actor"]),
        at_ms=int(value["at_ms"]),
        id=str(value["id"]),
        note=str(value["note"]),
        contract=Contract.from_value(contract) if contract else None,
        limit=int(value["limit"]),
        rate=None if value["rate"] is None else float(value["rate"]),
        evidence=Evidence.from_value(evidence) if evidence else None,
        waiver=Waiver(**waiver) if waiver else None,
        release=Release.from_value(release) if release else None,
        retain_until_ms=int(value["retain_until_ms"]),
    )
