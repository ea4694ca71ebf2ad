"""What happens to Kafka itself: nodes die under load, records are removed before anybody read them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from bench.crash import NAMESPACE, Cluster, Model, Ordeal, compare, publish
from bench.local_kafka import LocalKafka
from tessera.events.topics import DOCUMENTS
from tessera.kafka.admin import ensure_topics
from tessera.store.base import ShardId
from tessera.store.connect import connect

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]
ORDEAL = Ordeal(events=400, documents=40, logs=4, kills=0, power_losses=0, partitions=3)
QUICK = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
DEADLINE_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes that hold every record twice at least before it counts as sent."""
    monkeypatch.setenv("TESSERA_REPLICATION_FACTOR", "3")
    subject = Cluster(tmp_path, ORDEAL)
    subject.broker = LocalKafka(tmp_path / "kafka", 3, settings={"min.insync.replicas": "2", **QUICK})
    try:
        yield subject
    finally:
        subject.stop()


async def until(done: Callable[[], Awaitable[bool]], cluster: Cluster) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await done():
        assert time.monotonic() < deadline, cluster.logs()
        await asyncio.sleep(0.1)


async def agree(cluster: Cluster, model: Model) -> None:
    """Wait until all is applied, and compare all of it with the model."""
    store = connect(cluster.redis.url, NAMESPACE)
    try:

        async def applied() -> bool:
            heads = await store.heads(sorted(model.ends))
            return {head.shard: head.applied + 1 for head in heads if head is not None} == model.ends

        await until(applied, cluster)
        faults, documents, _ = await compare(store, model)
        assert faults == []
        assert documents
    finally:
        await store.close()


def test_a_node_dies_under_load_and_another_and_nothing_is_lost(cluster: Cluster) -> None:
    cluster.start_servers()
    kafka = cluster.broker
    assert isinstance(kafka, LocalKafka)
    partitions = asyncio.run(ensure_topics(kafka.address, 3, replication_factor=3))
    cluster.add_worker()
    model = Model()

    async def load(seed: int) -> None:
        changes = list(model.events(Ordeal(events=ORDEAL.events, documents=40, logs=4, seed=seed)))
        await publish(kafka.address, changes, partitions, model)

    async def load_while_it_dies(number: int) -> None:
        loading = asyncio.create_task(load(number))
        await asyncio.sleep(0.1)
        kafka.kill(kafka.nodes[number])
        await loading

    asyncio.run(load(9))
    asyncio.run(agree(cluster, model))
    for number in (0, 1):
        asyncio.run(load_while_it_dies(number))
        asyncio.run(agree(cluster, model))
        kafka.start_node(kafka.nodes[number])
        kafka.wait_ready(kafka.nodes[number])
        time.sleep(5)  # until its copies are whole again: with two nodes away nothing is taken
    asyncio.run(load(7))
    asyncio.run(agree(cluster, model))


def test_records_that_are_gone_before_anybody_read_them_are_told(cluster: Cluster) -> None:
    cluster.broker = LocalKafka(cluster.folder / "one", settings=QUICK)
    cluster.start_servers()
    address = cluster.broker.address
    partitions = asyncio.run(ensure_topics(address, 3))
    cluster.add_worker()
    model = Model()

    async def load(seed: int) -> None:
        changes = list(model.events(Ordeal(events=200, documents=30, logs=3, seed=seed)))
        await publish(address, changes, partitions, model)

    asyncio.run(load(1))
    asyncio.run(agree(cluster, model))
    cluster.workers[0].kill()
    cluster.workers[0].wait()
    cluster.workers.clear()
    asyncio.run(load(2))
    shard = next(each for each in sorted(model.ends) if each.topic == DOCUMENTS)

    async def removed() -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            before = RecordsToDelete(before_offset=model.ends[shard] - 1)
            found = await admin.delete_records({TopicPartition(*shard): before})
            return next(iter(found.values()))
        finally:
            await admin.close()

    assert asyncio.run(removed()) == model.ends[shard] - 1
    cluster.add_worker()

    async def told() -> bool:
        return f"{shard}: the log begins at offset {model.ends[shard] - 1}" in cluster.logs()

    asyncio.run(until(told, cluster))

    async def goes_on() -> None:
        store = connect(cluster.redis.url, NAMESPACE)
        try:

            async def applied() -> bool:
                heads = await store.heads([ShardId(*shard)])
                return heads[0] is not None and heads[0].applied + 1 == model.ends[shard]

            await until(applied, cluster)
        finally:
            await store.close()

    asyncio.run(goes_on())
