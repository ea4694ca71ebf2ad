"""What an installation must hold, worked out the slow and obvious way, and what it does hold."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from servers import RedisServer

from tessera.documents.digests import document_digest, log_digest
from tessera.documents.record import DocumentRecord
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.codec import decode
from tessera.index.merge import dead_chunks
from tessera.index.segment import segment_blob
from tessera.policies import ChunkPolicy
from tessera.search import Answer
from tessera.store.base import ShardId, ShardStore
from tessera.store.connect import connect
from tessera.store.keys import Keys
from tessera.store.memory import MemoryStore

Span = tuple[int, int, int]
"""Ordinal, start and end of a chunk, in code points."""

Shown = tuple[str, str, Span, str]
"""Source, document, span and text of a hit."""


@dataclass(frozen=True)
class Live:
    """A live document."""

    source: str
    doc_id: str
    text: str
    revision: int
    media_type: str

    @property
    def is_log(self) -> bool:
        return self.source == "devex"

    @property
    def key(self) -> str:
        return f"{self.source}/{self.doc_id}"

    def spans(self, policy: ChunkPolicy) -> list[Span]:
        chunks = policy.cut(self.text, "s", self.media_type, is_log=self.is_log).chunks
        return [(ordinal, chunk.start, chunk.end) for ordinal, chunk in enumerate(chunks)]

    @property
    def digest(self) -> str:
        return log_digest(self.text) if self.is_log else document_digest(self.text)


def fingerprint_of(documents: Iterable[Live]) -> tuple[int, str]:
    """Count and fingerprint of documents, added up from their definition."""
    total = count = 0
    for document in documents:
        encoded = b""
        for part in (document.key, str(document.revision), document.digest):
            encoded += len(part.encode()).to_bytes(8, "big") + part.encode()
        total += int.from_bytes(sha256(encoded).digest()[:16], "big")
        count += 1
    return count, f"{total % 2**128:032x}"


def ranked(documents: Iterable[Live], policy: ChunkPolicy, query: str) -> list[Shown]:
    """Every chunk with a term of the query, best first: BM25 over an index built from nothing."""
    analyzer = WordsAnalyzer()
    chunks = [
        (document.source, document.doc_id, span, document.text[span[1] : span[2]])
        for document in documents
        for span in document.spans(policy)
    ]
    counted = [Counter(analyzer.terms(text)) for *_, text in chunks]
    average = sum(counts.total() for counts in counted) / len(counted) if counted else 0.0
    asked = Counter(analyzer.terms(query))
    frequency = {term: sum(term in counts for counts in counted) for term in asked}
    order = sorted((frequency[term], term) for term in asked if frequency[term])
    scored = []
    for chunk, counts in zip(chunks, counted, strict=True):
        score = 0.0
        for n, term in order:
            if counts[term]:
                idf = math.log(1 + (len(chunks) - n + 0.5) / (n + 0.5))
                tf = counts[term]
                score += asked[term] * (
                    idf * (tf * 2.2 / (tf + 1.2 * (1 - 0.75 + 0.75 * counts.total() / average)))
                )
        if score:
            scored.append((-score, chunk))
    return [chunk for _, chunk in sorted(scored)]


def shown(answer: Answer) -> list[Shown]:
    """An answer's hits as :func:`ranked` gives them."""
    return [
        (hit.source, hit.doc_id, (int(hit.id.rpartition(":chunk")[2]), hit.start, hit.end), hit.text)
        for hit in answer.hits
    ]


async def records_of(store: ShardStore, shard: ShardId) -> dict[str, DocumentRecord]:
    """The shard's records of live documents."""
    found = {key: DocumentRecord.decode(data, key) for key, data in await store.scan_documents(shard)}
    return {key: record for key, record in found.items() if not record.deleted}


async def chunks_of(store: ShardStore, shard: ShardId, generation: str) -> dict[str, list[Span]]:
    """The spans of every live chunk by document, read from the segments and tombstones themselves."""
    manifest = await store.manifest(shard, generation)
    assert manifest is not None
    found: dict[str, list[Span]] = {}
    for meta in manifest.segments.values():
        [blob] = await store.blobs(shard, [segment_blob(generation, meta.id)])
        assert blob is not None, f"{generation} has lost segment {meta.id}"
        segment = decode(blob)
        dead = dead_chunks(segment, manifest.tombstones[max(0, meta.watermark - manifest.tombstone_base) :])
        columns = [segment.columns[:, i].tolist() for i in _columns("document", "ordinal", "start", "end")]
        for document, *span, gone in zip(*columns, dead.tolist(), strict=True):
            if not gone:
                found.setdefault(segment.documents[document].key, []).append(tuple(span))
    return {key: sorted(spans) for key, spans in found.items()}


def _columns(*names: str) -> list[int]:
    from tessera.index.segment import COLUMNS

    return [COLUMNS.index(name) for name in names]


@dataclass
class Backend:
    """A store, and a hand behind it."""

    store: ShardStore

    def put_back(self, version: int, registry: bytes, release: bytes) -> None:
        """Let registry and pointer fall back, as a store does that lost its last writes."""
        raise NotImplementedError

    def left(self, shard: ShardId, generation: str) -> set[str]:
        """Everything of a generation that would stay for ever."""
        raise NotImplementedError


class InMemory(Backend):
    store: MemoryStore

    def put_back(self, version: int, registry: bytes, release: bytes) -> None:
        self.store._version, self.store._registry, self.store._release = version, registry, release

    def left(self, shard: ShardId, generation: str) -> set[str]:
        state = self.store._at(shard)
        blobs = {name for name, blob in state.blobs.items() if blob.expires_at is None}
        found = {name for name in blobs if name.startswith(segment_blob(generation, ""))}
        found |= {name for name in state.counters if f":{generation}:" in name}
        return found | ({generation} & set(state.generations))


@dataclass
class InRedis(Backend):
    server: RedisServer
    keys: Keys

    def put_back(self, version: int, registry: bytes, release: bytes) -> None:
        with self.server.client() as client:
            client.hset(self.keys.registry, mapping={"version": version, "registry": registry})
            client.set(self.keys.release, release)

    def left(self, shard: ShardId, generation: str) -> set[str]:
        names = self.keys.shard(shard)
        with self.server.client(decode_responses=True) as client:
            found = {
                key
                for key in client.scan_iter(names.blob(segment_blob(generation, "*")), count=1000)
                if client.pttl(key) == -1
            }
            found |= {
                key
                for key in (names.segments(generation), names.tombstones(generation))
                if client.exists(key)
            }
            return found | {name for name in client.hkeys(names.counters) if f":{generation}:" in name}


def in_redis(server: RedisServer) -> InRedis:
    """A namespace of its own on the server."""
    namespace = f"t{uuid.uuid4().hex[:12]}"
    return InRedis(connect(server.url, namespace), server, Keys(namespace))


class Crash(Exception):  # noqa: N818 - it is no error of ours
    """Stands for SIGKILL: nothing of the project may catch it."""


@dataclass
class Failpoints:
    """Takes the place of the failpoints; ``armed`` is where the next crash happens."""

    armed: str = ""
    hits: Counter[str] = field(default_factory=Counter)

    def __call__(self, name: str) -> None:
        if name == self.armed:
            self.armed = ""
            self.hits[name] += 1
            raise Crash(name)

    @contextmanager
    def crashing(self, point: str) -> Iterator[None]:
        """Crash at ``point`` within the block, where it is reached; empty: nowhere."""
        self.armed = point
        try:
            yield
        finally:
            self.armed = ""


def of_shard(documents: Mapping[str, Live], shard: ShardId) -> dict[str, Live]:
    """The documents that a shard holds: logs have a topic of their own."""
    return {key: each for key, each in documents.items() if each.is_log == shard.topic.endswith("logs")}
