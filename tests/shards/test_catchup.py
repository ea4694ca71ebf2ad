from __future__ import annotations

import asyncio

from tessera.shards.catchup import wait_applied
from tessera.store.base import Commit, ShardId
from tessera.store.memory import MemoryStore

SHARD = ShardId("tessera.documents", 0)


def test_it_waits_until_the_offset_is_applied_and_tells_how_many_are_left():
    async def run() -> tuple[bool, list[int]]:
        store, told = MemoryStore(), []

        async def apply() -> None:
            head = await store.claim(SHARD, [])
            for offset in (3, 9):
                await asyncio.sleep(0.06)
                head = await store.commit(Commit(SHARD, head.fence, head.seq, applied=offset))

        reached, _ = await asyncio.gather(wait_applied(store, {SHARD: 9}, 5, told.append), apply())
        return reached, told

    reached, told = asyncio.run(run())
    assert reached
    assert told[0] == 10
    assert told[-1] == 0
    assert told == sorted(told, reverse=True)


def test_it_gives_up_once_nothing_moves():
    assert not asyncio.run(wait_applied(MemoryStore(), {SHARD: 0}, 0.1))
    assert asyncio.run(wait_applied(MemoryStore(), {SHARD: -1}, 0.1))
