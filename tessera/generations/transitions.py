"""The life of a generation as pure steps: a record of the control log moves the registry, or is refused.

::

                        verified            compared, waived            cutover
    create ─▶ building ──────────▶ ready ───────────────────▶ gated ───────────▶ serving
                  │                  │ ◀─ compared, failed ─── │ ◀── rollback ──── │ ▲
                  │ abandon          │ abandon                 │ abandon           │ │ rollback
                  ▼                  ▼                         ▼           cutover ▼ │ (of the other)
              abandoned          abandoned                 abandoned            retired
                                                                                   │ contract
                                                                                   ▼
                                                            contracted ◀──── contracting

``assembly`` changes how contexts are assembled while the generation goes on serving: a release of its own,
which a rollback takes back like any other.

A rebuild from the log takes every candidate back to building: what was proved of it is void.

No clock is read here: times come from the record. What a step needs to know of shards, readers and logs was
checked by the operator's command before it published the record (:mod:`tessera.generations.checks`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from tessera.assembly.assembly import Assembly
from tessera.errors import RefusedError
from tessera.generations.record import Action, ControlRecord
from tessera.generations.registry import Generation, Registry, State, Step
from tessera.releases import Release

__all__ = ["CANDIDATE", "Action", "ControlRecord", "apply", "known", "next_release"]

CANDIDATE: tuple[State, ...] = ("building", "ready", "gated")
"""States from which a generation can be abandoned: it does not serve and never has to be returned to."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names stand in keys, addresses and file names."""


def apply(registry: Registry, record: ControlRecord) -> Registry:
    """The registry after this step, one version on. RefusedError where it is not allowed; nothing changes."""
    if record.expected != registry.version:
        raise RefusedError(
            "superseded",
            f"{record.action} of {record.generation!r} was made for version {record.expected} of the "
            f"registry, which is at {registry.version}",
            "look at `tessera generation list` and give the command again",
        )
    moved = _STEPS[record.action](registry, record)
    return replace(moved, version=registry.version + 1, record=record.id)


def next_release(registry: Registry, generation: str, assembly: Assembly | None = None) -> Release:
    """The release that a cutover to ``generation`` makes: the served one but for its name and generation.

    Without an ``assembly`` it keeps the served one's.
    """
    steps = Counter(step.action for each in registry.generations.values() for step in each.steps)
    made = steps["cutover"] // 2 + steps["assembly"]  # a cutover is a step of both generations it concerns
    assembly = assembly or registry.release.assembly
    return replace(registry.release, release=f"r{made + 2}", generation=generation, assembly=assembly)


def _create(registry: Registry, record: ControlRecord) -> Registry:
    name, contract = record.generation, record.contract
    if contract is None:
        raise _malformed(record, "contract")
    if not NAME.fullmatch(name):
        raise RefusedError(
            "name",
            f"{name[:100]!r} is not a name for a generation",
            "give 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit",
        )
    if name in registry.generations:
        raise RefusedError(
            "name_used",
            f"there has been a generation {name!r} ({registry.generations[name].state}), and names are never "
            "used again",
            "give another --name",
        )
    for other in (registry.generations[each] for each in registry.written):
        if other.contract.digest == contract.digest:
            raise RefusedError(
                "same_contract",
                f"generation {other.name!r} ({other.state}) has the very same contract",
                "use that one, or choose another policy",
            )
    building = sorted(each.name for each in registry.generations.values() if each.state == "building")
    if len(building) >= record.limit:
        raise RefusedError(
            "building",
            f"{', '.join(building)} is still building, and at most {record.limit} may be at once",
            "finish it (`tessera generation verify`) or abandon it, or raise the setting max_building",
        )
    created = Generation(name, contract, "building", created_at_ms=record.at_ms, rate=_rate(record))
    return _with(registry, _stepped(created, record))


def _set_rate(registry: Registry, record: ControlRecord) -> Registry:
    generation = _in(registry, record, "building")
    return _with(registry, _stepped(replace(generation, rate=_rate(record)), record))


def _pause(registry: Registry, record: ControlRecord) -> Registry:
    generation = _in(registry, record, "building")
    pausing = record.action == "pause"
    if generation.paused == pausing:
        state, other = ("paused", "resume") if pausing else ("not paused", "pause")
        raise RefusedError(
            "already",
            f"the backfill of {generation.name!r} is {state} already",
            f"`tessera generation {other} {generation.name}` is the other way",
        )
    return _with(registry, _stepped(replace(generation, paused=pausing), record))


def _verified(registry: Registry, record: ControlRecord) -> Registry:
    generation = _in(registry, record, "building", "ready")
    return _with(registry, _stepped(replace(generation, state="ready", paused=False), record))


def _compared(registry: Registry, record: ControlRecord) -> Registry:
    generation, evidence = _in(registry, record, "ready", "gated"), record.evidence
    if evidence is None:
        raise _malformed(record, "evidence")
    if evidence.candidate_contract != generation.contract.digest:
        raise RefusedError(
            "contract",
            f"the evidence is for contract {evidence.candidate_contract}, {generation.name!r} has "
            f"{generation.contract.digest}",
            f"compare {generation.name!r} itself",
        )
    state: State = "gated" if evidence.passed else "ready"
    return _with(registry, _stepped(replace(generation, state=state, evidence=evidence), record))


def _waive(registry: Registry, record: ControlRecord) -> Registry:
    generation, waiver = _in(registry, record, "ready", "gated"), record.waiver
    if waiver is None:
        raise _malformed(record, "waiver")
    if not waiver.why.strip():
        raise RefusedError("waiver", "a waiver needs a reason", "say why: --waive WHY")
    if waiver.expires_at_ms <= waiver.at_ms:
        raise RefusedError("waiver", "the waiver has expired before it begins", "give --expires, such as 24h")
    state: State = "gated" if waiver.check == "evidence" else generation.state
    return _with(registry, _stepped(replace(generation, state=state, waiver=waiver), record))


def _cutover(registry: Registry, record: ControlRecord) -> Registry:
    candidate, release = _in(registry, record, "gated"), _new_release(registry, record)
    retired = replace(registry.serving, state="retired", retain_until_ms=record.retain_until_ms)
    serving = replace(candidate, state="serving", retain_until_ms=0)
    moved = _with(registry, _stepped(retired, record), _stepped(serving, record))
    return replace(moved, release=release, previous=registry.release)


def _assembly(registry: Registry, record: ControlRecord) -> Registry:
    generation, release = _in(registry, record, "serving"), _new_release(registry, record)
    served = registry.release
    if replace(release, release=served.release, assembly=served.assembly) != served:
        raise _malformed(record, "release")  # all else is moved by a cutover, which checks it
    return replace(_with(registry, _stepped(generation, record)), release=release, previous=served)


def _new_release(registry: Registry, record: ControlRecord) -> Release:
    """The record's release, which is of its generation and has a name of its own."""
    taken = {each.release for each in (registry.release, registry.previous) if each is not None}
    release = record.release
    if release is None or release.generation != record.generation or release.release in taken:
        raise _malformed(record, "release")
    return release


def _rollback(registry: Registry, record: ControlRecord) -> Registry:
    previous = registry.previous
    if previous is None:
        raise RefusedError(
            "no_previous",
            f"there is no release before {registry.release.release} to go back to",
            "`tessera generation cutover` serves another generation",
        )
    if record.generation != previous.generation:
        raise RefusedError(
            "previous",
            f"release {previous.release} before this one is of {previous.generation!r}, not of "
            f"{record.generation!r}",
            "give the command again",
        )
    if previous.generation == registry.release.generation:  # only its assembly was changed
        serving = _stepped(registry.serving, record)
        return replace(_with(registry, serving), release=previous, previous=None)
    back = _in(registry, record, "retired")
    left = replace(registry.serving, state="gated")
    serving = replace(back, state="serving", retain_until_ms=0)
    moved = _with(registry, _stepped(left, record), _stepped(serving, record))
    return replace(moved, release=previous, previous=None)


def _hold(registry: Registry, record: ControlRecord) -> Registry:
    generation = _in(registry, record, "building", "ready", "gated", "serving", "retired")
    if not record.note.strip():
        raise RefusedError("hold", "a hold needs a reason", "say why: --why TEXT")
    return _with(registry, _stepped(replace(generation, hold=record.note), record))


def _release_hold(registry: Registry, record: ControlRecord) -> Registry:
    generation = known(registry, record.generation)
    if not generation.hold:
        raise RefusedError(
            "already",
            f"there is no hold on {generation.name!r}",
            f"`tessera generation hold {generation.name}` sets one",
        )
    return _with(registry, _stepped(replace(generation, hold=""), record))


def _contract(registry: Registry, record: ControlRecord) -> Registry:
    generation = known(registry, record.generation)
    if generation.state in CANDIDATE:
        raise RefusedError(
            "state",
            f"{generation.name!r} is {generation.state}: only what has served is contracted",
            f"`tessera generation abandon {generation.name}` removes it",
        )
    if generation.state == "serving":
        raise RefusedError(
            "served",
            f"{generation.name!r} is served by release {registry.release.release}",
            "cut over to another generation first",
        )
    _in(registry, record, "retired")
    _not_held(generation)
    if record.at_ms < generation.retain_until_ms:
        left_s = (generation.retain_until_ms - record.at_ms + 999) // 1000
        raise RefusedError(
            "retention",
            f"{generation.name!r} is kept for a rollback for another {left_s:,} s",
            "wait until then",
        )
    moved = _with(registry, _stepped(replace(generation, state="contracting"), record))
    previous = registry.previous
    lost = previous is not None and previous.generation == generation.name
    return replace(moved, previous=None) if lost else moved


def _contracted(registry: Registry, record: ControlRecord) -> Registry:
    generation = _in(registry, record, "contracting")
    return _with(registry, _stepped(replace(generation, state="contracted"), record))


def _abandon(registry: Registry, record: ControlRecord) -> Registry:
    generation = known(registry, record.generation)
    if generation.state == "retired":
        raise RefusedError(
            "state",
            f"{generation.name!r} is retired: it may have to serve again",
            f"`tessera generation contract {generation.name}` removes it once its retention has passed",
        )
    if generation.state == "serving":
        raise RefusedError(
            "served",
            f"{generation.name!r} is served by release {registry.release.release}",
            "cut over to another generation, or roll back, first",
        )
    _in(registry, record, *CANDIDATE)
    _not_held(generation)
    return _with(registry, _stepped(replace(generation, state="abandoned", paused=False), record))


def _rebuild(registry: Registry, record: ControlRecord) -> Registry:
    """Every written generation is emptied and written again: what was proved of candidates is void."""
    _in(registry, record, "serving")
    emptied = []
    for name in registry.written:
        generation = _stepped(registry.generations[name], record)
        if generation.state in CANDIDATE:
            generation = replace(generation, state="building", evidence=None, waiver=None)
        emptied.append(generation)
    return _with(registry, *emptied)


_STEPS: Mapping[Action, Callable[[Registry, ControlRecord], Registry]] = {
    "create": _create,
    "rate": _set_rate,
    "pause": _pause,
    "resume": _pause,
    "verified": _verified,
    "compared": _compared,
    "waive": _waive,
    "cutover": _cutover,
    "assembly": _assembly,
    "rollback": _rollback,
    "hold": _hold,
    "release-hold": _release_hold,
    "contract": _contract,
    "contracted": _contracted,
    "abandon": _abandon,
    "rebuild": _rebuild,
}

_NEXT: Mapping[State, str] = {
    "building": "wait for its backfill, then `tessera generation verify {name}`",
    "ready": "`tessera generation compare` it with the serving generation",
    "gated": "`tessera generation cutover {name}` serves it",
    "serving": "it holds everything and is served: `tessera generation list` shows those that are not",
    "retired": "{retired}",
    "contracting": "`tessera generation contract {name}` finishes what was begun",
    "contracted": "create a generation under another name",
    "abandoned": "create a generation under another name",
}


def known(registry: Registry, name: str) -> Generation:
    """The generation of this name; RefusedError where there is none."""
    if name not in registry.generations:
        raise RefusedError(
            "unknown",
            f"there is no generation {name[:100]!r}",
            "`tessera generation list` shows those there are",
        )
    return registry.generations[name]


def _in(registry: Registry, record: ControlRecord, *states: State) -> Generation:
    """The record's generation, which must be in one of the states."""
    generation = known(registry, record.generation)
    if generation.state not in states:
        raise RefusedError(
            "state",
            f"{generation.name!r} is {generation.state}; {record.action} needs {' or '.join(states)}",
            _NEXT[generation.state].format(
                name=generation.name, retired=when_retired(registry, generation.name)
            ),
        )
    return generation


def when_retired(registry: Registry, name: str) -> str:
    """What can be done with a retired generation: only the release before the served one is served again."""
    remove = f"`tessera generation contract {name}` removes it"
    if registry.previous is not None and registry.previous.generation == name:
        return f"`tessera generation rollback` serves it again, {remove}"
    return f"it is not of the release before this one, so it is not served again; {remove}"


def _not_held(generation: Generation) -> None:
    if generation.hold:
        raise RefusedError(
            "held",
            f"a hold is on {generation.name!r}: {generation.hold}",
            f"`tessera generation release-hold {generation.name}` takes it off",
        )


def _rate(record: ControlRecord) -> float | None:
    if record.rate is not None and not 0 < record.rate < float("inf"):
        raise RefusedError(
            "rate", f"{record.rate} is not a rate", "give documents a second and shard, greater than 0"
        )
    return record.rate


def _malformed(record: ControlRecord, field: str) -> RefusedError:
    return RefusedError(
        "malformed", f"the record of {record.action} has no sound {field}", "give the command again"
    )


def _stepped(generation: Generation, record: ControlRecord) -> Generation:
    step = Step(record.at_ms, record.action, record.actor, record.note)
    return replace(generation, steps=(*generation.steps, step))


def _with(registry: Registry, *changed: Generation) -> Registry:
    return replace(registry, generations={**registry.generations, **{each.name: each for each in changed}})
