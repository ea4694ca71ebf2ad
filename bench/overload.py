"""Overload: changes come ten times as fast as a worker applies them; what its memory does, and what is lost.

    python -m bench.overload [--seconds 20] [--documents 2000]

Finds how fast one worker applies changes of about 2 KB, publishes ten times as many a second for a while, and
waits until all is applied. Prints the worker's memory before, at most, and afterwards; compares with the
model. ``TESSERA_TEST_SERVERS=real`` runs it on Apache Kafka and ``redis-server``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer

from bench.crash import NAMESPACE, Cluster, Model, Ordeal, compare
from tessera.events.change import Upsert
from tessera.events.encoding import encode_event
from tessera.events.topics import DOCUMENTS, partition_of
from tessera.kafka.admin import ensure_topics
from tessera.store.base import ShardId
from tessera.store.connect import connect

PARTITIONS = 4
TIMES = 10
PACE_CHANGES = 4_000
PARAGRAPH = "The gauge at the weir is read every hour, and its level goes into the table of the day. " * 5
MIB = 1024 * 1024


class Load:
    """Upserts of so many documents by turns, each revision other than the one before."""

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self._number = 0
        self.model = Model()

    async def send(self, producer: AIOKafkaProducer, changes: int) -> None:
        """Publish so many, and note what must be there then."""
        sent = []
        for _ in range(changes):
            self._number += 1
            doc_id = f"d{self._number % self._documents}.md"
            content = f"# Reading {self._number}\n\n" + "\n\n".join([PARAGRAPH] * 4) + "\n"
            change = Upsert("handbook", doc_id, self._number, "text/markdown", content, ("*",))
            event = encode_event(change)
            self.model.contents[f"handbook/{doc_id}"] = content
            partition = partition_of(event.key, PARTITIONS)
            sent.append(await producer.send(DOCUMENTS, event.value, event.key, partition))
        for metadata in await asyncio.gather(*sent):
            shard = ShardId(metadata.topic, metadata.partition)
            self.model.ends[shard] = max(self.model.ends.get(shard, 0), metadata.offset + 1)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def run(seconds: float, documents: int) -> int:
    """Print the figures; the number of faults."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), Ordeal(partitions=PARTITIONS))
        try:
            cluster.start()
            return await _overload(cluster, Load(documents), seconds)
        finally:
            cluster.stop()


async def _overload(cluster: Cluster, load: Load, seconds: float) -> int:
    await ensure_topics(cluster.broker.address, PARTITIONS)
    store = connect(cluster.redis.url, NAMESPACE)
    pid = cluster.workers[0].pid
    most = 0

    async def applied() -> int:
        nonlocal most
        most = max(most, memory_bytes(pid))
        heads = await store.heads(sorted(load.model.ends))
        return sum(head.applied + 1 for head in heads if head is not None)

    async def caught_up() -> float:
        began = time.perf_counter()
        while await applied() < sum(load.model.ends.values()):  # noqa: ASYNC110 - asked of the store
            await asyncio.sleep(0.05)
        return time.perf_counter() - began

    producer = AIOKafkaProducer(bootstrap_servers=cluster.broker.address, acks="all", max_batch_size=MIB)
    await producer.start()
    try:
        await load.send(producer, PACE_CHANGES)
        pace = PACE_CHANGES / await caught_up()
        before = memory_bytes(pid)
        print(
            f"one worker applies {pace:,.0f} changes a second; its memory is {before / MIB:.0f} MiB",
            flush=True,
        )
        ends = time.perf_counter() + seconds
        sent = 0
        while time.perf_counter() < ends:
            began = time.perf_counter()
            chunk = max(1, round(TIMES * pace / 10))
            await load.send(producer, chunk)
            sent += chunk
            await applied()
            await asyncio.sleep(max(0.0, 0.1 - (time.perf_counter() - began)))
        behind = sum(load.model.ends.values()) - await applied()
        times = sent / seconds / pace
        print(f"{sent:,} published in {seconds:.0f} s, {times:.1f} times that; {behind:,} to go", flush=True)
        took_s = await caught_up()
        faults, held, _ = await compare(store, load.model)
        after = memory_bytes(pid)
        print(
            f"caught up in {took_s:.0f} s; memory at most {most / MIB:.0f} MiB, then {after / MIB:.0f} MiB; "
            f"{held} documents, {len(faults)} faults"
        )
        return len(faults)
    finally:
        await producer.stop()
        await store.close()


def main() -> int:
    """Run it; 1 where something is lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--documents", type=int, default=2_000)
    given = parser.parse_args()
    return 1 if asyncio.run(run(given.seconds, given.documents)) else 0


if __name__ == "__main__":
    sys.exit(main())
