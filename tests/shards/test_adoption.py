"""A writer adopts generations while batches go on, and while answers are lost."""

from __future__ import annotations

import asyncio

import pytest
from shard_reading import check_shard
from test_backfill import WINDOW, check_both, fill, move, second
from test_writer import DOCUMENTS, Log, LosesAnswers, delete, new_writer, upsert

from tessera.errors import UnavailableError
from tessera.policies import load_policy
from tessera.store.memory import MemoryStore


class SlowRegistry(MemoryStore):
    """Lets others run for a while whenever the registry or a manifest is read."""

    async def control(self):
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().control()

    async def manifest(self, shard, generation, from_tombstone=0):
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().manifest(shard, generation, from_tombstone)


@pytest.mark.parametrize("ahead", range(0, 30, 3))
def test_a_batch_may_come_at_any_moment_of_an_adoption_and_of_giving_up(ahead: int) -> None:
    async def run() -> None:
        store, log = SlowRegistry(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert("a", 1, "one")), log.add(upsert("b", 1, "one"))])

        async def batches(revision: int) -> None:
            for _ in range(ahead):
                await asyncio.sleep(0)
            for number in range(4):
                await writer.write([log.add(upsert("a", revision + number, f"{revision + number}"))])

        await move(store, g2=second())
        await asyncio.gather(writer.tick(), batches(2))
        await fill(writer)
        await check_both(store, DOCUMENTS, {"handbook/a": "5", "handbook/b": "one"})
        await move(store, g2=second("abandoned"))
        await asyncio.gather(writer.tick(), batches(6))
        await check_shard(
            store, DOCUMENTS, {"handbook/a": "9", "handbook/b": "one"}, load_policy("paragraph")
        )
        assert (await store.head(DOCUMENTS)).live == ("g1",)

    asyncio.run(run())


@pytest.mark.parametrize("applied", [True, False])
def test_an_adoption_whose_answer_was_lost_is_followed_by_batches_of_both(applied: bool) -> None:
    async def run() -> None:
        store, log = LosesAnswers(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert("a", 1, "one")), log.add(upsert("b", 1, "one"))])
        await move(store, g2=second())
        store.lose, store.apply_it = True, applied
        with pytest.raises(UnavailableError):
            await writer.tick()
        await writer.write([log.add(upsert("a", 2, "two")), log.add(delete("b", 2))])
        if applied:
            await check_shard(store, DOCUMENTS, {"handbook/a": "two"}, WINDOW, "g2")
        await fill(writer)
        await check_both(store, DOCUMENTS, {"handbook/a": "two"})

    asyncio.run(run())
