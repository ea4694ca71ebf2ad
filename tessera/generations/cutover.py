"""Cutover and rollback: what is checked, what will change, and the one step that changes it.

The order of a cutover: checks · waiver (a step of its own, where one is given) · searchers have loaded the
candidate · control record · registry and release pointer in one write · pointer read back. Only then is it
complete. A crash before the control record changes nothing; after it, whoever reads the log next finishes it.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from tessera.assembly.assembly import Assembly
from tessera.errors import RefusedError, UnavailableError
from tessera.generations.checks import (
    WAIVABLE,
    Check,
    Situation,
    cutover_checks,
    readers_check,
    shard_checks,
    waived,
)
from tessera.generations.moments import shown
from tessera.generations.operations import MAX_SKEW_S, Operator
from tessera.generations.readers import live_readers
from tessera.generations.registry import Generation, Registry, Waiver
from tessera.generations.transitions import known, next_release
from tessera.releases import Release

READERS_POLL_S: Final = 0.2
UNNEEDED: Final = "no check fails that a waiver could overrule: it is not recorded"

_NAMED_CHECK: Final = re.compile(r"\s*(\w+)\s*:(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Move:
    """A move of the release: from where to where, its checks, and what it changes, in words.

    ``note`` says what became of a waiver that was asked for, where it was not taken.
    """

    from_release: Release
    to_release: Release
    checks: tuple[Check, ...]
    changes: tuple[str, ...]
    note: str = ""

    @property
    def allowed(self) -> bool:
        """Whether no check keeps it from being made."""
        return all(check.stands for check in self.checks)

    def to_value(self) -> dict[str, Any]:
        """The move as JSON values."""
        return {
            "allowed": self.allowed,
            "from_release": self.from_release.to_value(),
            "to_release": self.to_release.to_value(),
            "checks": [asdict(check) for check in self.checks],
            "changes": list(self.changes),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class AskedWaiver:
    """What an operator gives to overrule one check: why (or ``CHECK: why``), and for how many seconds."""

    why: str
    expires_s: int


async def plan_cutover(
    operator: Operator,
    name: str,
    waiver: AskedWaiver | None = None,
    retention_s: int | None = None,
    assembly: Assembly | None = None,
) -> Move:
    """What a cutover to ``name`` would check and change now; nothing is changed, nothing waited for."""
    registry = await operator.registry()
    candidate = known(registry, name)
    if assembly is not None and candidate.state == "serving":
        return await _assembly_move(operator, registry, assembly, waiver, retention_s)
    move = _cutover_move(operator, await operator.situation(registry), candidate, retention_s, assembly)
    if waiver is None:
        return move
    try:
        overruling = _waiver(operator, move, waiver)
    except RefusedError as refused:
        return replace(move, note=str(refused))
    if overruling is None:
        return replace(move, note=UNNEEDED)
    return _overruled(move, replace(candidate, waiver=overruling), operator)


async def cutover(
    operator: Operator,
    name: str,
    waiver: AskedWaiver | None = None,
    retention_s: int | None = None,
    assembly: Assembly | None = None,
) -> Move:
    """Serve generation ``name``. Returns what was done, once the release pointer has been read back.

    Without an ``assembly`` contexts are assembled as before. With one, the generation that serves already is
    given a release that differs in this alone.
    """
    registry = await operator.registry()
    candidate = known(registry, name)
    _require_unserved(registry, candidate, assembly)
    if assembly is not None and candidate.state == "serving":
        return await _reassemble(operator, registry, assembly, waiver, retention_s)
    move = _cutover_move(operator, await operator.situation(registry), candidate, retention_s, assembly)
    overruling = _waiver(operator, move, waiver) if waiver is not None else None
    if overruling is not None:
        note = f"{overruling.check}: {overruling.why}"
        registry = await operator.step(registry, "waive", name, note, waiver=overruling)
        candidate = registry.generations[name]
        move = _overruled(move, candidate, operator)
    note = UNNEEDED if waiver is not None and overruling is None else ""
    _require_others(move)
    readers = await _readers_loaded(operator, candidate)
    if not readers.stands:
        raise _refused(f"cutover to {name!r}", [readers])
    if not _of(move, "readers").stands:
        # They were waited for: evidence or a waiver may have run out, a shard may have lost its standing.
        situation = await operator.situation(registry)
        move = _cutover_move(operator, situation, candidate, retention_s, assembly)
        _require_others(move)
    retain_until_ms = operator.now_ms() + _retention_s(operator, retention_s) * 1000
    registry = await operator.step(
        registry, "cutover", name, _note(move), release=move.to_release, retain_until_ms=retain_until_ms
    )
    await _read_back(operator, registry)
    checks = tuple(readers if check.name == "readers" else check for check in move.checks)
    return replace(move, checks=checks, note=note)


def _require_unserved(registry: Registry, candidate: Generation, assembly: Assembly | None) -> None:
    if candidate.state == "serving" and assembly is None:
        raise RefusedError(
            "already",
            f"{candidate.name!r} is served already, by release {registry.release.release}",
            "`tessera generation list` shows candidates; --assembly changes how contexts are assembled",
        )


def _require_others(move: Move) -> None:
    """Raise RefusedError where a check fails, that of searchers aside: they may be waited for."""
    failing = [check for check in move.checks if not check.stands and check.name != "readers"]
    if failing:
        raise _refused(f"cutover to {move.to_release.generation!r}", failing)


async def plan_rollback(operator: Operator) -> Move:
    """What a rollback would check and change now."""
    return await _rollback_move(operator, await operator.registry())


async def rollback(operator: Operator, why: str = "") -> Move:
    """Serve the previous release again, at once. Its generation has been written all along."""
    registry = await operator.registry()
    move = await _rollback_move(operator, registry)
    if not move.allowed:
        raise _refused("rollback", [check for check in move.checks if not check.stands])
    registry = await operator.step(registry, "rollback", move.to_release.generation, why)
    await _read_back(operator, registry)
    return move


async def _reassemble(
    operator: Operator,
    registry: Registry,
    assembly: Assembly,
    waiver: AskedWaiver | None,
    retention_s: int | None,
) -> Move:
    """Serve the same generation with another assembly."""
    move = await _assembly_move(operator, registry, assembly, waiver, retention_s)
    name = move.to_release.generation
    if not move.allowed:
        raise _refused(f"another assembly for {name!r}", [each for each in move.checks if not each.stands])
    registry = await operator.step(registry, "assembly", name, _note(move), release=move.to_release)
    await _read_back(operator, registry)
    return move


def _cutover_move(
    operator: Operator,
    situation: Situation,
    candidate: Generation,
    retention_s: int | None,
    assembly: Assembly | None,
) -> Move:
    registry = situation.registry
    serving = registry.serving
    _require_time(registry, situation.now_ms, retention_s)
    chunks = {
        name: sum(source.chunks.get(name, 0) for source in situation.index.sources.values())
        for name in (serving.name, candidate.name)
    }
    to_release = next_release(registry, candidate.name, assembly)
    changes = [
        f"release {registry.release.release} ({serving.name}, {serving.contract.policy_id}) becomes "
        f"{to_release.release} ({candidate.name}, {candidate.contract.policy_id})",
        f"{chunks[serving.name]:,} chunks served become {chunks[candidate.name]:,}",
        f"{serving.name} becomes retired: still written, kept to roll back to for "
        f"{_retention(operator, retention_s)}",
    ]
    if serving.contract.analyzer != candidate.contract.analyzer:
        changes.append(f"analyzer {serving.contract.analyzer} becomes {candidate.contract.analyzer}")
    changes += _assembly_change(registry.release, to_release)
    if registry.previous is not None:
        changes.append(f"{registry.previous.generation} can no longer be rolled back to")
    checks = cutover_checks(situation, candidate, operator.settings)
    allowed = candidate.state in ("ready", "gated")
    return Move(registry.release, to_release, tuple(checks), tuple(changes) if allowed else ())


async def _assembly_move(
    operator: Operator,
    registry: Registry,
    assembly: Assembly,
    waiver: AskedWaiver | None,
    retention_s: int | None,
) -> Move:
    """The move to a release that differs in its assembly alone.

    No chunk changes, so the shards are checked as before a rollback, and no evidence is asked for.
    """
    served = registry.release
    if waiver is not None or retention_s is not None:
        raise RefusedError(
            "assembly",
            f"{served.generation!r} serves already: only its assembly changes, so nothing is retired and no "
            "check can be waived",
            "leave --waive and --retention out",
        )
    if assembly == served.context_assembly:
        raise RefusedError(
            "already",
            f"release {served.release} assembles contexts with {assembly.id} already",
            "give another --assembly",
        )
    to_release = next_release(registry, served.generation, assembly)
    changes = [
        f"release {served.release} becomes {to_release.release}, of the same generation "
        f"({served.generation}, {registry.serving.contract.policy_id})",
        *_assembly_change(served, to_release),
    ]
    if registry.previous is not None and registry.previous.generation != served.generation:
        changes.append(f"{registry.previous.generation} can no longer be rolled back to")
    checks = shard_checks(await operator.situation(registry), served.generation)
    return Move(served, to_release, tuple(checks), tuple(changes))


def _assembly_change(before: Release, after: Release) -> list[str]:
    """The change of assembly in words, where there is one."""
    if before.context_assembly == after.context_assembly:
        return []
    return [f"assembly {before.context_assembly.id} becomes {after.context_assembly.id}"]


def _require_time(registry: Registry, now_ms: int, retention_s: int | None) -> None:
    """Refuse a clock behind the control log: retention counted from it would be over early, and evidence that
    has expired would hold. A retention that is given is an operator's word that the clock is right now."""
    if retention_s is None and now_ms < registry.last_step_ms - MAX_SKEW_S * 1000:
        at = shown(registry.last_step_ms)
        raise RefusedError(
            "clock",
            f"a step was recorded at {at}, which is {(registry.last_step_ms - now_ms) / 1000:,.0f} s ahead "
            "of the clock of this machine",
            "set the clock; or where that step's was wrong, say how long to keep what serves: --retention",
        )


async def _rollback_move(operator: Operator, registry: Registry) -> Move:
    previous = registry.previous
    if previous is None:
        raise RefusedError(
            "no_previous",
            f"there is no release before {registry.release.release} to go back to",
            "`tessera generation cutover` serves another generation",
        )
    situation = await operator.situation(registry)
    checks = shard_checks(situation, previous.generation)
    changes = [
        f"release {registry.release.release} ({registry.release.generation}) becomes {previous.release} "
        f"({previous.generation}) again"
    ]
    if previous.generation != registry.release.generation:
        left = registry.release.generation
        changes.append(f"{left} becomes gated: still written, to be cut over to again or abandoned")
    changes += _assembly_change(registry.release, previous)
    return Move(registry.release, previous, tuple(checks), tuple(changes))


def _waiver(operator: Operator, move: Move, asked: AskedWaiver) -> Waiver | None:
    """The waiver that lets the move be made; None where no check fails. RefusedError where one is not enough.

    Searchers that have not loaded the candidate yet may do so while they are waited for: their check is meant
    only where nothing else fails.
    """
    failing = [check for check in move.checks if not check.stands]
    named, why = _named_check(move, asked.why)
    others = [check for check in failing if check.name != "readers"]
    overruled = named or (others[0].name if others else "readers")
    others = [check for check in others if check.name != overruled]
    if not failing:
        return None
    if others:
        what = f"cutover to {move.to_release.generation!r}, for a waiver overrules one check,"
        raise _refused(what, [check for check in failing if check.name != "readers"])
    if overruled not in WAIVABLE:
        detail = _of(move, overruled).detail
        raise RefusedError(
            "waiver", f"no waiver can overrule the check of {overruled}: {detail}", "mend that"
        )
    now_ms = operator.now_ms()
    return Waiver(overruled, why, operator.actor, now_ms, now_ms + asked.expires_s * 1000)


def _named_check(move: Move, asked: str) -> tuple[str, str]:
    """The check that ``CHECK: why`` names, empty where none is named, and the reason."""
    found = _NAMED_CHECK.fullmatch(asked)
    if found is None:
        return "", asked.strip()
    names = [check.name for check in move.checks]
    if found[1] not in names:
        raise RefusedError(
            "waiver",
            f"there is no check {found[1][:50]!r}",
            f"name one of {', '.join(names)}, or write the reason without a colon behind its first word",
        )
    return found[1], found[2].strip()


def _overruled(move: Move, candidate: Generation, operator: Operator) -> Move:
    """The move, with what the candidate's waiver overrules."""
    now_ms = operator.now_ms()
    return replace(move, checks=tuple(waived(check, candidate, now_ms) for check in move.checks))


async def _readers_loaded(operator: Operator, candidate: Generation) -> Check:
    """The check of readers, waited for as long as the settings say."""
    deadline = asyncio.get_running_loop().time() + operator.settings.cutover_wait_s
    while True:
        check = readers_check(await live_readers(operator.store), candidate.name)
        check = waived(check, candidate, operator.now_ms())
        if check.stands or asyncio.get_running_loop().time() >= deadline:
            return check
        await asyncio.sleep(READERS_POLL_S)


async def _read_back(operator: Operator, registry: Registry) -> None:
    encoded = await operator.store.release()
    if encoded != registry.release.to_json():
        found = Release.from_json(encoded).release if encoded is not None else "nothing"
        raise UnavailableError(
            f"release {registry.release.release} was set and {found} is read back: another step followed, or "
            "Redis lost data; look at `tessera generation list` and give the command again"
        )


def _refused(what: str, checks: list[Check]) -> RefusedError:
    told = "; ".join(f"{check.name}: {check.detail}" for check in checks)
    waivable = len(checks) == 1 and checks[0].name in WAIVABLE
    next_step = (
        "mend it, or overrule it with a reason: --waive WHY" if waivable else "--dry-run shows all checks"
    )
    return RefusedError(checks[0].name, f"{what} is refused by {told}", next_step)


def _of(move: Move, name: str) -> Check:
    return next(check for check in move.checks if check.name == name)


def _note(move: Move) -> str:
    overruled = [check.name for check in move.checks if check.waived]
    note = f"{move.from_release.release} → {move.to_release.release}"
    return f"{note}, {', '.join(overruled)} waived" if overruled else note


def _retention_s(operator: Operator, asked: int | None) -> int:
    return operator.settings.retention_s if asked is None else asked


def _retention(operator: Operator, asked: int | None) -> str:
    seconds = _retention_s(operator, asked)
    return f"{seconds / 3600:g} h" if seconds % 900 == 0 else f"{seconds:,} s"
