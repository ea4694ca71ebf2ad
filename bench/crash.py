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
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer

from bench.backends import new_broker, new_redis
from tessera.documents.record import DocumentRecord
from tessera.documents.text import block_ids, decompress
from tessera.errors import UnavailableError
from tessera.events.change import Append, Change, Delete, Upsert, document_key
from tessera.events.encoding import encode_event
from tessera.events.topics import DOCUMENTS, LOGS, partition_of
from tessera.failpoints import VARIABLE
from tessera.index.codec import decode
from tessera.index.merge import dead_chunks
from tessera.index.segment import segment_blob
from tessera.ingestion import chunk_text
from tessera.kafka.admin import ensure_topics
from tessera.store.base import ShardId, ShardStore
from tessera.store.connect import connect

GENERATION = "g1"
NAMESPACE = "crash"
SYNC_S = 1.0
"""What a power loss may cost with ``appendfsync everysec``."""
READY = "streams.worker: ready"
"""What a worker says once it has started."""
KILL_WITHIN_S = 0.3
"""A burst is applied within about this time."""
SETTINGS = """\
[sources.handbook]
kind = "documents"
revision_from = "event"

[sources.devex]
kind = "devex"
"""


@dataclass(frozen=True, slots=True)
class Ordeal:
    """How much happens; faults strike between bursts of events, once the last fault has been got over."""

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
    """Embedded servers and worker processes, all children of this process.

    Each worker started takes the next of ``failpoints``, while there are any; ``fired`` are those that one
    died at.
    """

    def __init__(self, folder: Path, ordeal: Ordeal, settings: str = SETTINGS) -> None:
        self.folder = folder
        self.ordeal = ordeal
        self.settings = settings
        self.failpoints: deque[str] = deque()
        self.fired: list[str] = []
        self._armed: dict[int, str] = {}
        self._logs: dict[int, Path] = {}
        self.broker = new_broker(folder / "broker")
        self.redis = new_redis(folder / "redis")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.starts = 0
        self.exits: list[int] = []

    def start(self) -> None:
        """Start servers, then workers."""
        self.start_servers()
        self.workers = [self._worker() for _ in range(self.ordeal.workers)]

    def start_servers(self) -> None:
        """Start the broker and the store."""
        (self.folder / "tessera.toml").write_text(self.settings)
        self.broker.start()
        self.redis.start()

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

    def add_worker(self) -> None:
        """Start one more worker."""
        self.workers.append(self._worker())

    def kill_worker(self, index: int) -> None:
        """SIGKILL one worker and start another in its place."""
        self.workers[index].send_signal(signal.SIGKILL)
        self.workers[index].wait()
        self.workers[index] = self._worker()

    def revive(self) -> None:
        """Start workers again that ended by themselves, as a supervisor would."""
        for index, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.exits.append(worker.returncode)
                if worker.returncode == -signal.SIGKILL:
                    self.fired.append(self._armed.get(worker.pid, ""))
                self.workers[index] = self._worker()

    def are_ready(self) -> bool:
        """Whether every worker has started and lives: one that starts may end where a server is away."""
        started = (READY in self._logs[worker.pid].read_text() for worker in self.workers)
        return all(worker.poll() is None for worker in self.workers) and all(started)

    def log_bytes(self) -> int:
        """Size of the store's append-only file."""
        return self._incremental_log().stat().st_size

    def lose_power(self, synced_bytes: int) -> int:
        """Kill the store, cut its file to what was synced, start it again; return the bytes cut."""
        cut = self.cut_power(synced_bytes)
        self.restore_power()
        return cut

    def cut_power(self, synced_bytes: int) -> int:
        """Kill the store and cut its file to what was synced; return the bytes cut."""
        pid, log = self.redis.pid, self._incremental_log()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.redis.stop()
        size = log.stat().st_size
        os.truncate(log, min(synced_bytes, size))
        return size - min(synced_bytes, size)

    def restore_power(self) -> None:
        """Start the store again, at its old address."""
        self.redis = new_redis(self.folder / "redis", self.redis.port)
        self.redis.start()

    def logs(self) -> str:
        """What the workers said."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("worker*.log")))

    def _incremental_log(self) -> Path:
        [path] = (self.folder / "redis" / "appendonlydir").glob("*.incr.aof")
        return path

    def environment(self) -> dict[str, str]:
        """What a process needs to find the servers."""
        return {
            **os.environ,
            "TESSERA_BROKER": self.broker.address,
            "TESSERA_REDIS": self.redis.url,
            "TESSERA_NAMESPACE": NAMESPACE,
            "TESSERA_EMBEDDED": "1",
            "TESSERA_CONFIG": str(self.folder / "tessera.toml"),
            "TESSERA_DATA_DIR": str(self.folder),
        }

    def _worker(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        point = self.failpoints.popleft() if self.failpoints else ""
        environment = {**self.environment(), VARIABLE: point}
        path = self.folder / f"worker{self.starts:03d}.log"
        with path.open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "streams"], env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._armed[worker.pid], self._logs[worker.pid] = point, path
        return worker


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found. ``faults`` is empty where everything is as it must be."""

    faults: tuple[str, ...]
    documents: int
    chunks: int
    duplicates: int
    worker_starts: int
    own_exits: tuple[int, ...]
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
            starts, exits, logs = cluster.starts, tuple(cluster.exits), cluster.logs()
        finally:
            cluster.stop()
    seconds = time.monotonic() - started
    return Outcome(tuple(faults), documents, chunks, duplicates, starts, exits, bytes_cut, seconds, logs)


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
            if burst in moments:
                await _wait_until_caught_up(cluster, model)
            synced_bytes = cluster.log_bytes()
            await _send(producer, [next(events) for _ in range(ordeal.burst)], partitions, model)
            if burst in powers:
                await asyncio.sleep(SYNC_S)
                cut += cluster.lose_power(synced_bytes)
                report(f"{(burst + 1) * ordeal.burst} events: power lost, {cut} bytes cut")
            elif burst in moments:
                await asyncio.sleep(random_.random() * KILL_WITHIN_S)
                cluster.kill_worker(random_.randrange(ordeal.workers))
                report(f"{(burst + 1) * ordeal.burst} events: worker killed")
    finally:
        await producer.stop()
    return cut


async def publish(broker: str, changes: list[Change], partitions: Mapping[str, int], model: Model) -> None:
    """Send the changes, in order, and note in the model where the logs end."""
    producer = AIOKafkaProducer(bootstrap_servers=broker, acks="all")
    await producer.start()
    try:
        await _send(producer, changes, partitions, model)
    finally:
        await producer.stop()


async def _send(
    producer: AIOKafkaProducer, changes: list[Change], partitions: Mapping[str, int], model: Model
) -> None:
    sent = []
    for change in changes:
        event = encode_event(change)
        topic = LOGS if change.source == "devex" else DOCUMENTS
        partition = partition_of(event.key, partitions[topic])
        sent.append(await producer.send(topic, event.value, event.key, partition))
    for metadata in await asyncio.gather(*sent):
        shard = ShardId(metadata.topic, metadata.partition)
        model.ends[shard] = max(model.ends.get(shard, 0), metadata.offset + 1)


async def _wait_until_caught_up(cluster: Cluster, model: Model) -> None:
    """Wait until all that was published is applied, and every worker runs: whatever was broken last has been
    got over, and what breaks next strikes one at work."""
    store = connect(cluster.redis.url, NAMESPACE)
    try:

        async def caught_up() -> bool:
            cluster.revive()
            return cluster.are_ready() and await _applied(store, model) == sum(model.ends.values())

        await _poll(caught_up, cluster, "what was broken was not got over")
    finally:
        await store.close()


async def _until_applied(
    cluster: Cluster, model: Model, store: ShardStore, report: Callable[[str], None]
) -> None:
    total = sum(model.ends.values())

    async def finished() -> bool:
        cluster.revive()
        applied = await _applied(store, model)
        report(f"applied {applied} of {total}")
        return applied == total

    await _poll(finished, cluster, "not all was applied", every_s=0.5)


async def _applied(store: ShardStore, model: Model) -> int:
    """Records of the model's logs that are applied, over all shards; 0 while the store is away."""
    try:
        heads = await store.heads(sorted(model.ends))
    except UnavailableError:
        return 0
    return sum(head.applied + 1 for head in heads if head is not None)


async def _poll(
    done: Callable[[], Awaitable[bool]], cluster: Cluster, failure: str, every_s: float = 0.02
) -> None:
    deadline = time.monotonic() + cluster.ordeal.timeout_s
    while not await done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{failure} within {cluster.ordeal.timeout_s:g} s\n{cluster.logs()[-4000:]}")
        await asyncio.sleep(every_s)


async def _duplicates(store: ShardStore, model: Model) -> int:
    counts = [await store.counters(shard) for shard in sorted(model.ends)]
    return sum(count.get("duplicates", 0) for count in counts)


async def compare(store: ShardStore, model: Model) -> tuple[list[str], int, int]:
    """Faults, documents and live chunks: the document tables and the index, each against the model."""
    faults: list[str] = []
    found: dict[str, str] = {}
    chunks = 0
    for shard in sorted(model.ends):
        records = {key: DocumentRecord.decode(data, key) for key, data in await store.scan_documents(shard)}
        live = await live_chunks(store, shard)
        for key, record in records.items():
            if record.deleted:
                continue
            if key in found:
                faults.append(f"{key} is in two shards")
            text = await stored_text(store, shard, record)
            found[key] = text
            expected = chunk_text(text, key)
            spans = [(n, chunk.start, chunk.end) for n, chunk in enumerate(expected)]
            if sorted(live.pop(key, [])) != spans:
                faults.append(f"{key}: live chunks are not those of its text")
            if key in model.revisions and record.revision != model.revisions[key]:
                faults.append(f"{key}: revision {record.revision}, not {model.revisions[key]}")
            chunks += len(spans)
        faults += [f"{key}: {len(spans)} chunks of a document that is gone" for key, spans in live.items()]
    for key, content in model.contents.items():
        if found.pop(key, None) != content:
            faults.append(f"{key}: not its last content")
    faults += [f"{key}: never published" for key in found]
    return faults, sum(content is not None for content in model.contents.values()), chunks


async def live_chunks(
    store: ShardStore, shard: ShardId, generation: str = GENERATION
) -> dict[str, list[tuple[int, int, int]]]:
    """(ordinal, start, end) of every live chunk by document key, from segments and tombstones alone."""
    manifest = await store.manifest(shard, generation)
    live: dict[str, list[tuple[int, int, int]]] = {}
    if manifest is None:
        return live
    for meta in manifest.segments.values():
        [blob] = await store.blobs(shard, [segment_blob(generation, meta.id)])
        assert blob is not None, f"{shard}: segment {meta.id} is gone"
        segment = decode(blob)
        applying = manifest.tombstones[max(0, meta.watermark - manifest.tombstone_base) :]
        dead = dead_chunks(segment, applying)
        columns = [segment.column(name)[~dead].tolist() for name in ("document", "ordinal", "start", "end")]
        for document, *span in zip(*columns, strict=True):
            ordinal, start, end = span
            live.setdefault(segment.documents[document].key, []).append((ordinal, start, end))
    return live


async def stored_text(store: ShardStore, shard: ShardId, record: DocumentRecord) -> str:
    """The document's text as the store holds it."""
    ids = block_ids(record.text_id, record.size_bytes)
    blobs = await store.blobs(shard, ids)
    return b"".join(
        decompress(blob, blob_id) for blob, blob_id in zip(blobs, ids, strict=True) if blob is not None
    ).decode()


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; exit status 1 where anything is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description=__doc__)
    for name in ("events", "documents", "logs", "kills", "power_losses", "workers", "seed"):
        default = getattr(Ordeal(), name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    ordeal = Ordeal(**vars(parser.parse_args(arguments)))
    outcome = asyncio.run(run(ordeal, lambda line: print(line, flush=True)))
    print(
        f"{ordeal.events} events, {ordeal.kills} kills, {ordeal.power_losses} power losses "
        f"({outcome.bytes_cut} bytes cut), {outcome.worker_starts} worker starts "
        f"({len(outcome.own_exits)} after an end of its own), {outcome.seconds:.0f} s: "
        f"{outcome.documents} documents, {outcome.chunks} chunks, {outcome.duplicates} duplicates dropped, "
        f"{len(outcome.faults)} faults"
    )
    for fault in outcome.faults[:50]:
        print(fault)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
