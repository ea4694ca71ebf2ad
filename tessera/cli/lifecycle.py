"""What ``tessera generation …`` does, but for the proofs (:mod:`tessera.cli.proof`)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar

import typer

from tessera.assembly.assembly import assembly_named
from tessera.cli.lives import print_generation, print_generations, print_move, print_rebuild
from tessera.cli.servers import opened_store
from tessera.cli.terminal import console, print_json, printable, progress
from tessera.errors import PolicyError, RefusedError, SettingsError
from tessera.generations import contraction
from tessera.generations import cutover as moves
from tessera.generations.bootstrap import read_registry
from tessera.generations.description import described, detail
from tessera.generations.operations import Operator, local_actor, parse_duration_s
from tessera.generations.progress import Progress
from tessera.generations.rebuild import plan_rebuild
from tessera.generations.rebuild import rebuild as rebuild_shards
from tessera.generations.registry import WRITTEN, Generation
from tessera.generations.transitions import known
from tessera.policies import TOKENIZERS, load_policy
from tessera.settings import Settings, load_settings
from tessera.shards.status import read_status

Flags = Mapping[str, Any]
Change = Literal["pause", "resume", "hold", "release-hold"]
Result = TypeVar("Result")

POLL_S = 0.25
WAIVER = "24h"
"""A waiver without --expires: long enough for a cutover and its repetition, not for a habit."""


@asynccontextmanager
async def opened_operator(settings: Settings) -> AsyncIterator[Operator]:
    """The one who sits at this terminal."""
    TOKENIZERS.folder = settings.tokenizers_folder
    async with opened_store(settings) as store:
        yield Operator(store, settings, local_actor())


def operated(
    flags: Flags, config: Path | None, work: Callable[[Operator], Awaitable[Result]], *, broker: bool = True
) -> Result:
    """The result of ``work``; ``broker`` False where the store alone is needed."""
    settings = load_settings(flags, config=config, require=("broker", "redis") if broker else ("redis",))

    async def run() -> Result:
        async with opened_operator(settings) as operator:
            return await work(operator)

    return asyncio.run(run())


def create(
    flags: Flags,
    config: Path | None,
    policy: str,
    name: str | None,
    rate: float | None,
    analyzer: str,
    *,
    as_json: bool,
) -> None:
    """Create a generation and tell its name."""
    try:
        chosen = load_policy(policy)
    except PolicyError as error:
        raise PolicyError(f"--policy: {error}: give a built-in name or a TOML file that is one") from None

    async def make(operator: Operator) -> Generation:
        TOKENIZERS.keep(chosen.tokenizer_files)
        return await operator.create(chosen, name, rate, analyzer)

    generation = operated(flags, config, make)
    _tell(
        generation,
        f"generation {generation.name} created under {generation.contract.policy_id}: shards begin to write "
        f"it; follow its backfill with `tessera generation backfill {generation.name}`",
        as_json=as_json,
    )


def show_all(flags: Flags, config: Path | None, *, as_json: bool) -> None:
    """Print every generation ever made."""

    async def read(operator: Operator) -> list[dict[str, Any]]:
        registry = await read_registry(operator.store)
        return described(registry, await read_status(operator.store), operator.now_ms())

    found = operated(flags, config, read, broker=False)
    if as_json:
        print_json(found)
    else:
        print_generations(found, console())


def show_one(flags: Flags, config: Path | None, name: str, *, as_json: bool) -> None:
    """Print one generation and its life."""

    async def read(operator: Operator) -> dict[str, Any]:
        registry = await read_registry(operator.store)
        generation = known(registry, name)
        return detail(generation, registry, await read_status(operator.store), operator.now_ms())

    found = operated(flags, config, read, broker=False)
    if as_json:
        print_json(found)
    else:
        print_generation(found, console())


def change(
    flags: Flags, config: Path | None, action: Change, name: str, why: str = "", *, as_json: bool
) -> None:
    """Pause, resume, hold, or release a hold."""

    async def make(operator: Operator) -> Generation:
        if action == "hold":
            return await operator.hold(name, why)
        if action == "release-hold":
            return await operator.release_hold(name)
        return await (operator.pause(name) if action == "pause" else operator.resume(name))

    generation = operated(flags, config, make)
    told = {
        "pause": "its backfill is paused; live changes go on being written",
        "resume": "its backfill goes on",
        "hold": f"held: {why}",
        "release-hold": "no longer held",
    }
    _tell(generation, f"{name}: {told[action]}", as_json=as_json)


def backfill(
    flags: Flags, config: Path | None, name: str, rate: float | None, *, wait: bool, as_json: bool
) -> None:
    """Start or adjust the backfill; follow it to its end unless ``wait`` is False."""

    async def follow(operator: Operator) -> tuple[Progress, str]:
        generation = known(await operator.registry(), name)
        if generation.state == "building":
            await _adjust(operator, generation, rate)
        elif generation.state not in WRITTEN:
            raise RefusedError("state", f"{name!r} is {generation.state}", "create another generation")
        found = await _follow(operator, name) if wait else (await operator.progress(name))[1]
        return found, generation.state

    try:
        found, state = operated(flags, config, follow)
    except KeyboardInterrupt:
        told = f"the backfill goes on by itself: `tessera generation backfill {name}` follows it"
        print(f"tessera: {told}", file=sys.stderr)
        raise
    if as_json:
        print_json({"generation": name, "done": found.done, **asdict(found)})
        return
    shards = f"{found.complete} of {found.shards} shards complete"
    following = f": verify it with `tessera generation verify {name}`" if state == "building" else ""
    console().print(
        f"{name}: {found.documents:,} of {found.of:,} documents, {shards}"
        + (following if found.done else " so far")
    )


async def _adjust(operator: Operator, generation: Generation, rate: float | None) -> None:
    if rate is not None and (rate or None) != generation.rate:
        await operator.set_rate(generation.name, rate or None)
    if generation.paused:
        await operator.resume(generation.name)


async def _follow(operator: Operator, name: str) -> Progress:
    """Wait until every shard is complete, showing how far they are."""
    with progress(f"backfill of {name}") as bar:
        while True:
            generation, found = await operator.progress(name)
            left = "" if found.eta_s is None else f", {found.eta_s:,.0f} s left"
            notes = "".join(f"; {shard}: {note}" for shard, note in list(found.notes.items())[:1])
            bar.update(
                bar.task_ids[0],
                total=found.of,
                completed=min(found.documents, found.of),
                description=printable(f"backfill of {name}{left}{notes}"),
            )
            if found.done:
                return found
            if generation.state not in WRITTEN:
                raise RefusedError(
                    "state", f"{name!r} is {generation.state} by now", "create another generation"
                )
            if generation.paused:
                raise RefusedError(
                    "paused", f"the backfill of {name!r} was paused", f"`tessera generation resume {name}`"
                )
            await asyncio.sleep(POLL_S)


def abandon(flags: Flags, config: Path | None, name: str, why: str, *, as_json: bool) -> None:
    """Give a generation up and remove it."""
    _removed(
        flags,
        config,
        lambda operator, told: contraction.abandon(operator, name, why, on_progress=told),
        f"removing {name}",
        as_json=as_json,
    )


def contract(flags: Flags, config: Path | None, name: str, *, as_json: bool) -> None:
    """Remove a retired generation."""
    _removed(
        flags,
        config,
        lambda operator, told: contraction.contract(operator, name, on_progress=told),
        f"contracting {name}",
        as_json=as_json,
    )


def _removed(
    flags: Flags,
    config: Path | None,
    remove: Callable[[Operator, Callable[[tuple[str, ...]], None]], Awaitable[contraction.Removal]],
    what: str,
    *,
    as_json: bool,
) -> None:
    with progress(what) as bar:

        def told(left: tuple[str, ...]) -> None:
            bar.update(bar.task_ids[0], description=printable(f"{what}: {left[0]}" if left else what))

        removal = operated(flags, config, lambda operator: remove(operator, told))
    if as_json:
        print_json({**asdict(removal), "done": removal.done})
    elif removal.done:
        console().print(f"{removal.generation}: {removal.state}, nothing of it is left")
    else:
        console().print(f"{removal.generation}: {removal.state}, and not gone yet:")
        for each in removal.waits_for:
            console().print(f"  {printable(each)}")
        console().print("give the command again to go on")
    if not removal.done:
        raise typer.Exit(1)


def cutover(
    flags: Flags,
    config: Path | None,
    name: str,
    waive: str | None,
    expires: str | None,
    retention: str | None,
    assembly: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Serve another generation, or show what that would check and change."""
    if expires is not None and waive is None:
        raise SettingsError("--expires goes with --waive: give both, or neither")
    waiver = moves.AskedWaiver(waive, parse_duration_s(expires or WAIVER)) if waive is not None else None
    retention_s = None if retention is None else parse_duration_s(retention)
    chosen = None if assembly is None else assembly_named(assembly)

    async def make(operator: Operator) -> moves.Move:
        if dry_run:
            return await moves.plan_cutover(operator, name, waiver, retention_s, chosen)
        return await moves.cutover(operator, name, waiver, retention_s, chosen)

    _tell_move(operated(flags, config, make), dry_run=dry_run, as_json=as_json)


def rollback(flags: Flags, config: Path | None, why: str, *, dry_run: bool, as_json: bool) -> None:
    """Serve the previous release again, or show what that would check and change."""

    async def make(operator: Operator) -> moves.Move:
        return await (moves.plan_rollback(operator) if dry_run else moves.rollback(operator, why))

    _tell_move(operated(flags, config, make), dry_run=dry_run, as_json=as_json)


def rebuild(
    flags: Flags, config: Path | None, *, from_log: bool, confirmed: bool, lose: int, as_json: bool
) -> None:
    """Empty all shards, to be read again from the log; unless ``confirmed`` show what that reaches."""
    if not from_log:
        raise SettingsError("give --from-log: the log is what a rebuild reads")

    async def make(operator: Operator) -> None:
        with progress("looking for what the log does not hold") as bar:
            plan = await plan_rebuild(
                operator,
                on_progress=lambda shard: bar.update(bar.task_ids[0], description=f"looking at {shard}"),
            )
        if as_json:
            print_json([each.to_value() for each in plan])
        else:
            print_rebuild(plan, console())
        await rebuild_shards(operator, plan, confirmed=confirmed, lose=lose)

    operated(flags, config, make)
    if not as_json:
        console().print("all shards are empty and are read again: follow it with `tessera status`")


def _tell(generation: Generation, message: str, *, as_json: bool) -> None:
    if as_json:
        print_json(generation.to_value())
    else:
        console().print(printable(message))


def _tell_move(move: moves.Move, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(move.to_value() | {"done": not dry_run})
    else:
        print_move(move, console(), dry_run=dry_run)
