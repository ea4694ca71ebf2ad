"""What generations cost: indexing with two against one, and the steps of a move of the release.

    python -m bench.costs [--pairs 5] [--chunks 100000] [--moves 20]

Indexing: the writer of one shard applies the same events, in batches, to a real store, with one generation
live and with two; runs alternate. Steps: cutovers and rollbacks by turns in this process, with the embedded
servers, on an index of few and of many chunks. "step" is from the control record to the pointer read back.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.query import synthetic
from bench.traffic import CATALOG, Original, corpora
from tessera.embedded.broker import EmbeddedBroker
from tessera.embedded.redis import EmbeddedRedis
from tessera.events.change import Append, Change, Record, Upsert
from tessera.events.encoding import encode_event
from tessera.events.topics import DOCUMENTS, LOGS
from tessera.generations.bootstrap import bootstrap, contract_of, read_registry
from tessera.generations.control import ControlLog, KafkaLog
from tessera.generations.cutover import cutover, rollback
from tessera.generations.operations import Operator
from tessera.generations.record import Action
from tessera.generations.registry import Evidence, Generation, Registry
from tessera.kafka.admin import ensure_topics
from tessera.policies import ChunkPolicy, load_policy
from tessera.settings import load_settings
from tessera.shards.status import read_status
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId, ShardStore
from tessera.store.connect import connect

BATCH = 50
SECOND = load_policy("window-200")
SHARDS = (ShardId(DOCUMENTS, 0), ShardId(LOGS, 0))


def changes_of(originals: Sequence[Original]) -> Iterator[Change]:
    """Every original as it is indexed first, then half of each again: a shrinking edit."""
    for share in (1, 2):
        for each in originals:
            if each.source in ("handbook", "rfcs"):
                content = each.content[: len(each.content) // share]
                yield Upsert(each.source, each.doc_id, share, each.media_type, content, None)
            elif share == 1:
                yield Append(each.source, each.doc_id, 1, each.content, each.media_type)


def records_of(changes: Iterator[Change]) -> dict[ShardId, list[Record]]:
    """The records that carry the changes, all in one partition of each topic."""
    records: dict[ShardId, list[Record]] = {shard: [] for shard in SHARDS}
    for change in changes:
        event = encode_event(change)
        shard = SHARDS[change.source in ("devex", "github")]
        offset = len(records[shard])
        records[shard].append(Record(shard.topic, 0, offset, event.key, event.value))
    return records


async def index(store: ShardStore, records: dict[ShardId, list[Record]], second: bool) -> tuple[float, float]:
    """Apply all records; wall and processor seconds of the writers. ``second``: two generations are live."""
    await bootstrap(store, {shard.topic: 1 for shard in SHARDS})
    if second:
        registry = await read_registry(store)
        building = Generation("g2", contract_of(SECOND), "building")
        await _put(store, replace(registry, generations={**registry.generations, "g2": building}))
    wall = processor = 0.0
    for shard, of in records.items():
        writer = ShardWriter(store, shard, partitions=1, catalog=CATALOG)
        await writer.open()
        await writer.tick()
        for start in range(0, len(of), BATCH):
            began, began_cpu = time.perf_counter(), time.process_time()
            await writer.write(of[start : start + BATCH])
            wall += time.perf_counter() - began
            processor += time.process_time() - began_cpu
    return wall, processor


async def _put(store: ShardStore, registry: Registry) -> None:
    moved = replace(registry, version=registry.version + 1)
    assert await store.put_control(registry.version, moved.to_json(), moved.release.to_json())


async def compare_indexing(url: str, pairs: int) -> list[tuple[float, float]]:
    """Ratios (wall, processor) of two generations to one, one per pair of runs; each run in its namespace."""
    records = records_of(changes_of(corpora()))
    ratios = []
    for pair in range(pairs):
        found = {}
        for second in (False, True) if pair % 2 == 0 else (True, False):
            store = connect(url, f"cost-{pair}-{second}")
            try:
                found[second] = await index(store, records, second)
                for shard in SHARDS:
                    await store.clear(shard)
            finally:
                await store.close()
        one, two = found[False], found[True]
        ratios.append((two[0] / one[0], two[1] / one[1]))
        print(
            f"  indexing {sum(map(len, records.values()))} events: {one[0]:.2f} s with one generation, "
            f"{two[0]:.2f} s with two; processor {one[1]:.2f} and {two[1]:.2f} s",
            flush=True,
        )
    return ratios


class TimedOperator(Operator):
    """Notes how long the steps of its commands took, from the record to the registry."""

    steps: list[float]

    async def step(
        self, registry: Registry, action: Action, generation: str, note: str = "", **values: Any
    ) -> Registry:
        """As :meth:`Operator.step`, timed."""
        began = time.perf_counter()
        try:
            return await super().step(registry, action, generation, note, **values)
        finally:
            self.steps.append(time.perf_counter() - began)


@dataclass(slots=True)
class Moves:
    """Seconds of each move: the step alone, and the whole command."""

    chunks: int
    steps: list[float] = field(default_factory=list)
    wholes: list[float] = field(default_factory=list)

    def told(self) -> str:
        """Median and most, in milliseconds."""
        step, whole = (
            f"{1000 * median(each):.0f} (most {1000 * max(each):.0f}) ms"
            for each in (self.steps, self.wholes)
        )
        return f"{self.chunks:,} chunks: {len(self.steps)} moves, step {step}, whole command {whole}"


async def time_moves(broker: str, url: str, chunks: int, moves: int) -> Moves:
    """Cutovers and rollbacks by turns on an index of so many chunks in the first of both generations."""
    namespace = f"moves-{chunks}"
    store = connect(url, namespace)
    try:
        await _fill(store, chunks)
        servers = {"broker": broker, "redis": url, "namespace": namespace, "retention_s": 0}
        settings = load_settings(servers, join_running=False)
        control = ControlLog(KafkaLog(settings.broker), settings.namespace)
        operator = TimedOperator(store, settings, "bench", control)
        operator.steps = []
        index = await read_status(store)
        held = sum(sum(source.chunks.values()) for source in index.sources.values())
        found = Moves(held)
        for number in range(moves):
            operator.steps.clear()
            began = time.perf_counter()
            await (cutover(operator, "g2") if number % 2 == 0 else rollback(operator))
            found.wholes.append(time.perf_counter() - began)
            found.steps.append(sum(operator.steps))
        return found
    finally:
        await store.close()


async def _fill(store: ShardStore, chunks: int) -> None:
    """One shard with both generations complete, and g2 gated."""
    await bootstrap(store, {DOCUMENTS: 1})
    registry = await read_registry(store)
    contract, now_ms = contract_of(_by_size(60)), round(time.time() * 1000)
    proof = Evidence(
        "g1",
        registry.serving.contract.digest,
        contract.digest,
        "sha256:0",
        {},
        passed=True,
        failed=(),
        figures={},
        at_ms=now_ms,
        expires_at_ms=now_ms + 3_600_000,
    )
    gated = Generation("g2", contract, "gated", evidence=proof)
    await _put(store, replace(registry, generations={**registry.generations, "g2": gated}))
    writer = ShardWriter(store, SHARDS[0], partitions=1, catalog=CATALOG)
    await writer.open()
    await writer.tick()
    while await writer.backfill(0, 1.0):
        pass
    batch: list[Record] = []
    for offset, (doc_id, paragraphs) in enumerate(synthetic(chunks)):
        event = encode_event(
            Upsert("handbook", doc_id, 1, "text/markdown", "\n\n".join(paragraphs) + "\n", None)
        )
        batch.append(Record(DOCUMENTS, 0, offset, event.key, event.value))
        if len(batch) == 4 * BATCH:
            await writer.write(batch)
            batch = []
    if batch:
        await writer.write(batch)
    await writer.tick()


def _by_size(size: int) -> ChunkPolicy:
    return replace(SECOND, name=f"window-{size}", documents=replace(SECOND.documents, size=size))


async def run(pairs: int, chunks: int, moves: int) -> None:
    """Measure all and print it."""
    with tempfile.TemporaryDirectory(prefix="tessera-costs-") as folder:
        broker, redis = EmbeddedBroker(Path(folder) / "broker"), EmbeddedRedis(Path(folder) / "redis")
        with broker, redis:
            ratios = await compare_indexing(redis.url, pairs)
            walls, processors = zip(*ratios, strict=True)
            print(
                f"two generations to one, median of {pairs} pairs: {median(walls):.2f} in wall time, "
                f"{median(processors):.2f} in processor time",
                flush=True,
            )
            await ensure_topics(broker.address, 1)
            for size in (chunks // 100, chunks):
                print((await time_moves(broker.address, redis.url, size, moves)).told(), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.costs", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--moves", type=int, default=20)
    asyncio.run(run(**vars(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
