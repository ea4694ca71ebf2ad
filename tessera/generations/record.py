"""Records of the control log: one step of a generation's life each, asked for by somebody."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

from pydantic import TypeAdapter

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
    "assembly",
    "rollback",
    "hold",
    "release-hold",
    "contract",
    "contracted",
    "abandon",
    "rebuild",
]

MAX_DEPTH: Final = 32
"""Levels of a record: evidence, the deepest, has six. One nested a thousand deep ends whoever reads it."""

_EVIDENCE: Final = TypeAdapter(Evidence)
_WAIVER: Final = TypeAdapter(Waiver)


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One step that an operator asks for, made for the registry's version ``expected``.

    ``id`` tells it from every other record, whoever made it. ``at_ms`` is the operator's clock (Unix
    milliseconds). The rest belongs to single actions: ``contract`` and ``limit`` (how many generations may be
    building at once) to create, ``rate`` to create and rate, ``evidence`` to compared, ``waiver`` to waive,
    ``release`` to cutover and assembly, ``retain_until_ms`` (of the generation that stops serving) to
    cutover. ``note`` says why.
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
        try:
            value = json.loads(encoded, parse_constant=_no_constant)
        except RecursionError as error:
            raise ValueError("it is nested too deeply for a control record") from error
        if not isinstance(value, dict) or "format" not in value:
            raise ValueError("it is not a control record")
        require_format(value["format"], "a record of the control log")
        try:
            _require_shallow(value)
            namespace, record = str(value["namespace"]), _record(value)
            record.to_json(namespace)  # half a character in a text could never be written to the registry
        except (KeyError, TypeError, AttributeError, OverflowError, CorruptionError) as error:
            raise ValueError(f"it is not a control record: {error!r}") from error
        return namespace, record


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
        evidence=Evidence.from_value(_typed(_EVIDENCE, evidence)) if evidence else None,
        waiver=Waiver(**_typed(_WAIVER, waiver)) if waiver else None,
        release=Release.from_value(release) if release else None,
        retain_until_ms=int(value["retain_until_ms"]),
    )


def _typed(adapter: TypeAdapter[Any], value: Any) -> Any:
    """The value, whose fields are of the types they are declared with; ValueError otherwise."""
    adapter.validate_json(json.dumps(value), strict=True)
    return value


def _require_shallow(value: object) -> None:
    """Raise ValueError for what a reader with less room left on its stack could not read again."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise ValueError("it is nested too deeply for a control record")


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")
