"""The crash form of a migration: SIGKILL at every failpoint of a generation's life, and a power loss.

Workers are started with a failpoint each; where one has died there, the next is started in its place with
the next failpoint. The operator's commands are processes too: each dies behind its control record, behind the
registry's write and between two steps of a removal, and is given again. The searcher is killed in a backfill
and while the release moves. Changes and queries go on all the time, while the store is away too.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bench.answers import Away, Moved, Verdict
from bench.crash import SYNC_S, Ordeal
from bench.installation import (
    BASELINE,
    CANDIDATE,
    Installation,
    Plan,
    Report,
    compare,
    installation,
    under_load,
)
from tessera.errors import UnavailableError
from tessera.failpoints import VARIABLE
from tessera.generations.bootstrap import read_registry
from tessera.generations.cutover import cutover, rollback
from tessera.generations.registry import Registry
from tessera.policies import ChunkPolicy

Done = Callable[[Registry], bool]
KILLED = -9
WORKER_POINTS = ("generation.adopted", "backfill.committed", "backfill.staged", "backfill.completed")
"""Two workers die at the first two of them, those in their places at the others."""
CONTRACT_POINT = "contract.stepped"
_STEP = ("control.published", "control.put")
COMMAND_POINTS = {
    "create": _STEP,
    "cutover": _STEP,
    "rollback": _STEP[::-1],  # the release pointer moves back, and nobody reports it
    "contract": (_STEP[0], CONTRACT_POINT, _STEP[1]),
    "abandon": _STEP,
}
"""What each command dies at until its step is made, those it has not died at yet before the others."""
DEATHS = {
    *(f"{action} at {point}" for action, points in COMMAND_POINTS.items() for point in points),
    f"abandon at {CONTRACT_POINT}",  # given once more, for its step is made by then
}
"""Each of them happens at least once in two lives."""

WORKERS = 2
"""At least so many: while one is dead, the other takes its shards over."""

FILL_S = 10.0
"""What a backfill is slowed down to: every death falls into it, and time is left for the next worker."""

OUTAGE_S = 1.0
"""How long the store is away: some tens of queries are asked meanwhile."""

HEALED_S = 60.0
"""Within this time after a power loss the registry must have healed by itself. It takes about two seconds: a
machine that is busy with other things is no fault."""


@dataclass(slots=True)
class Damage:
    """What was done, and what was found."""

    faults: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    deaths: list[str] = field(default_factory=list)
    worker_exits: list[int] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    bytes_cut: int = 0
    worker_logs: str = ""

    @property
    def lost(self) -> dict[str, int]:
        """Kinds of faults in answers."""
        return dict(self.verdict.faults)


async def torment(plan: Plan, report: Report, lives: int = 2) -> Damage:
    """Generations made, served, rolled back, served again, the old one contracted; all under kills.

    Power is lost once, in the first life.
    """
    ordeal = Ordeal(workers=plan.workers, partitions=plan.partitions, timeout_s=plan.timeout_s)
    damage = Damage()
    async with installation(plan, ordeal, report) as here:
        async with under_load(here, plan):
            old = "g1"
            for number in range(lives):
                new = f"c{number + 1}"
                await _live(here, damage, old, new, number)
                if number == 0:
                    await _lose_power(here, damage, new)
                await _remove(here, damage, "contract", old)
                old = new
            await _drop(here, damage, _other(lives), lives)
        await here.until_applied()
        damage.faults += await compare(here, [old])
        damage.faults += await _leftovers(here)
        damage.verdict = here.verdict()
        damage.faults += _spared(here, damage, lives)
        damage.worker_exits, damage.fired = here.cluster.exits, here.cluster.fired
        damage.worker_logs = here.cluster.logs()
    unexpected = [code for code in damage.worker_exits if code != KILLED]
    damage.faults += [f"workers ended by themselves: {unexpected}"] if unexpected else []
    return damage


def _other(number: int) -> ChunkPolicy:
    """By turns: two live generations never have the same contract."""
    return CANDIDATE if number % 2 == 0 else BASELINE


def _spared(here: Installation, damage: Damage, lives: int) -> list[str]:
    """Where nobody died that should have; in a single life some commands die at one of their points only."""
    missing = {*WORKER_POINTS, CONTRACT_POINT} - set(here.cluster.fired)
    faults = [f"no worker died at {', '.join(sorted(missing))}"] if missing else []
    if lives > 1:
        faults += [f"no command died: {each}" for each in sorted(DEATHS - set(damage.deaths))]
    return faults


async def _live(here: Installation, damage: Damage, old: str, new: str, number: int) -> None:
    """From creation to service, with a rollback between.

    The searcher dies in the backfill, then in the first cutover of even lives, in the rollback of odd ones.
    """
    _arm(here, WORKER_POINTS)
    await _create(here, damage, new, _other(number))
    await here.kill_searcher()
    await here.until_complete(new)
    await here.prove(new)
    moves = ((new, ("cutover", new)), (old, ("rollback",)), (new, ("cutover", new)))
    for turn, (wanted, arguments) in enumerate(moves):
        move = _move(here, damage, wanted, *arguments)
        await (asyncio.gather(move, here.kill_searcher()) if turn == number % 2 else move)


async def _drop(here: Installation, damage: Damage, policy: ChunkPolicy, least: int) -> None:
    """Generations abandoned while they are built: one for each point no worker reached, and ``least``."""
    missed = [point for point in WORKER_POINTS if point not in here.cluster.fired]
    for number in range(max(len(missed), least)):
        name, points = f"dropped{number}", missed[number : number + 1]
        _arm(here, (points or WORKER_POINTS[:1]) * len(here.cluster.workers))
        await _create(here, damage, name, policy)
        if points:
            await here.until_complete(name)
        await _remove(here, damage, "abandon", name)


def _arm(here: Installation, points: Sequence[str]) -> None:
    """Kill all workers; those that take their places die at these points, and so on while there are any.

    Points that were left over are forgotten: whoever waits for a death must not wait behind them.
    """
    here.cluster.failpoints.clear()
    here.cluster.failpoints.extend(points)
    for index in range(len(here.cluster.workers)):
        here.cluster.kill_worker(index)


async def _create(here: Installation, damage: Damage, name: str, policy: ChunkPolicy) -> None:
    here.policies[name] = policy
    rate = len(here.traffic.originals) / len(here.traffic.model.ends) / FILL_S
    arguments = ("create", "--policy", policy.name, "--name", name, "--rate", f"{rate:.2f}")
    await _insist(here, damage, lambda registry: name in registry.generations, *arguments)


async def _move(here: Installation, damage: Damage, wanted: str, *arguments: str) -> None:
    began = time.monotonic()
    await _insist(here, damage, lambda registry: registry.release.generation == wanted, *arguments)
    release = (await read_registry(here.store)).release
    here.moves.append(Moved(began, time.monotonic(), release.release, release.generation))
    here.report(f"  {release.release} serves {release.generation}")


async def _remove(here: Installation, damage: Damage, action: str, name: str) -> None:
    """Contract or abandon; the operator dies, and where it contracts both workers do, between two steps."""
    fired = here.cluster.fired.count(CONTRACT_POINT)
    if action == "contract":
        _arm(here, [CONTRACT_POINT] * len(here.cluster.workers))
        fired += len(here.cluster.workers)
    done = "contracted" if action == "contract" else "abandoned"
    await _insist(here, damage, lambda registry: registry.generations[name].state == done, action, name)
    if action == "abandon":
        await _die(here, damage, CONTRACT_POINT, action, name)
    await _finish(here, damage, action, name)

    async def workers_died() -> bool:
        return here.cluster.fired.count(CONTRACT_POINT) >= fired

    await here.until(workers_died, f"no worker died removing {name}")
    here.cluster.failpoints.clear()
    here.report(f"  {name} is {done}")


async def _finish(here: Installation, damage: Damage, action: str, name: str) -> None:
    """Give the command until nothing is left: it waits for a while only, and a machine may be busy."""
    deadline = time.monotonic() + here.cluster.ordeal.timeout_s
    code = 1
    while code:
        code, told = await _command(here, "", action, name)
        if code and time.monotonic() > deadline:
            damage.faults.append(f"{action} {name} did not finish: {told}")
            return


async def _insist(here: Installation, damage: Damage, done: Done, *arguments: str) -> None:
    """Give the command until it is done, with a failpoint each time while there are any: new ones first."""
    action = arguments[0]
    points = [point for point in COMMAND_POINTS[action] if f"{action} at {point}" not in damage.deaths]
    points = [*points, *COMMAND_POINTS[action]]
    deadline = time.monotonic() + here.cluster.ordeal.timeout_s
    while not done(await here.operator.registry()):
        deaths = len(damage.deaths)
        told = await _die(here, damage, points[0] if points else "", *arguments)
        if len(damage.deaths) > deaths:
            points.pop(0)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{' '.join(arguments)} was not done: {told}")
        here.cluster.revive()


async def _die(here: Installation, damage: Damage, point: str, *arguments: str) -> str:
    """Give a command that dies at this point, where it comes to it; what it printed."""
    code, told = await _command(here, point, *arguments)
    if code == KILLED:
        damage.deaths.append(f"{arguments[0]} at {point}")
        here.report(f"  {arguments[0]} killed at {point}")
    return told


async def _command(here: Installation, point: str, *arguments: str) -> tuple[int, str]:
    """Exit status and output of ``tessera generation …``, which is to die at this failpoint."""
    environment = {**here.cluster.environment(), "TESSERA_RETENTION_S": "0"}
    if point:
        environment[VARIABLE] = point
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tessera", "generation", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    reviving = asyncio.create_task(_keep_reviving(here))
    try:
        output, _ = await process.communicate()
    finally:
        reviving.cancel()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def _keep_reviving(here: Installation) -> None:
    while True:
        here.cluster.revive()
        await asyncio.sleep(0.1)


async def _lose_power(here: Installation, damage: Damage, new: str) -> None:
    """Roll back and cut over again, then lose both with the store's last second; they must come back."""

    async def ready() -> bool:
        return here.cluster.are_ready()

    await here.until(ready, "the workers did not become ready")
    synced_bytes, began = here.cluster.log_bytes(), time.monotonic()
    await rollback(here.operator)
    await cutover(here.operator, new)
    wanted = (await read_registry(here.store)).version
    await asyncio.sleep(max(0.0, began + SYNC_S - time.monotonic()))
    since = time.monotonic()
    damage.bytes_cut += await asyncio.to_thread(here.cluster.cut_power, synced_bytes)
    await asyncio.sleep(OUTAGE_S)
    here.cluster.restore_power()  # a server is started by the main thread: it ends together with its starter
    deadline = time.monotonic() + HEALED_S
    while (version := await _version(here)) < wanted:
        if time.monotonic() > deadline:
            damage.faults.append(f"the registry stays at version {version} after the loss, not {wanted}")
            break
        here.cluster.revive()
        await asyncio.sleep(0.02)
    to = time.monotonic()
    release = (await here.operator.registry()).release
    here.moves.append(Moved(began, time.monotonic(), release.release, release.generation))
    here.report(f"  power lost, {damage.bytes_cut} bytes cut, {to - since:.1f} s until the registry was back")
    here.away.append(Away(since, to, "store"))


async def _version(here: Installation) -> int:
    try:
        return (await here.store.control())[0]
    except UnavailableError:
        return 0


async def _leftovers(here: Installation) -> list[str]:
    """What is still held of generations that are contracted or abandoned."""
    registry = await read_registry(here.store)
    gone = [name for name, each in registry.generations.items() if each.state in ("contracted", "abandoned")]
    faults = []
    for shard in sorted(here.traffic.model.ends):
        counters = await here.store.counters(shard)
        head = await here.store.head(shard)
        for name in gone:
            if head is None or name in head.live or await here.store.manifest(shard, name) is not None:
                faults.append(f"{shard} still holds {name}")
            left = [counter for counter in counters if f":{name}:" in counter and counters[counter]]
            faults += [f"{shard} still counts {left}"] if left else []
    return faults


def main(plan: Plan, report: Report) -> int:
    """Run the long form and print what it found; exit status 1 where anything is not as it must be."""
    damage = asyncio.run(torment(replace(plan, workers=max(WORKERS, plan.workers)), report))
    print_damage(damage)
    return 1 if damage.faults or damage.lost else 0


def print_damage(damage: Damage) -> None:
    """What was done and found."""
    verdict = damage.verdict
    print(f"workers died at {', '.join(filter(None, damage.fired))}")
    print(f"commands died: {', '.join(sorted(set(damage.deaths)))} ({len(damage.deaths)} deaths)")
    print(f"{damage.bytes_cut} bytes cut from the store's log")
    print(f"{verdict.answers} answers with {verdict.hits} hits judged: {dict(verdict.faults) or 'no fault'}")
    refused = ", ".join(f"{count} while the {what} was away" for what, count in verdict.refused.items())
    print(f"  {verdict.stale} of them told stale; refused: {refused or 'none'}")
    for line in (*verdict.told, *damage.faults[:30]):
        print(f"  {line}")
