"""A whole installation under load: servers, workers, a searcher process, changes, queries, an operator."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.answers import Asker, Away, Moved, Verdict, judge, percentile_ms
from bench.crash import NAMESPACE, Cluster, Ordeal, live_chunks, stored_text
from bench.traffic import CATALOG, DOCUMENT_SOURCES, SETTINGS, Traffic, corpora
from tessera.documents.digests import document_digest, log_digest
from tessera.documents.record import DocumentRecord
from tessera.errors import UnavailableError
from tessera.events.topics import CHANGE_TOPICS
from tessera.generations.bootstrap import read_registry
from tessera.generations.cases import Case, CaseSet, evidence_digest
from tessera.generations.cutover import Move
from tessera.generations.operations import Operator
from tessera.generations.proofs import compare_candidate, verify_candidate
from tessera.kafka.admin import ensure_topics
from tessera.kafka.publisher import Publisher
from tessera.policies import ChunkPolicy, load_policy
from tessera.search.searcher import Searcher
from tessera.settings import load_settings
from tessera.store.base import ShardId
from tessera.store.connect import connect

BASELINE = load_policy("paragraph")
CANDIDATE = load_policy("window-200")
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done. ``changes`` a second; ``pause_s`` between a query and the next."""

    workers: int = 1
    partitions: int = 4
    changes: float = 20.0
    pause_s: float = 0.015
    quiet_s: float = 20.0
    cutovers: int = 20
    rounds: int = 3
    archive: bool = True
    seed: int = 1
    timeout_s: float = 300.0


class Installation:
    """Servers, workers, one searcher process, traffic and queries: all that runs during a migration."""

    def __init__(self, cluster: Cluster, traffic: Traffic, report: Report) -> None:
        self.cluster = cluster
        self.traffic = traffic
        self.report = report
        self.policies = {"g1": BASELINE}
        self.moves: list[Moved] = []
        self.away: list[Away] = []
        self.freshness: list[tuple[float, float]] = []
        self.store = connect(cluster.redis.url, NAMESPACE)
        servers = {"broker": cluster.broker.address, "redis": cluster.redis.url, "namespace": NAMESPACE}
        settings = load_settings({**servers, "retention_s": 0}, join_running=False)
        self.operator = Operator(self.store, settings, "bench")
        self._serving: subprocess.Popen[bytes] | None = None
        self.asker = Asker(f"http://127.0.0.1:{free_port()}", traffic)

    async def serve(self) -> None:
        """Start the searcher process and wait until it answers."""
        url = httpx.URL(self.asker.url)
        self._serving = self._searcher(url.port)

        async def ready() -> bool:
            async with httpx.AsyncClient() as client:
                try:
                    return (await client.get(url.join("/readyz"))).status_code == 200
                except httpx.HTTPError:
                    return False

        await self.until(ready, "the searcher did not become ready")

    async def kill_searcher(self) -> None:
        """SIGKILL the searcher process, start another in its place and wait until it answers."""
        assert self._serving is not None
        since = time.monotonic()
        self._serving.kill()
        await asyncio.to_thread(self._serving.wait)
        await self.serve()
        self.away.append(Away(since, time.monotonic(), "searcher"))
        self.report(f"  searcher killed, {self.away[-1].to - since:.1f} s until another answered")

    def _searcher(self, port: int | None) -> subprocess.Popen[bytes]:
        with (self.cluster.folder / "serve.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tessera", "serve", "--port", str(port)],
                env=self.cluster.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    async def close(self) -> None:
        """Stop the searcher process."""
        await self.store.close()
        if self._serving is not None:
            self._serving.terminate()
            try:
                self._serving.wait(10)
            except subprocess.TimeoutExpired:
                self._serving.kill()
                self._serving.wait()

    async def until(self, done: Callable[[], Awaitable[bool]], failure: str, every_s: float = 0.05) -> None:
        """Poll; TimeoutError after the ordeal's time. Workers that ended are started again meanwhile."""
        deadline = time.monotonic() + self.cluster.ordeal.timeout_s
        while not await done():
            self.cluster.revive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{failure}\n{self.cluster.logs()[-4000:]}")
            await asyncio.sleep(every_s)

    async def until_applied(self) -> None:
        """Wait until everything published is applied."""
        ends = self.traffic.model.ends

        async def applied() -> bool:
            try:
                heads = await self.store.heads(sorted(ends))
            except UnavailableError:
                return False
            return all(head and head.applied + 1 >= ends[head.shard] for head in heads)

        await self.until(applied, "not all was applied")

    async def until_complete(self, name: str) -> float:
        """Wait until every shard holds the generation; the seconds that took."""
        began, told = time.monotonic(), 0.0

        async def complete() -> bool:
            nonlocal told
            try:
                _, progress = await self.operator.progress(name)
            except UnavailableError:
                return False
            if time.monotonic() - told > 2:
                told = time.monotonic()
                self.report(
                    f"  {name}: {progress.documents} of {progress.of} documents {progress.notes or ''}"
                )
            return progress.done

        await self.until(complete, f"{name} was not completed", every_s=0.1)
        return time.monotonic() - began

    async def watch_freshness(self) -> None:
        """Note, until cancelled, how long each change takes from the publisher's hand to the head."""
        done = 0
        while True:
            await asyncio.sleep(0.01)
            waiting = self.traffic.sent[done:]
            if not waiting:
                continue
            try:
                heads = await self.store.heads(sorted({sent.shard for sent in waiting}))
            except UnavailableError:
                continue
            now = time.monotonic()
            applied = {head.shard: head.applied for head in heads if head}
            left = [sent for sent in waiting if sent.offset > applied.get(sent.shard, -1)]
            seen = [sent for sent in waiting if sent.offset <= applied.get(sent.shard, -1)]
            self.freshness += [(sent.at, now - sent.at) for sent in seen]
            self.traffic.sent[done:] = seen + left
            done += len(seen)

    def freshness_p99(self, spans: Sequence[tuple[float, float]]) -> float:
        """Of the changes published in these spans of time, in milliseconds."""
        return percentile_ms(
            (seconds for at, seconds in self.freshness if any(a <= at < b for a, b in spans)), 0.99
        )

    async def create(self, name: str, policy: ChunkPolicy) -> None:
        """Create a generation."""
        self.policies[name] = policy
        await self.operator.create(policy, name)

    async def move(self, step: Awaitable[Move]) -> None:
        """Make a cutover or rollback and note it."""
        began = time.monotonic()
        moved = (await step).to_release
        self.moves.append(Moved(began, time.monotonic(), moved.release, moved.generation))

    async def prove(self, name: str) -> None:
        """Verify and compare; AssertionError where the generation is not gated then."""
        report = await verify_candidate(self.operator, name, sample=30)
        assert report.passed, report.reasons
        searcher = Searcher(self.store)
        try:
            baseline = (await read_registry(self.store)).serving.name
            evidence, recorded = await compare_candidate(
                self.operator, searcher, baseline, name, self.cases()
            )
        finally:
            await searcher.close()
        assert evidence.passed, evidence.failed
        assert recorded
        figures = evidence.figures
        self.report(
            f"{name} verified ({report.sampled} cut anew, {report.moved} moved) and compared: recall "
            f"{figures['baseline']['recall']:.3f} and {figures['candidate']['recall']:.3f}, "
            f"{figures['stale']} of {figures['stale'] + figures['cases']} cases stale"
        )

    def cases(self, count: int = 50) -> CaseSet:
        """Questions made of a line of a document, whose evidence that line is."""
        random_ = random.Random(1)
        found = []
        for key, version in sorted(self.traffic.model.live().items()):
            content = version.content or ""
            lines = [line for line in content.split("\n") if 40 < len(line) < 200]
            if lines:
                line = random_.choice(lines)
                start = content.index(line)
                source, _, doc_id = key.partition("/")
                end = start + len(line)
                whole = document_digest(content) if source in DOCUMENT_SOURCES else log_digest(content)
                found.append(Case(key, line, source, doc_id, start, end, evidence_digest(line), whole))
        chosen = random_.sample(found, min(count, len(found)))
        return CaseSet(tuple(chosen), {"max_recall_drop": 0.5, "max_stale_share": 0.9})

    def verdict(self) -> Verdict:
        """Judge all answers so far."""
        policies = {name: policy.id for name, policy in self.policies.items()}
        return judge(self.asker.asked, self.traffic, policies, self.moves, self.away)


@asynccontextmanager
async def installation(plan: Plan, ordeal: Ordeal, report: Report) -> AsyncIterator[Installation]:
    """Everything started and the corpora indexed, until the context ends."""
    with tempfile.TemporaryDirectory(prefix="tessera-migration-") as folder:
        cluster = Cluster(Path(folder), ordeal, SETTINGS)
        try:
            cluster.start()
            topics = await ensure_topics(cluster.broker.address, plan.partitions)
            partitions = {topic: topics[topic] for topic in CHANGE_TOPICS}
            async with Publisher(cluster.broker.address, CATALOG, partitions) as publisher:
                traffic = Traffic(corpora(plan.archive), publisher, plan.seed)
                here = Installation(cluster, traffic, report)
                try:
                    began = time.monotonic()
                    await traffic.load()
                    await here.until_applied()
                    seconds = time.monotonic() - began
                    report(f"{len(traffic.originals)} documents published and indexed in {seconds:.1f} s")
                    await here.serve()
                    yield here
                finally:
                    await here.close()
        finally:
            cluster.stop()


@asynccontextmanager
async def under_load(here: Installation, plan: Plan) -> AsyncIterator[None]:
    """Changes and queries under way until the context ends; what one failed with is raised."""
    jobs = (here.traffic.run(plan.changes), here.asker.run(plan.pause_s), here.watch_freshness())
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def compare(here: Installation, names: Sequence[str]) -> list[str]:
    """Faults of these generations against the model: texts, chunks, and nothing that is not to be there."""
    faults = []
    expected = here.traffic.model.live()
    for name in names:
        found: set[str] = set()
        for shard in sorted(here.traffic.model.ends):
            chunks = await live_chunks(here.store, shard, name)
            for key, data in await here.store.scan_documents(shard):
                record = DocumentRecord.decode(data, key)
                if record.deleted:
                    continue
                found.add(key)
                fault = await _fault(here, shard, record, key, sorted(chunks.pop(key, [])), name)
                faults += [f"{name}: {key}: {fault}"] if fault else []
            faults += [f"{name}: {key}: resurrected, {len(left)} chunks" for key, left in chunks.items()]
        faults += [f"{name}: {key}: lost" for key in expected.keys() - found]
        faults += [f"{name}: {key}: resurrected" for key in found - expected.keys()]
    return faults


async def _fault(
    here: Installation,
    shard: ShardId,
    record: DocumentRecord,
    key: str,
    chunks: list[tuple[int, int, int]],
    name: str,
) -> str:
    version = here.traffic.model.live().get(key)
    if version is None or version.content is None:
        return ""
    if record.revision != version.revision:
        return f"revision {record.revision}, not {version.revision}"
    if await stored_text(here.store, shard, record) != version.content:
        return "not its last content"
    cut = here.policies[name].chunk(version.content, key, media_type=record.media_type)
    if chunks != [(number, chunk.start, chunk.end) for number, chunk in enumerate(cut)]:
        return "live chunks are not those of its text"
    return ""


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
