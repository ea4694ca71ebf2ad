"""Slots of a Redis Cluster move to another node while a worker writes to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from servers import RedisCluster, RedisServer, redis_cluster

from bench.crash import NAMESPACE, Cluster, Model, Ordeal, compare, publish
from tessera.kafka.admin import ensure_topics
from tessera.store.connect import connect

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]
ORDEAL = Ordeal(events=600, documents=40, logs=4, kills=0, power_losses=0, partitions=2)
DEADLINE_S = 120.0


class Nodes:
    """Stands where the one server does."""

    def __init__(self, running: RedisCluster) -> None:
        self.url = running.url

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        """Whoever started it stops it."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RedisCluster]:
    (tmp_path / "redis").mkdir()
    with redis_cluster(tmp_path / "redis") as running:
        yield running


def client_of(node: RedisServer) -> redis.Redis:
    return redis.Redis(port=node.port, protocol=2, decode_responses=True)


def id_of(node: RedisServer) -> str:
    with client_of(node) as client:
        return str(client.execute_command("CLUSTER MYID"))


def move(slot: int, origin: RedisServer, target: RedisServer, nodes: RedisCluster) -> None:
    """As ``redis-cli --cluster reshard`` moves a slot, slowly enough for writes to come between."""
    with client_of(origin) as leaving, client_of(target) as coming:
        coming.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", id_of(origin))
        leaving.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", id_of(target))
        while keys := leaving.execute_command("CLUSTER GETKEYSINSLOT", slot, 20):
            leaving.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            time.sleep(0.002)
    for node in nodes.nodes:
        with client_of(node) as client:
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", id_of(target))


def held(node: RedisServer) -> set[int]:
    """Slots of a node that hold something of the installation."""
    with client_of(node) as client:
        return {
            int(client.execute_command("CLUSTER KEYSLOT", key)) for key in client.scan_iter(f"{NAMESPACE}*")
        }


def test_slots_move_under_load_and_nothing_is_lost(nodes: RedisCluster, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ORDEAL)
    cluster.redis = Nodes(nodes)  # type: ignore[assignment]
    model = Model()

    async def load(seed: int) -> None:
        partitions = await ensure_topics(cluster.broker.address, ORDEAL.partitions)
        changes = list(model.events(Ordeal(events=ORDEAL.events, documents=40, logs=4, seed=seed)))
        await publish(cluster.broker.address, changes, partitions, model)

    async def agree() -> None:
        store = connect(nodes.url, NAMESPACE)
        try:
            deadline = time.monotonic() + DEADLINE_S
            while True:
                heads: list[Any] = await store.heads(sorted(model.ends))
                if {head.shard: head.applied + 1 for head in heads if head is not None} == model.ends:
                    break
                assert time.monotonic() < deadline, cluster.logs()
                await asyncio.sleep(0.1)
            faults, _, _ = await compare(store, model)
            assert faults == []
        finally:
            await store.close()

    async def play() -> int:
        await load(1)
        await agree()
        moved = 0
        for seed, (origin, target) in enumerate([(0, 1), (1, 2), (2, 0)], 2):
            loading = asyncio.create_task(load(seed))
            for slot in held(nodes.nodes[origin]):
                await asyncio.to_thread(move, slot, nodes.nodes[origin], nodes.nodes[target], nodes)
                moved += 1
            await loading
            await agree()
        return moved

    try:
        cluster.start()
        assert asyncio.run(play()) > 3
    finally:
        cluster.stop()
