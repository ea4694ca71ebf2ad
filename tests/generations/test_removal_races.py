"""A removal that overtakes the adoption of the same generation: what was told to be gone stays gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from dual_index import CATALOG, DOCUMENTS, LOGS
from installation import NAMESPACE, Installation, policy
from test_contraction import with_documents

from tessera.errors import SequenceError
from tessera.generations.contraction import Removal, abandon
from tessera.generations.control import ControlLog
from tessera.shards.writer import ShardWriter
from tessera.store.base import Commit, Head
from tessera.store.memory import MemoryStore


class OvertakenStore(MemoryStore):
    """Does something else first when a shard is about to adopt a generation."""

    first: Callable[[], Awaitable[object]] | None = None

    async def commit(self, commit: Commit) -> Head:
        head = await self.head(commit.shard)
        adopts = head is not None and not set(commit.standings or ()) <= set(head.live)
        if adopts and self.first is not None:
            first, self.first = self.first, None
            await first()
        return await super().commit(commit)


def test_an_adoption_under_way_comes_to_nothing_once_its_generation_was_told_to_be_gone() -> None:
    async def scenario() -> None:
        store = OvertakenStore()
        here = await Installation(store=store).open()
        await with_documents(here)
        await here.operator().create(policy(), "g2")
        told: list[Removal] = []

        async def give_up() -> None:
            told.append(await abandon(here.operator(), "g2", wait_s=0))

        store.first = give_up
        with pytest.raises(SequenceError, match="generation g2: it was removed"):
            await here.writers[DOCUMENTS].tick()
        assert [removal.done for removal in told] == [True]
        assert [head.live for head in await store.heads([DOCUMENTS, LOGS]) if head] == [("g1",), ("g1",)]
        await ControlLog(here.log, NAMESPACE).reapply(store)
        for shard in (DOCUMENTS, LOGS):
            here.writers[shard] = ShardWriter(store, shard, partitions=1, catalog=CATALOG)
            await here.writers[shard].open()
        await with_documents(here, 5)
        await here.tick()
        assert [head.live for head in await store.heads([DOCUMENTS, LOGS]) if head] == [("g1",), ("g1",)]
        assert await abandon(here.operator(), "g2", wait_s=0) == told[0]
        assert not [name for name in await store.counters(DOCUMENTS) if ":g2:" in name]

    asyncio.run(scenario())


def test_a_removal_that_an_adoption_overtook_tells_who_writes_the_generation() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await with_documents(here)
        await here.operator().create(policy(), "g2")
        await here.writers[DOCUMENTS].tick()
        begun = await abandon(here.operator(), "g2", wait_s=0)
        assert begun.waits_for == ("shard tessera.documents/0 writes it",)
        await here.tick()
        assert (await abandon(here.operator(), "g2", wait_s=0)).done

    asyncio.run(scenario())
