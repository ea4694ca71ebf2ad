"""The plan of a lab run: a TOML file that names documents, questions, candidate policies, and gates.

    documents = ["handbook", {source = "manual", path = "manual"}]
    questions = "questions.jsonl"
    analyzer = "words"
    k = 10
    budgets = [150, 300]
    assembly = ["joined", "sentences"]

    [[policies]]
    policy = "paragraph"

    [gates]
    min_recall = 0.8

Paths are relative to the file. A key that is not known is refused: nothing in the file goes unheeded.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tessera.assembly.assembly import ASSEMBLIES, Assembly, assembly_named
from tessera.errors import PlanError, PolicyError
from tessera.events.change import SourceKind
from tessera.generations.cases import MAX_K
from tessera.index.analyzer import ANALYZERS
from tessera.policies import BUILT_IN, ChunkPolicy, load_policy
from tessera.sources.bundled import BUNDLED

_STRICT = ConfigDict(strict=True, extra="forbid")

RetrieverName = Literal["tessera", "rank-bm25"]
SHARES: Final = ("min_representability", "min_recall", "min_context_recall")
"""What a gate can demand, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class FolderOfDocuments:
    """A folder, relative to the plan: the documents of ``source``, as ``tessera ingest`` would find them.

    ``only`` holds globs on the documents' ids; empty: all.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    source: str
    path: str
    kind: SourceKind = "documents"
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy: a built-in name, or a TOML file relative to the plan."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    policy: str


@dataclass(frozen=True, slots=True)
class Gates:
    """What policies must reach; None demands nothing.

    ``policies``, ``assembly`` and ``budgets`` say where it is demanded; empty: everywhere.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    min_representability: float | None = None
    min_recall: float | None = None
    min_context_recall: float | None = None
    policies: tuple[str, ...] = ()
    assembly: tuple[str, ...] = ()
    budgets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per million tokens of ``words@1``, and where they are from: an assumption, stated as such."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    currency: str
    assumption: str
    per_million_indexed_tokens: float = 0.0
    per_million_context_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanFile:
    """The file as it stands."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    documents: tuple[str | FolderOfDocuments, ...]
    questions: str
    policies: tuple[Candidate, ...]
    analyzer: str = "words"
    k: int = 10
    budgets: tuple[int, ...] = (300,)
    assembly: str | tuple[str, ...] = "joined"
    gates: Gates = field(default_factory=Gates)
    cost: Prices | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does. ``folder`` is the plan's own; budgets are in tokens of ``words@1``, rising."""

    where: str
    folder: Path
    documents: tuple[str | FolderOfDocuments, ...]
    questions: Path
    policies: tuple[ChunkPolicy, ...]
    analyzer: str
    k: int
    budgets: tuple[int, ...]
    assemblies: tuple[Assembly, ...]
    gates: Gates
    prices: Prices | None
    retriever: RetrieverName = "tessera"


def load_plan(path: Path, budgets: Sequence[int] = (), retriever: RetrieverName = "tessera") -> Plan:
    """The plan of a TOML file; ``budgets``, where given, stand in for those of the file.

    :class:`~tessera.errors.PlanError` names file and key, and what to do.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror}): give a plan, a TOML file") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: is not UTF-8 ({error}): save it as UTF-8") from error
    found = _parsed(text, str(path))
    if budgets:
        found = replace(found, budgets=tuple(budgets))
    return _checked(found, path, retriever)


def _parsed(text: str, where: str) -> PlanFile:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{where}: cannot be read as TOML: {error}") from error
    try:
        return _adapter().validate_json(json.dumps(values))
    except TypeError as error:
        raise PlanError(f"{where}: holds a date or a time, which no key takes: take it out") from error
    except ValidationError as error:
        # Where one of several forms may stand, each tells why it is not that one: the deepest is meant.
        # And what is missing may stand there under a mistyped name, which tells more.
        told = error.errors(include_url=False, include_input=False)
        first = max(told, key=lambda each: (len(each["loc"]), each["type"] in UNKNOWN_KEY))
        raise PlanError(f"{where}: {_place(first['loc'])}: {_explained(dict(first))}") from error


@cache
def _adapter() -> TypeAdapter[PlanFile]:
    return TypeAdapter(PlanFile)


def _place(place: Sequence[int | str]) -> str:
    """``policies, number 2, policy`` of ``("policies", 1, "policy")``; names of types are left out."""
    words = [f"number {each + 1}" if isinstance(each, int) else each for each in place]
    return ", ".join(word for word in words if "[" not in word and word not in ("str", "FolderOfDocuments"))


UNKNOWN_KEY: Final = ("unexpected_keyword_argument", "extra_forbidden")

_TABLES: Final = {
    "gates": Gates,
    "cost": Prices,
    "policies": Candidate,
    "documents": FolderOfDocuments,
}


def _explained(first: dict[str, Any]) -> str:
    place = first["loc"]
    if first["type"] in UNKNOWN_KEY:
        of = _TABLES.get(str(place[0]), PlanFile) if len(place) > 1 else PlanFile
        return f"unknown key; allowed are {', '.join(each.name for each in fields(of))}"
    if first["type"].startswith("missing"):
        return "is missing: give it"
    return f"{first['msg'][:1].lower()}{first['msg'][1:]}"


def _checked(found: PlanFile, path: Path, retriever: RetrieverName) -> Plan:
    where, folder = str(path), path.parent
    _check_documents(found.documents, where)
    _require(bool(found.policies), f"{where}: policies: name one at least, as [[policies]] policy = …")
    _require(
        found.analyzer in ANALYZERS,
        f"{where}: analyzer is {found.analyzer!r}; there are {', '.join(ANALYZERS)}",
    )
    _require(1 <= found.k <= MAX_K, f"{where}: k is {found.k}; it must be from 1 to {MAX_K}")
    _check_budgets(found.budgets, where)
    names = (found.assembly,) if isinstance(found.assembly, str) else found.assembly
    _check_named("assembly", names, tuple(ASSEMBLIES), where)
    _require(bool(names), f"{where}: assembly is empty; give one or more of {', '.join(ASSEMBLIES)}")
    _require(len(set(names)) == len(names), f"{where}: assembly names one twice: leave one out")
    plan = Plan(
        where,
        folder,
        found.documents,
        folder / found.questions,
        tuple(_policies(found.policies, folder, where)),
        found.analyzer,
        found.k,
        tuple(sorted(found.budgets)),
        tuple(map(assembly_named, names)),
        found.gates,
        found.cost,
        retriever,
    )
    _check_gates(plan)
    _check_prices(plan)
    return plan


def _check_documents(documents: Sequence[str | FolderOfDocuments], where: str) -> None:
    _require(bool(documents), f"{where}: documents: name a bundled corpus ({', '.join(BUNDLED)}) or a folder")
    names = [each if isinstance(each, str) else each.source for each in documents]
    for number, (name, each) in enumerate(zip(names, documents, strict=True), 1):
        at = f"{where}: documents, number {number}"
        _require(
            not isinstance(each, str) or each in BUNDLED,
            f"{at}: there is no bundled corpus {name!r}; there are {', '.join(BUNDLED)}; a folder of your "
            'own is {source = "notes", path = "notes"}',
        )
        _require(bool(name.strip()) and "/" not in name, f"{at}: source is {name!r}; a name has no '/'")
        _require(names.count(name) == 1, f"{at}: source {name!r} is named twice: give each a name of its own")


def _check_budgets(budgets: Sequence[int], where: str) -> None:
    _require(bool(budgets), f"{where}: budgets is empty; give one or more, in tokens")
    for each in budgets:
        _require(each >= 1, f"{where}: budgets holds {each}; a budget is 1 token or more")
        _require(list(budgets).count(each) == 1, f"{where}: budgets holds {each} twice: leave one out")


def _policies(given: Sequence[Candidate], folder: Path, where: str) -> list[ChunkPolicy]:
    found: dict[str, ChunkPolicy] = {}
    for number, each in enumerate(given, 1):
        at = f"{where}: policies, number {number}"
        try:
            policy = load_policy(each.policy if each.policy in BUILT_IN else folder / each.policy)
        except PolicyError as error:
            raise PlanError(f"{at}: {error}") from error
        _require(
            policy.name not in found, f"{at}: a policy named {policy.name!r} is there already: rename it"
        )
        found[policy.name] = policy
    return list(found.values())


def _check_gates(plan: Plan) -> None:
    gates, at = plan.gates, f"{plan.where}: gates"
    for name in SHARES:
        limit = getattr(gates, name)
        _require(
            limit is None or (math.isfinite(limit) and 0 <= limit <= 1),
            f"{at}: {name} is {limit}; it must be from 0 to 1",
        )
    _check_named("policies", gates.policies, [policy.name for policy in plan.policies], at)
    _check_named("assembly", gates.assembly, [assembly.name for assembly in plan.assemblies], at)
    for budget in gates.budgets:
        run = ", ".join(map(str, plan.budgets))
        _require(
            budget in plan.budgets,
            f"{at}: budgets holds {budget}; the run has {run}: take it out, or run it too",
        )
    _require(
        gates == Gates() or any(getattr(gates, name) is not None for name in SHARES),
        f"{at}: demands nothing: give one or more of {', '.join(SHARES)}, or leave [gates] out",
    )
    _require(
        gates.min_context_recall is not None or not (gates.assembly or gates.budgets),
        f"{at}: assembly and budgets say where min_context_recall is demanded: give it, or leave them out",
    )


def _check_named(key: str, names: Sequence[str], known: Sequence[str], where: str) -> None:
    for name in names:
        _require(name in known, f"{where}: {key} holds {name!r}; there are {', '.join(known)}")


def _check_prices(plan: Plan) -> None:
    if plan.prices is None:
        return
    at = f"{plan.where}: cost"
    for name in ("currency", "assumption"):
        _require(
            bool(getattr(plan.prices, name).strip()), f"{at}: {name} is blank: say what the prices are from"
        )
    for name in ("per_million_indexed_tokens", "per_million_context_tokens"):
        price = getattr(plan.prices, name)
        _require(math.isfinite(price) and price >= 0, f"{at}: {name} is {price}; a price is 0 or more")


def _require(met: bool, message: str) -> None:
    if not met:
        raise PlanError(message)
