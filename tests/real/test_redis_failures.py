"""What happens to Redis itself: it is full, it is stopped, it fails over to a replica that lacks the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import redis
from servers import free_port

from bench.backends import redis_binary
from bench.crash import NAMESPACE, Cluster, Model, Ordeal, compare, publish
from tessera.kafka.admin import ensure_topics
from tessera.store.connect import connect

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]
ORDEAL = Ordeal(events=400, documents=40, logs=4, kills=0, power_losses=0, partitions=2)
DEADLINE_S = 90.0
HEALED_S = 10.0
"""A store that is back is healed from Kafka within this time."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    subject = Cluster(tmp_path, ORDEAL)
    try:
        subject.start()
        yield subject
    finally:
        subject.stop()


async def until(done: Callable[[], Awaitable[bool]], cluster: Cluster, within_s: float = DEADLINE_S) -> float:
    """Wait, and return how many seconds it took."""
    began = time.monotonic()
    while not await done():
        assert time.monotonic() < began + within_s, cluster.logs()
        await asyncio.sleep(0.05)
    return time.monotonic() - began


async def load(cluster: Cluster, model: Model, seed: int, events: int = ORDEAL.events) -> None:
    partitions = await ensure_topics(cluster.broker.address, ORDEAL.partitions)
    changes = list(model.events(Ordeal(events=events, documents=40, logs=4, seed=seed)))
    await publish(cluster.broker.address, changes, partitions, model)


async def applied(url: str, model: Model) -> int:
    """Records that a store has applied."""
    store = connect(url, NAMESPACE)
    try:
        heads = await store.heads(sorted(model.ends))
        return sum(head.applied + 1 for head in heads if head is not None)
    finally:
        await store.close()


async def agree(cluster: Cluster, model: Model, within_s: float = DEADLINE_S) -> float:
    """Wait until all is applied and compare it with the model; how long that took."""
    store = connect(cluster.redis.url, NAMESPACE)
    try:

        async def applied() -> bool:
            heads = await store.heads(sorted(model.ends))
            return {head.shard: head.applied + 1 for head in heads if head is not None} == model.ends

        took_s = await until(applied, cluster, within_s)
        faults, _, _ = await compare(store, model)
        assert faults == []
        return took_s
    finally:
        await store.close()


def test_a_store_that_is_full_takes_no_half_and_goes_on_when_there_is_room(cluster: Cluster) -> None:
    model = Model()
    asyncio.run(load(cluster, model, 1))
    asyncio.run(agree(cluster, model))
    with redis.Redis.from_url(cluster.redis.url) as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"])
        asyncio.run(load(cluster, model, 2))

        async def told() -> bool:
            return "waits" in cluster.logs()

        asyncio.run(until(told, cluster))
        assert all(worker.poll() is None for worker in cluster.workers), "it waits, it does not end"
        client.config_set("maxmemory", 0)
    asyncio.run(agree(cluster, model))


def test_a_store_that_is_stopped_and_goes_on_is_waited_for(cluster: Cluster) -> None:
    model = Model()
    asyncio.run(load(cluster, model, 1))
    asyncio.run(agree(cluster, model))
    assert cluster.redis.pid is not None
    os.kill(cluster.redis.pid, signal.SIGSTOP)
    asyncio.run(load(cluster, model, 2))
    time.sleep(3)
    os.kill(cluster.redis.pid, signal.SIGCONT)
    asyncio.run(agree(cluster, model))


def test_a_worker_that_was_stopped_past_its_session_writes_nothing_afterwards(cluster: Cluster) -> None:
    model = Model()
    cluster.add_worker()
    asyncio.run(load(cluster, model, 1))
    asyncio.run(agree(cluster, model))
    zombie = cluster.workers[0]
    zombie.send_signal(signal.SIGSTOP)
    asyncio.run(load(cluster, model, 2))
    asyncio.run(agree(cluster, model))  # the other has taken its partitions
    zombie.send_signal(signal.SIGCONT)
    asyncio.run(load(cluster, model, 3))
    asyncio.run(agree(cluster, model))


def test_a_replica_that_lacks_the_end_is_healed_from_kafka(cluster: Cluster, tmp_path: Path) -> None:
    model = Model()
    asyncio.run(load(cluster, model, 1))
    asyncio.run(agree(cluster, model))
    folder = tmp_path / "replica"
    folder.mkdir()
    port = free_port()
    command = [redis_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--replicaof", "127.0.0.1", str(cluster.redis.port)], stdout=log, stderr=log
        )
    try:
        with redis.Redis(port=port) as replica:

            async def synced() -> bool:
                try:
                    return replica.info("replication")["master_link_status"] == "up"
                except redis.RedisError:
                    return False

            asyncio.run(until(synced, cluster))
            replica.replicaof("NO", "ONE")  # what comes from here on it never sees
            asyncio.run(load(cluster, model, 2))
            asyncio.run(agree(cluster, model))
            assert asyncio.run(applied(f"redis://127.0.0.1:{port}/0", model)) < sum(model.ends.values())
            taken = cluster.redis.port
            cluster.redis.stop()
            replica.config_set("port", taken)
        assert asyncio.run(agree(cluster, model, within_s=HEALED_S)) < HEALED_S
    finally:
        process.terminate()
        process.wait()
