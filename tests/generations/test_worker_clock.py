"""Workers whose clock jumps: deletes are remembered for the whole horizon, and fences go on rising."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from dual_index import CATALOG, DOCUMENTS

from tessera.events.change import Record
from tessera.generations.bootstrap import bootstrap
from tessera.limits import Limits
from tessera.shards import caretaker
from tessera.shards.writer import ShardWriter
from tessera.store.memory import MemoryStore

HORIZON_S = 1000
START_S = 1_800_000_000
HOUR_S = 3600.0


@dataclass
class Worker:
    """One shard and its writer; ``now`` is true time and the store's clock, ``skew_s`` the worker's error."""

    now: float = START_S
    skew_s: float = 0.0
    store: MemoryStore = field(default_factory=MemoryStore)
    offset: int = -1

    async def open(self) -> Worker:
        async def now_ms() -> int:
            return round(self.now * 1000)

        self.store.now_ms = now_ms  # type: ignore[method-assign]
        await bootstrap(self.store, {DOCUMENTS.topic: 1})
        self.writer = self.another()
        await self.writer.open()
        return self

    def another(self) -> ShardWriter:
        limits = Limits(tombstone_horizon_s=HORIZON_S)
        clock = lambda: self.now + self.skew_s  # noqa: E731 - read anew at each call
        return ShardWriter(self.store, DOCUMENTS, partitions=1, catalog=CATALOG, limits=limits, clock=clock)

    async def delete(self) -> None:
        event = {"v": 1, "op": "delete", "source": "handbook", "doc_id": "a.md", "revision": 1}
        self.offset += 1
        stamp = round(self.now * 1000)
        value = json.dumps(event).encode()
        record = Record(DOCUMENTS.topic, 0, self.offset, b"handbook/a.md", value, (), stamp)
        await self.writer.write([record])

    async def remembered(self) -> bool:
        await self.writer.tick()
        return bool(await self.store.scan_documents(DOCUMENTS))


@pytest.fixture(autouse=True)
def _reaps_at_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caretaker, "REAP_EVERY_S", -1.0)


def test_a_delete_is_forgotten_behind_the_horizon_and_not_before() -> None:
    async def scenario() -> None:
        worker = await Worker().open()
        await worker.delete()
        worker.now += HORIZON_S
        assert await worker.remembered()
        worker.now += 1
        assert not await worker.remembered()

    asyncio.run(scenario())


@pytest.mark.parametrize("skew_s", [-HOUR_S, HOUR_S])
def test_a_worker_whose_clock_jumps_after_a_delete_forgets_it_no_sooner(skew_s: float) -> None:
    async def scenario() -> None:
        worker = await Worker().open()
        await worker.delete()
        worker.skew_s = skew_s
        worker.now += HORIZON_S - 1
        assert await worker.remembered()

    asyncio.run(scenario())


@pytest.mark.parametrize("skew_s", [-HOUR_S, HOUR_S])
def test_a_delete_applied_by_a_clock_that_is_wrong_is_forgotten_no_sooner(skew_s: float) -> None:
    async def scenario() -> None:
        worker = await Worker(skew_s=skew_s).open()
        await worker.delete()
        worker.skew_s = 0.0
        worker.now += HORIZON_S - 1
        assert await worker.remembered()

    asyncio.run(scenario())


def test_fences_rise_whichever_way_the_clocks_of_workers_jump() -> None:
    async def scenario() -> None:
        worker = await Worker().open()
        fences = [worker.writer.head.fence]
        for worker.skew_s in (HOUR_S, -HOUR_S, 0.0, -2 * HOUR_S):
            fences.append((await worker.another().open()).fence)
        assert fences == sorted(set(fences))

    asyncio.run(scenario())
