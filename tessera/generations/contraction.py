"""Contraction and abandonment: a generation given up by the shards, then deleted in steps, then done with.

Both are resumable: the command waits for a bounded time, and goes on from there when it is given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tessera.errors import FencedError, SequenceError
from tessera.failpoints import failpoint
from tessera.generations.operations import Operator
from tessera.generations.readers import live_readers, using
from tessera.generations.registry import State
from tessera.generations.transitions import known
from tessera.shards.deadletters import all_shards
from tessera.store.base import Head, ShardStore

POLL_S: Final = 0.25
WAIT_S: Final = 60.0
"""A lease lives ten seconds and a writer looks about once a second: longer, and somebody is away."""

STEP_SEGMENTS: Final = 64
"""Segments removed by one step: the server does nothing else while it takes one."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Where the removal of a generation stands. ``waits_for`` says for whom, empty once all of it is gone."""

    generation: str
    state: State
    waits_for: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether nothing of it is left."""
        return not self.waits_for


async def contract(
    operator: Operator,
    name: str,
    wait_s: float = WAIT_S,
    on_progress: Callable[[tuple[str, ...]], None] = lambda _: None,
) -> Removal:
    """Remove a retired generation; refused while it is served, held, or kept for a rollback."""
    registry = await operator.registry()
    state = known(registry, name).state
    if state == "contracted":
        return Removal(name, state, ())
    if state != "contracting":
        registry = await operator.step(registry, "contract", name)
    left = await _wait_removed(operator.store, name, wait_s, on_progress)
    if left:
        return Removal(name, "contracting", left)
    registry = await operator.step(await operator.registry(), "contracted", name)
    return Removal(name, registry.generations[name].state, ())


async def abandon(
    operator: Operator,
    name: str,
    why: str = "",
    wait_s: float = WAIT_S,
    on_progress: Callable[[tuple[str, ...]], None] = lambda _: None,
) -> Removal:
    """Give up a generation that was never to be served, and remove it."""
    registry = await operator.registry()
    if known(registry, name).state != "abandoned":
        await operator.step(registry, "abandon", name, why)
    return Removal(name, "abandoned", await _wait_removed(operator.store, name, wait_s, on_progress))


async def remains(store: ShardStore, name: str) -> tuple[str, ...]:
    """Who still reads, writes or holds the generation, in words; empty once nobody does.

    A shard that has given it up is taken a step further on the way: its worker may be away.
    """
    readers = using(await live_readers(store), name)
    left = [f"searcher {reader} reads it" for reader in readers]
    shards = await all_shards(store)
    for head in await store.heads(shards):
        if head is None:
            continue
        if name in head.live:
            left.append(f"shard {head.shard} writes it")
        elif readers:
            left.append(f"shard {head.shard} keeps what is read")
        else:
            left += await _step(store, head, name)
    return tuple(left)


async def _step(store: ShardStore, head: Head, name: str) -> list[str]:
    try:
        segments = await store.contract_step(head.shard, head.fence, name, STEP_SEGMENTS)
    except (FencedError, SequenceError):
        return [f"shard {head.shard} was taken over or writes it again"]
    failpoint("contract.stepped")
    return [f"shard {head.shard} holds {segments} segments of it"] if segments else []


async def _wait_removed(
    store: ShardStore, name: str, wait_s: float, on_progress: Callable[[tuple[str, ...]], None]
) -> tuple[str, ...]:
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    while True:
        left = await remains(store, name)
        on_progress(left)
        if not left or clock() >= deadline:
            return left
        await asyncio.sleep(POLL_S)
