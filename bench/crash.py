"""Kill workers and cut the store's power while events stream in, then compare everything with a model.

``python -m bench.crash`` runs the long form: 20,000 events, 10 SIGKILLs of the worker, one power loss of the
Redis-compatible server (killed, and the last second of its append-only file cut off). Every document must
end with its last revision and content, every chunk of it exactly once, nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from tessera.documents.record import DocumentRecord
from tessera.documents.text import decompress
from tessera.embedded.broker import EmbeddedBroker
from tessera.embedded.redis import EmbeddedRedis
from tessera.errors import UnavailableError
from tessera.events.change import Append, Change, Delete, Upsert, document_key
from tessera.events.encoding import encode_event
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS, LOGS, partition_of
from tessera.index.codec import decode
from tessera.index.merge import dead_chunks
from tessera.ingestion import chunk_text
from tessera.kafka.admin import ensure_topics
from tessera.store.base import ShardId, ShardStore
from tessera.store.connect import connect

GENERATION = "g1"
NAMESPACE = "crash"
SETTINGS = """\
[sources.handbook]
kind = "documents"
revision_from = "event"

[sources.devex]
kind = "devex"
"""


@dataclass(frozen=True, slots=True)
class Ordeal:
    """How much happens. ``pace_s`` is slept between chunks of ``burst`` events, so that faults hit busy work."""

    events: int = 20_000
    documents: int = 500
    logs: int = 40
    kills: int = 10
    power_losses: int = 1
    workers: int = 1
    partitions: int = 4
    seed: int = 1
    burst: int = 100
    timeout_s: float = 600.0


@dataclass(slots=True)
class Model:
    """What must be searchable in the end: contents by document key, None for a deleted document."""

    contents: dict[str, str | None] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    ends: dict[ShardId, int] = field(default_factory=dict)

    def events(self, ordeal: Ordeal) -> Iterator[Change]:
        """Random changes, each applied to the model as it is made."""
        random_ = random.Random(ordeal.seed)
        for number in range(ordeal.events):
            if random_.random() < 0.2:
                yield self._append(f"run_R-{random_.randrange(ordeal.logs)}", number)
            else:
                yield self._document(f"d{random_.randrange(ordeal.documents)}.md", number, random_)

    def _append(self, doc_id: str, number: int) -> Append:
        key = document_key("devex", doc_id)
        held = self.contents.get(key) or ""
        lines = f"step {number} begins\nworking on {number}\n\n"
        self.contents[key] = held + lines
        return Append("devex", doc_id, held.count("\n") + 1, lines, "text/x-run-log")

    def _document(self, doc_id: str, number: int, random_: random.Random) -> Change:
        key = document_key("handbook", doc_id)
        revision = self.revisions.get(key, 0) + random_.randint(1, 3)
        self.revisions[key] = revision
        if random_.random() < 0.1:
            self.contents[key] = None
            return Delete("handbook", doc_id, revision)
        paragraphs = [f"paragraph {n} of event {number}, word{n}" for n in range(random_.randint(1, 6))]
        content = f"# Document {doc_id}\n\n" + "\n\n".join(paragraphs) + "\n"
        self.contents[key] = content
        return Upsert("handbook", doc_id, revision, "text/markdown", content, None)


class Cluster:
    """Embedded servers and worker processes, all children of this process."""

    def __init__(self, folder: Path, ordeal: Ordeal) -> None:
        self.folder = folder
        self.ordeal = ordeal
        self.broker = EmbeddedBroker(folder / "broker")
        self.redis = EmbeddedRedis(folder / "redis")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.starts = 0

    def start(self) -> None:
        """Start servers, then workers."""
        (self.folder / "tessera.toml").write_text(SETTINGS)
        self.broker.start()
        self.redis.start()
        self.workers = [self._worker() for _ in range(self.ordeal.workers)]

    def stop(self) -> None:
        """Stop everything that was started, workers first."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.redis.stop()
        self.broker.stop()

    def kill_worker(self, index: int) -> None:
        """SIGKILL one worker and start another in its place."""
        self.workers[index].send_signal(signal.SIGKILL)
        self.workers[index].wait()
        self.workers[index] = self._worker()

    def revive(self) -> None:
        """Start workers again that ended by themselves, as a supervisor would."""
        for index, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.workers[index] = self._worker()

    def lose_power(self) -> int:
        """Kill the store, cut what it wrote in the last second, start it again; return the bytes cut."""
        log = self._incremental_log()
        before = log.stat().st_size
        time.sleep(1.0)
        pid = self.redis.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        port = self.redis.port
        self.redis.stop()
        size = log.stat().st_size
        os.truncate(log, min(before, size))
        self.redis = EmbeddedRedis(self.folder / "redis", port)
        self.redis.start()
        return size - min(before, size)

    def logs(self) -> str:
        """What the workers said."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("worker*.log")))

    def _incremental_log(self) -> Path:
        [path] = (self.folder / "redis" / "appendonlydir").glob("*.incr.aof")
        return path

    def _worker(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        environment = {
            **os.environ,
            "TESSERA_BROKER": self.broker.address,
            "TESSERA_REDIS": self.redis.url,
            "TESSERA_NAMESPACE": NAMESPACE,
            "TESSERA_EMBEDDED": "1",
            "TESSERA_CONFIG": str(self.folder / "tessera.toml"),
            "TESSERA_DATA_DIR": str(self.folder),
        }
        with (self.folder / f"worker{self.starts:03d}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "streams"], env=environment, stdout=log, stderr=subprocess.STDOUT
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found. ``faults`` is empty where everything is as it must be."""

    faults: tuple[str, ...]
    documents: int
    chunks: int
    duplicates: int
    worker_starts: int
    bytes_cut: int
    seconds: float
    worker_logs: str


async def run(ordeal: Ordeal, report: Callable[[str], None] = lambda line: None) -> Outcome:
    """Run one ordeal in a folder of its own and compare the result with the model."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tessera-crash-") as folder:
        cluster = Cluster(Path(folder), ordeal)
        try:
            cluster.start()
            model = Model()
            bytes_cut = await _torment(cluster, model, report)
            store = connect(cluster.redis.url, NAMESPACE)
            try:
                await _until_applied(cluster, model, store, report)
                faults, documents, chunks = await compare(store, model)
                duplicates = await _duplicates(store, model)
            finally:
                await store.close()
            starts, logs = cluster.starts, cluster.logs()
        finally:
            cluster.stop()
    seconds = time.monotonic() - started
    return Outcome(tuple(faults), documents, chunks, duplicates, starts, bytes_cut, seconds, logs)


async def _torment(cluster: Cluster, model: Model, report: Callable[[str], None]) -> int:
    """Publish all events; between bursts, at random moments, break something. Returns bytes cut."""
    ordeal = cluster.ordeal
    random_ = random.Random(ordeal.seed + 1)
    partitions = await ensure_topics(cluster.broker.address, ordeal.partitions)
    bursts = max(1, ordeal.events // ordeal.burst)
    moments = random_.sample(range(1, bursts), ordeal.kills + ordeal.power_losses)
    powers = set(random_.sample(moments, ordeal.power_losses))
    producer = AIOKafkaProducer(bootstrap_servers=cluster.broker.address, acks="all")
    await producer.start()
    cut = 0
    try:
        events = model.events(ordeal)
        for burst in range(bursts):
            await _publish(producer, [next(events) for _ in range(ordeal.burst)], partitions, model)
            if burst in powers:
                await _wait_for_progress(cluster, model)
                cut += await asyncio.to_thread(_main_thread_only, cluster)
                report(f"{(burst + 1) * ordeal.burst} events: power lost, {cut} bytes cut")
            elif burst in moments:
                await _wait_for_progress(cluster, model)
                await asyncio.sleep(random_.random() * 0.3)
                cluster.kill_worker(random_.randrange(ordeal.workers))
                report(f"{(burst + 1) * ordeal.burst} events: worker killed")
    finally:
        await producer.stop()
    return cut
