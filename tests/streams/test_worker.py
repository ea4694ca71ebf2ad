"""Worker processes against embedded servers: start, stop, servers that go away, two workers, another log."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from bench.backends import begin_anew, new_redis
from bench.crash import NAMESPACE, Cluster, Model, Ordeal, compare, publish
from tessera.embedded.process import free_port
from tessera.events.topics import DOCUMENTS
from tessera.kafka.admin import ensure_topics
from tessera.store.base import ShardId
from tessera.store.connect import connect

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

ORDEAL = Ordeal(events=200, documents=30, logs=4, kills=0, power_losses=0)
DEADLINE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    subject = Cluster(tmp_path, ORDEAL)
    try:
        yield subject
    finally:
        subject.stop()


async def until(done: Callable[[], Awaitable[bool]], cluster: Cluster) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await done():
        assert time.monotonic() < deadline, cluster.logs()
        await asyncio.sleep(0.02)


async def publish_and_compare(cluster: Cluster, model: Model, seed: int) -> None:
    """Publish more events, wait until they are applied, compare all with the model."""
    partitions = await ensure_topics(cluster.broker.address, ORDEAL.partitions)
    changes = list(model.events(Ordeal(events=ORDEAL.events, documents=30, logs=4, seed=seed)))
    await publish(cluster.broker.address, changes, partitions, model)
    store = connect(cluster.redis.url, NAMESPACE)
    try:

        async def applied() -> bool:
            heads = await store.heads(sorted(model.ends))
            return {h.shard: h.applied + 1 for h in heads if h is not None} == model.ends

        await until(applied, cluster)
        faults, _, _ = await compare(store, model)
        assert faults == []
    finally:
        await store.close()


def test_it_serves_metrics_survives_a_store_that_goes_away_and_stops_within_two_seconds(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("TESSERA_METRICS_PORT", str(port))
    cluster.start()
    model = Model()
    asyncio.run(publish_and_compare(cluster, model, seed=1))

    redis_port = cluster.redis.port
    cluster.redis.stop()
    cluster.redis = type(cluster.redis)(cluster.folder / "redis", redis_port)
    cluster.redis.start()
    asyncio.run(publish_and_compare(cluster, model, seed=2))

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'tessera_shard_applied_offset{partition="0",topic="tessera.documents"}' in text
    assert 'tessera_batch_seconds_count{topic="tessera.logs"}' in text

    [worker] = cluster.workers
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert time.monotonic() - started < 2.0, cluster.logs()


def test_two_workers_share_the_shards_and_one_takes_over_from_the_other(cluster: Cluster) -> None:
    cluster.start()
    cluster.add_worker()
    model = Model()
    asyncio.run(publish_and_compare(cluster, model, seed=1))
    gone = cluster.workers.pop()
    gone.send_signal(signal.SIGKILL)
    gone.wait()
    asyncio.run(publish_and_compare(cluster, model, seed=2))


def test_a_log_made_anew_is_refused_and_indexed_once_it_is_adopted(cluster: Cluster) -> None:
    cluster.start()
    applied_before = Model()
    asyncio.run(publish_and_compare(cluster, applied_before, seed=1))

    begin_anew(cluster.broker)

    async def refused_then_adopted() -> None:
        model = Model()
        partitions = await ensure_topics(cluster.broker.address, ORDEAL.partitions)
        changes = list(model.events(Ordeal(events=50, documents=10, logs=2, seed=3)))
        await publish(cluster.broker.address, changes, partitions, model)
        shards = sorted(applied_before.ends)
        store = connect(cluster.redis.url, NAMESPACE)
        before = await store.heads(shards)

        async def all_refused() -> bool:
            return all(f"{shard}: refused" in cluster.logs() for shard in shards)

        await until(all_refused, cluster)
        after = await store.heads(shards)
        assert [h and h.applied for h in after] == [h and h.applied for h in before]
        for shard in shards:
            await store.adopt_log(shard)

        async def applied() -> bool:
            heads = await store.heads(sorted(model.ends))
            return {h.shard: h.applied + 1 for h in heads if h is not None} == model.ends

        await until(applied, cluster)
        await store.close()

    asyncio.run(refused_then_adopted())


def test_while_the_broker_is_away_it_says_so_seldom_and_still_stops(cluster: Cluster) -> None:
    cluster.start()
    asyncio.run(publish_and_compare(cluster, Model(), seed=1))
    cluster.broker.stop()

    async def noticed() -> bool:
        return "Unable connect to node" in cluster.logs()

    asyncio.run(until(noticed, cluster))
    [worker] = cluster.workers
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert time.monotonic() - started < 8.0
    assert len(cluster.logs().splitlines()) < 25, cluster.logs()


def test_without_a_broker_it_says_which_address_and_ends(tmp_path: Path) -> None:
    with new_redis(tmp_path / "redis") as redis:
        address = f"127.0.0.1:{free_port()}"
        environment = {
            **os.environ,
            "TESSERA_BROKER": address,
            "TESSERA_REDIS": redis.url,
            "TESSERA_DATA_DIR": str(tmp_path),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "streams"], env=environment, capture_output=True, timeout=30, check=False
        )
    assert ended.returncode == 1
    assert address in ended.stderr.decode()
    assert len(ended.stderr.decode().strip().splitlines()) == 1, ended.stderr.decode()


EVIL_PRODUCER = """
import asyncio, json, sys
from aiokafka import AIOKafkaProducer

class Name(str):
    def encode(self, *_):
        return b"\\xff\\xfe"

async def main(address, topic, first, count):
    producer = AIOKafkaProducer(bootstrap_servers=address, acks="all")
    await producer.start()
    for number in range(first, first + count):
        event = {"v": 1, "op": "upsert", "source": "handbook", "doc_id": f"d{number}", "revision": 1}
        value = json.dumps(event | {"media_type": "text/plain", "content": "text"}).encode()
        key = b"handbook/d%d" % number
        time_ns = 1_700_000_000_123_456_789 + number
        await producer.send_and_wait(topic, value, key, 0, headers=[(Name("k"), b"v")], timestamp_ms=time_ns)
    await producer.stop()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


def test_names_of_headers_and_times_that_no_client_would_send_stop_neither_a_worker_nor_the_next_one(
    tmp_path: Path,
) -> None:
    shard = ShardId(DOCUMENTS, 0)
    cluster = Cluster(tmp_path, Ordeal(workers=1, partitions=1))

    def produce(first: int, count: int) -> None:
        subprocess.run(
            [sys.executable, "-c", EVIL_PRODUCER, cluster.broker.address, DOCUMENTS, str(first), str(count)],
            env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"},
            check=True,
            timeout=30,
        )

    async def applied(offset: int) -> None:
        store = connect(cluster.redis.url, NAMESPACE)

        async def there() -> bool:
            head = await store.head(shard)
            return head is not None and head.applied == offset

        try:
            await until(there, cluster)
            assert await store.deadletters(shard) == {}
        finally:
            await store.close()

    try:
        cluster.start()
        asyncio.run(ensure_topics(cluster.broker.address, 1))
        produce(0, 3)
        asyncio.run(applied(2))
        cluster.kill_worker(0)
        produce(3, 1)
        asyncio.run(applied(3))
        assert "refused" not in cluster.logs()
    finally:
        cluster.stop()
