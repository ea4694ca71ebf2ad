"""The crash form of a migration: SIGKILL at every failpoint of a generation's life, and a power loss.

Workers are started with a failpoint each; where one has died there, the next is started in its place with
the next failpoint. The operator's commands are processes too: each dies once behind its control record and
once behind the registry's write, and is given again. Changes and queries go on all the time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.answers import Moved, Verdict
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
CONTRACT_POINTS = ("contract.stepped", "contract.stepped")
OPERATOR_POINTS = ("control.published", "control.put")
FILL_S = 10.0
"""What a backfill is slowed down to: every death falls into it, and time is left for the next worker."""

HEALED_S = 10.0
"""Within this time after a power loss the registry must have healed by itself."""


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
        """Kinds of faults in answers but for those of a store that was away."""
        return {kind: count for kind, count in self.verdict.faults.items() if "store was away" not in kind}


async def torment(plan: Plan, report: Report, lives: int = 2, power_losses: int = 1) -> Damage:
    """Generations made, served, rolled back, served again, the old one contracted; all under kills."""
    ordeal = Ordeal(workers=plan.workers, partitions=plan.partitions, timeout_s=plan.timeout_s)
    damage = Damage()
    async with installation(plan, ordeal, report) as here:
        lost_power_at: list[tuple[float, float]] = []
        async with under_load(here, plan):
            old = "g1"
            for number in range(lives):
                new = f"c{number + 1}"
                policy = CANDIDATE if number % 2 == 0 else BASELINE
                await _live(here, damage, old, new, policy)
                if number < power_losses:
                    lost_power_at.append(await _lose_power(here, damage, new))
                await _remove(here, damage, "contract", old)
                old = new
            await _drop(here, damage, CANDIDATE if lives % 2 == 0 else BASELINE)
        await here.until_applied()
        damage.faults += await compare(here, [old])
        damage.faults += await _leftovers(here)
        damage.verdict = here.verdict(lost_power_at)
        missing = {*WORKER_POINTS, *CONTRACT_POINTS} - set(here.cluster.fired)
        damage.faults += [f"no worker died at {', '.join(sorted(missing))}"] if missing else []
        damage.worker_exits, damage.fired = here.cluster.exits, here.cluster.fired
        damage.worker_logs = here.cluster.logs()
    unexpected = [code for code in damage.worker_exits if code != KILLED]
    damage.faults += [f"workers ended by themselves: {unexpected}"] if unexpected else []
    return damage


async def _live(here: Installation, damage: Damage, old: str, new: str, policy: ChunkPolicy) -> None:
    """From creation to service, with a rollback in between."""
    _arm(here, WORKER_POINTS)
    await _create(here, damage, new, policy)
    await here.until_complete(new)
    await here.prove(new)
    await _move(here, damage, new, "cutover", new)
    await _move(here, damage, old, "rollback")
    await _move(here, damage, new, "cutover", new)


async def _drop(here: Installation, damage: Damage, policy: ChunkPolicy) -> None:
    """Generations that are abandoned while they are built: one for each point that no worker reached yet."""
    missed = [point for point in WORKER_POINTS if point not in here.cluster.fired]
    for number, point in enumerate(missed or WORKER_POINTS[:1]):
        name = f"dropped{number}"
        _arm(here, [point] * len(here.cluster.workers))
        await _create(here, damage, name, policy)
        if missed:
            await here.until_complete(name)
        await _remove(here, damage, "abandon", name)


def _arm(here: Installation, points: Sequence[str]) -> None:
    """Kill all workers; those that take their places die at these points, and so on while there are any."""
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
    if action == "contract":
        _arm(here, CONTRACT_POINTS)
    done = "contracted" if action == "contract" else "abandoned"
    await _insist(here, damage, lambda registry: registry.generations[name].state == done, action, name)
    code, told = await _command(here, "", action, name)
    if code:
        damage.faults.append(f"{action} {name} did not finish: {told}")
    here.cluster.failpoints.clear()
    here.report(f"  {name} is {done}")


async def _insist(here: Installation, damage: Damage, done: Done, *arguments: str) -> None:
    """Give the command until it is done, the first times with a failpoint each."""
    turn = len(damage.deaths) % 2
    points = [*OPERATOR_POINTS[turn:], *OPERATOR_POINTS[:turn], *CONTRACT_POINTS[:1]]
    deadline = time.monotonic() + here.cluster.ordeal.timeout_s
    while not done(await here.operator.registry()):
        point = points.pop(0) if points else ""
        code, told = await _command(here, point, *arguments)
        if code == KILLED:
            damage.deaths.append(f"{arguments[0]} at {point}")
            here.report(f"  {arguments[0]} killed at {point}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{' '.join(arguments)} was not done: {told}")
        here.cluster.revive()


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


async def _lose_power(here: Installation, damage: Damage, new: str) -> tuple[float, float]:
    """Roll back and cut over again, then lose both with the store's last second; they must come back."""
    synced_bytes, began = here.cluster.log_bytes(), time.monotonic()
    await rollback(here.operator)
    await cutover(here.operator, new)
    wanted = (await read_registry(here.store)).version
    await asyncio.sleep(max(0.0, began + SYNC_S - time.monotonic()))
    since = time.monotonic()
    damage.bytes_cut += here.cluster.lose_power(synced_bytes)
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
    return since, to


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
    damage = asyncio.run(torment(plan, report))
    print_damage(damage)
    return 1 if damage.faults or damage.lost else 0


def print_damage(damage: Damage) -> None:
    """What was done and found."""
    verdict = damage.verdict
    print(f"workers died at {', '.join(damage.fired)}")
    print(f"commands died: {', '.join(damage.deaths)}; {damage.bytes_cut} bytes cut from the store's log")
    print(f"{verdict.answers} answers with {verdict.hits} hits judged: {dict(verdict.faults) or 'no fault'}")
    for line in (*verdict.told, *damage.faults[:30]):
        print(f"  {line}")
