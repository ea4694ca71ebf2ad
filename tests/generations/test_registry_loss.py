"""A registry that falls back while workers run: nothing that was given up comes back half empty."""

from __future__ import annotations

import asyncio
import json

import pytest
from dual_index import CATALOG, DOCUMENTS, SHARDS
from installation import NAMESPACE, Installation, broker_that_knows
from test_contraction import with_documents

from tessera.errors import SequenceError
from tessera.events.change import Record
from tessera.generations.contraction import abandon, contract
from tessera.generations.control import ControlLog
from tessera.generations.cutover import cutover
from tessera.shards.writer import ShardWriter
from tessera.store.memory import MemoryStore


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    broker_that_knows(monkeypatch, {})


def test_a_worker_does_not_adopt_again_what_it_gave_up_when_the_registry_falls_back() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        store = here.store
        assert isinstance(store, MemoryStore)
        await with_documents(here)
        await here.gated()
        kept = (store._version, store._registry, store._release)
        await abandon(here.operator(), "g2", wait_s=0)
        await here.tick()
        store._version, store._registry, store._release = kept
        writer = here.writers[DOCUMENTS]
        with pytest.raises(SequenceError, match="fallen back from version 5 to 4"):
            await writer.tick()
        assert writer.head.live == ("g1",)
        await ControlLog(here.log, NAMESPACE).reapply(store)
        successor = ShardWriter(store, DOCUMENTS, partitions=1, catalog=CATALOG)
        await successor.open()
        await successor.tick()
        assert successor.head.live == ("g1",)
        assert (await here.states())["g2"] == "abandoned"

    asyncio.run(scenario())


def test_a_worker_that_was_told_of_the_registry_at_its_claim_notices_as_well() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        store = here.store
        assert isinstance(store, MemoryStore)
        kept = (store._version, store._registry, store._release)
        await here.operator().hold("g1", "kept")
        writer = ShardWriter(store, DOCUMENTS, partitions=1, catalog=CATALOG)
        await writer.open()
        store._version, store._registry, store._release = kept
        with pytest.raises(SequenceError, match="fallen back"):
            await writer.tick()

    asyncio.run(scenario())


def test_changes_after_a_contraction_leave_no_counter_and_no_mark_of_it() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await with_documents(here)
        await here.gated()
        await cutover(here.operator(), "g2", retention_s=0)
        await contract(here.operator(), "g1", wait_s=0)
        await here.tick()
        assert (await contract(here.operator(), "g1", wait_s=0)).done
        change = {"v": 1, "op": "delete", "source": "handbook", "doc_id": "0.md", "revision": 2}
        record = Record(DOCUMENTS.topic, 0, 5, b"handbook/0.md", json.dumps(change).encode())
        await here.writers[DOCUMENTS].write([record])
        counted = [name for shard in SHARDS for name in await here.store.counters(shard)]
        assert not [name for name in counted if ":g1:" in name]
        await here.gated("g3", 7)
        records = await here.store.scan_documents(DOCUMENTS)
        assert len(records) == 5
        assert not [key for key, record in records if b'"g1"' in record]

    asyncio.run(scenario())
