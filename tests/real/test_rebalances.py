"""Workers come and go under load, politely and not; nothing is lost, and the next one is soon at work."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.crash import NAMESPACE, Cluster, Model, Ordeal, compare, publish
from streams.app import EMBEDDED_TIMEOUTS_S
from tessera.kafka.admin import ensure_topics
from tessera.store.connect import connect

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]
ORDEAL = Ordeal(events=300, documents=40, logs=4, kills=0, power_losses=0, partitions=4)
DEADLINE_S = 120.0
AGAIN_S = EMBEDDED_TIMEOUTS_S["session"] + EMBEDDED_TIMEOUTS_S["rebalance"] + 10
"""A worker that was killed is replaced, and its partitions are applied again, within this time."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    subject = Cluster(tmp_path, ORDEAL)
    try:
        subject.start()
        yield subject
    finally:
        subject.stop()


async def load(cluster: Cluster, model: Model, seed: int) -> None:
    partitions = await ensure_topics(cluster.broker.address, ORDEAL.partitions)
    changes = list(model.events(Ordeal(events=ORDEAL.events, documents=40, logs=4, seed=seed)))
    await publish(cluster.broker.address, changes, partitions, model)


async def agree(cluster: Cluster, model: Model) -> None:
    store = connect(cluster.redis.url, NAMESPACE)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            heads = await store.heads(sorted(model.ends))
            if {head.shard: head.applied + 1 for head in heads if head is not None} == model.ends:
                break
            assert time.monotonic() < deadline, cluster.logs()
            await asyncio.sleep(0.05)
        faults, _, _ = await compare(store, model)
        assert faults == []
    finally:
        await store.close()


def end(cluster: Cluster, how: signal.Signals) -> None:
    worker = cluster.workers.pop(0)
    worker.send_signal(how)
    worker.wait(30)


def test_one_worker_becomes_four_becomes_two_under_load(cluster: Cluster) -> None:
    model = Model()

    async def play() -> None:
        loading = asyncio.create_task(load(cluster, model, 1))
        for _ in range(3):
            cluster.add_worker()
            await asyncio.sleep(1.5)
        await loading
        loading = asyncio.create_task(load(cluster, model, 2))
        await asyncio.to_thread(end, cluster, signal.SIGTERM)
        await asyncio.to_thread(end, cluster, signal.SIGKILL)
        await loading
        await agree(cluster, model)
        await load(cluster, model, 3)
        await agree(cluster, model)

    asyncio.run(play())


def test_a_worker_that_was_killed_is_soon_replaced(cluster: Cluster) -> None:
    model = Model()

    async def play() -> float:
        await load(cluster, model, 1)
        await agree(cluster, model)
        cluster.kill_worker(0)
        began = time.monotonic()
        await load(cluster, model, 2)
        await agree(cluster, model)
        return time.monotonic() - began

    assert asyncio.run(play()) < AGAIN_S
