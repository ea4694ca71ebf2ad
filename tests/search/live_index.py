"""A small writer of shards for tests, with the state that it leads to kept beside it, the obvious way."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from zlib import crc32

from tessera.documents.text import block_ids, blocks_from, compress
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.builder import build_segment
from tessera.index.codec import decode, encode
from tessera.index.merge import MergePolicy, dead_chunks, merge
from tessera.index.segment import ChunkEntry, DocumentEntry
from tessera.releases import Contract, GenerationDescription, Release
from tessera.store.base import Commit, GenerationDelta, SegmentMeta, ShardId, Tombstone
from tessera.store.memory import MemoryStore

TOPIC = "tessera.documents"
GENERATION = "g1"
POLICY = "paragraph@0123456789ab"
ANALYZER = WordsAnalyzer()
SEPARATOR = "\n\n"

_names = count()


@dataclass(frozen=True)
class Document:
    """What is live of one document: its paragraphs are its chunks."""

    source: str
    doc_id: str
    paragraphs: tuple[str, ...]
    access: tuple[str, ...] = ("*",)
    revision: int = 1
    text_id: str = ""

    @property
    def key(self) -> str:
        return f"{self.source}/{self.doc_id}"

    @property
    def text(self) -> str:
        return SEPARATOR.join(self.paragraphs)

    @property
    def digest(self) -> str:
        return f"sha256:{crc32(self.text.encode()):x}"


def chunks_of(paragraphs: Sequence[str], first: int = 0) -> list[ChunkEntry]:
    """One chunk per paragraph, from the one numbered ``first``."""
    entries, start, line = [], 0, 1
    for ordinal, text in enumerate(paragraphs):
        size = len(text.encode())
        start_byte = len(SEPARATOR.join(paragraphs[:ordinal]).encode()) + (2 if ordinal else 0)
        entries.append(
            ChunkEntry(
                ordinal,
                start,
                start + len(text),
                start_byte,
                start_byte + size,
                line,
                line + text.count("\n"),
                ordinal * 10,
                ordinal * 10 + len(text.split()),
                (f"Part {ordinal // 3}",),
                text,
            )
        )
        start += len(text) + len(SEPARATOR)
        line += text.count("\n") + 2
    return entries[first:]


@dataclass
class LiveIndex:
    """Writes changes to a store of ``partitions`` shards and knows what is live."""

    partitions: int = 1
    store: MemoryStore = field(default_factory=MemoryStore)
    live: dict[str, Document] = field(default_factory=dict)

    async def open(self) -> LiveIndex:
        await self.store.record_topic(TOPIC, self.partitions)
        contract = Contract(POLICY, {"parser": "paragraph"}, ANALYZER.identity)
        await self.store.register(GENERATION, GenerationDescription(GENERATION, contract).to_json())
        await self.store.set_release(None, Release("r1", GENERATION).to_json())
        for shard in self.shards:
            await self.store.claim(shard, [GENERATION])
        return self

    @property
    def shards(self) -> list[ShardId]:
        return [ShardId(TOPIC, number) for number in range(self.partitions)]

    def shard_of(self, key: str) -> ShardId:
        return ShardId(TOPIC, crc32(key.encode()) % self.partitions)

    async def upsert(self, *documents: Document) -> None:
        """Replace whole documents, in one commit per shard."""
        for shard in self.shards:
            mine = [document for document in documents if self.shard_of(document.key) == shard]
            if mine:
                await self._write(shard, [(replace(document, text_id=_name("t")), 0) for document in mine])

    async def append(self, key: str, paragraphs: Sequence[str]) -> None:
        """Continue a document; its last chunk is cut again, longer by a line."""
        held = self.live[key]
        last = len(held.paragraphs) - 1
        longer = (*held.paragraphs[:last], held.paragraphs[last] + "\n" + paragraphs[0], *paragraphs[1:])
        await self._write(self.shard_of(key), [(replace(held, paragraphs=longer), last)])

    async def delete(self, key: str) -> None:
        await self._commit(self.shard_of(key), [Tombstone(key, 0)], unlink=_blocks(self.live[key]))
        del self.live[key]

    async def _write(self, shard: ShardId, changed: list[tuple[Document, int]]) -> None:
        head = await self.store.head(shard)
        assert head is not None
        tombstones, pieces, texts, replaced = [], [], {}, set()
        for document, first in changed:
            data = document.text.encode()
            held = self.live.get(document.key)
            if held:
                tombstones.append(Tombstone(document.key, first))
                replaced.update(_blocks(held))
            entry = DocumentEntry(
                document.source,
                document.doc_id,
                document.revision,
                document.digest,
                document.access,
                "text/markdown",
                document.text_id,
                len(data),
                head.seq + 1,
            )
            pieces.append((entry, chunks_of(document.paragraphs, first)))
            blocks = blocks_from(document.text_id, data, 0, len(data))
            texts.update({name: compress(block) for name, block in blocks})
            if document.paragraphs:
                self.live[document.key] = document
            else:
                self.live.pop(document.key, None)
        await self._commit(shard, tombstones, pieces, texts, replaced - set(texts))

    async def _commit(
        self,
        shard: ShardId,
        tombstones: Sequence[Tombstone] = (),
        pieces: Sequence[tuple[DocumentEntry, Sequence[ChunkEntry]]] = (),
        blobs: dict[str, bytes] | None = None,
        unlink: Iterable[str] = (),
    ) -> None:
        blobs = dict(blobs or {})
        head, manifest = await self.store.head(shard), await self.store.manifest(shard, GENERATION)
        assert head is not None
        assert manifest is not None
        segment = build_segment(pieces, ANALYZER)
        added: tuple[SegmentMeta, ...] = ()
        if segment.chunks:
            name, blob = _name("s"), encode(segment)
            blobs[f"segment/{GENERATION}/{name}"] = blob
            watermark = manifest.next_tombstone + len(tombstones)
            added = (SegmentMeta(name, watermark, segment.chunks, len(blob)),)
        await self.store.stage(shard, blobs)
        delta = GenerationDelta(manifest.next_tombstone, add=added, tombstones=tuple(tombstones))
        await self.store.commit(
            Commit(
                shard,
                head.fence,
                head.seq,
                applied=head.applied + 1,
                record_digest=_name("d"),
                generations={GENERATION: delta},
                keep=tuple(blobs),
                unlink=tuple(unlink),
            )
        )

    async def merge(self, policy: MergePolicy, *, at_once: bool = True) -> int:
        """Merge segments while the policy finds any; how many merges. ``at_once``: unlink the old blobs."""
        merges = 0
        for shard in self.shards:
            while (manifest := await self.store.manifest(shard, GENERATION)) and (
                chosen := policy.plan(manifest.segments, manifest.next_tombstone)
            ):
                await self._merge(shard, chosen, at_once)
                merges += 1
        return merges

    async def _merge(self, shard: ShardId, chosen: Sequence[str], at_once: bool) -> None:
        manifest = await self.store.manifest(shard, GENERATION)
        assert manifest is not None
        parts = []
        for name in chosen:
            [blob] = await self.store.blobs(shard, [f"segment/{GENERATION}/{name}"])
            assert blob is not None
            segment = decode(blob)
            applying = manifest.tombstones[manifest.segments[name].watermark - manifest.tombstone_base :]
            parts.append((segment, dead_chunks(segment, applying)))
        merged, name = merge(parts), _name("m")
        blob = encode(merged)
        meta = SegmentMeta(name, manifest.next_tombstone, merged.chunks, len(blob))
        staying = [kept.watermark for kept in manifest.segments.values() if kept.id not in chosen]
        delta = GenerationDelta(
            manifest.next_tombstone,
            add=(meta,) if merged.chunks else (),
            drop=tuple(chosen),
            trim_tombstones_below=min([*staying, manifest.next_tombstone]),
        )
        blob_id = f"segment/{GENERATION}/{name}"
        await self.store.stage(shard, {blob_id: blob})
        old = tuple(f"segment/{GENERATION}/{segment}" for segment in chosen)
        await self.store.commit(
            Commit(
                shard,
                manifest.head.fence,
                manifest.head.seq,
                generations={GENERATION: delta},
                keep=(blob_id,) if merged.chunks else (),
                unlink=old if at_once else (),
                expire=() if at_once else old,
            )
        )

    def saved(self) -> tuple[object, dict[str, Document]]:
        """The state of store and live documents, to go back to."""
        return copy.deepcopy(self.store._shards), dict(self.live)

    def lose_writes_since(self, saved: tuple[object, dict[str, Document]]) -> None:
        """Go back, as a store does that lost its last writes."""
        self.store._shards = copy.deepcopy(saved[0])  # type: ignore[assignment]
        self.live = dict(saved[1])

    async def claim(self) -> None:
        """Take every shard's fence anew, as a worker does that starts."""
        for shard in self.shards:
            await self.store.claim(shard, [GENERATION])


def _blocks(document: Document) -> list[str]:
    return block_ids(document.text_id, len(document.text.encode()))


def _name(prefix: str) -> str:
    return f"{prefix}{next(_names)}"


@dataclass(frozen=True)
class Expected:
    """One hit that a search must give: rank by (-score, source, doc_id, ordinal)."""

    score: float
    source: str
    doc_id: str
    ordinal: int
    text: str


def live_chunks(documents: Iterable[Document]) -> list[tuple[str, str, int, str]]:
    """(source, doc_id, ordinal, text) of every live chunk, in order."""
    return sorted(
        (document.source, document.doc_id, ordinal, text)
        for document in documents
        for ordinal, text in enumerate(document.paragraphs)
    )


def expected_hits(
    documents: Iterable[Document],
    query: str,
    k: int,
    principals: frozenset[str] | None = None,
    source: str | None = None,
    k1: float = 1.2,
    b: float = 0.75,
) -> list[Expected]:
    """BM25 in plain Python floats over the live documents alone, term by term in canonical order."""
    documents = list(documents)
    chunks = live_chunks(documents)
    counted = [Counter(ANALYZER.terms(text)) for *_, text in chunks]
    average = sum(counts.total() for counts in counted) / len(counted) if counted else 0.0
    asked = Counter(ANALYZER.terms(query))
    frequency = {term: sum(term in counts for counts in counted) for term in asked}
    order = sorted((frequency[term], term) for term in asked if frequency[term])
    shown = {
        document.key
        for document in documents
        if (principals is None or "*" in document.access or set(document.access) & principals)
        and source in (None, document.source)
    }
    hits = []
    for (name, doc_id, ordinal, text), counts in zip(chunks, counted, strict=True):
        score = 0.0
        for n, term in order:
            tf = counts[term]
            if tf:
                idf = math.log(1 + (len(chunks) - n + 0.5) / (n + 0.5))
                part = tf * (k1 + 1) / (tf + k1 * (1 - b + b * counts.total() / average))
                score += asked[term] * idf * part
        if score and f"{name}/{doc_id}" in shown:
            hits.append(Expected(score, name, doc_id, ordinal, text))
    hits.sort(key=lambda hit: (-hit.score, hit.source, hit.doc_id, hit.ordinal))
    return hits[:k]
