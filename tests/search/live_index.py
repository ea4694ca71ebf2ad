"""A small writer of shards for tests, with the state that it leads to kept beside it, the obvious way."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from zlib import crc32

from tessera.assembly.assembly import Assembly
from tessera.documents.text import block_ids, blocks_from, compress
from tessera.generations.registry import Generation, Registry, State
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.builder import build_segment
from tessera.index.codec import decode, encode
from tessera.index.merge import MergePolicy, dead_chunks, merge
from tessera.index.segment import ChunkEntry, DocumentEntry
from tessera.releases import Contract, Release, Scorer
from tessera.store.base import (
    Commit,
    GenerationDelta,
    Head,
    SegmentMeta,
    ShardId,
    Standing,
    Tombstone,
    segment_blob,
)
from tessera.store.memory import MemoryStore

TOPIC = "tessera.documents"
GENERATION = "g1"
POLICY = "paragraph@0123456789ab"
CANDIDATE = "g2"
WHOLE = "whole@ba9876543210"
"""The candidate's policy in these tests: a document is one chunk."""
POLICIES = {GENERATION: POLICY, CANDIDATE: WHOLE}
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


def cut(generation: str, paragraphs: Sequence[str], first: int = 0) -> list[ChunkEntry]:
    """The document's chunks in a generation, from the one that paragraph ``first`` is in."""
    if POLICIES[generation] == POLICY or not paragraphs:
        return chunks_of(paragraphs, first)
    return chunks_of([SEPARATOR.join(paragraphs)])


def as_cut(generation: str, documents: Iterable[Document]) -> list[Document]:
    """Documents whose paragraphs are their chunks in a generation."""
    if POLICIES[generation] == POLICY:
        return list(documents)
    return [replace(document, paragraphs=(document.text,)) for document in documents if document.paragraphs]


def generation(name: str, state: State = "serving", analyzer: str = ANALYZER.identity) -> Generation:
    """A generation of the registry."""
    contract = Contract(POLICIES[name], {"parser": POLICIES[name].partition("@")[0]}, analyzer)
    return Generation(name, contract, state)


def registry_of(release: Release, *generations: Generation, version: int = 0) -> Registry:
    """A registry that serves a release."""
    return Registry(version, release, generations={each.name: each for each in generations})


@dataclass
class LiveIndex:
    """Writes changes to a store of ``partitions`` shards and knows what is live."""

    partitions: int = 1
    store: MemoryStore = field(default_factory=MemoryStore)
    live: dict[str, Document] = field(default_factory=dict)

    async def open(self) -> LiveIndex:
        await self.store.record_topic(TOPIC, self.partitions)
        await self.control(registry_of(Release("r1", GENERATION), generation(GENERATION)))
        for shard in self.shards:
            await self.store.claim(shard, [GENERATION])
        return self

    async def control(self, registry: Registry) -> None:
        """Put a registry, and the release it serves, as the next version."""
        version, _ = await self.store.control()
        registry = replace(registry, version=version + 1)
        assert await self.store.put_control(version, registry.to_json(), registry.release.to_json())

    async def serve(
        self,
        release: str,
        served: str,
        scorer: Scorer | None = None,
        assembly: Assembly | None = None,
        **states: State,
    ) -> None:
        """Serve a generation; ``states`` of the others."""
        others = [generation(name, state) for name, state in states.items()]
        made = Release(release, served, scorer or Scorer(), assembly=assembly)
        await self.control(registry_of(made, generation(served), *others))

    async def adopt(self, name: str) -> None:
        """Write another generation from now on; what is live is not in it yet."""
        for shard in self.shards:
            head = await self._head(shard)
            standings = {**head.standings, name: Standing(head.applied)}
            await self.store.commit(Commit(shard, head.fence, head.seq, standings=standings))

    async def backfill(self, name: str) -> None:
        """Write what is live into a generation that was just adopted."""
        for shard in self.shards:
            head = await self._head(shard)
            mine = [each for each in self.live.values() if self.shard_of(each.key) == shard]
            pieces = [(_entry(each, head.seq + 1), cut(name, each.paragraphs)) for each in mine]
            manifest = await self.store.manifest(shard, name)
            assert manifest is not None
            delta, blobs = _delta(name, manifest.next_tombstone, [], pieces)
            await self.store.stage(shard, blobs)
            standings = {**head.standings, name: replace(head.standings[name], complete=True)}
            await self.store.commit(
                Commit(
                    shard,
                    head.fence,
                    head.seq,
                    generations={name: delta},
                    keep=tuple(blobs),
                    standings=standings,
                )
            )

    async def give_up(self, name: str) -> None:
        """Write a generation no more, and remove all of it."""
        for shard in self.shards:
            head = await self._head(shard)
            standings = {kept: each for kept, each in head.standings.items() if kept != name}
            head = await self.store.commit(Commit(shard, head.fence, head.seq, standings=standings))
            while await self.store.contract_step(shard, head.fence, name, 1):
                pass

    async def _head(self, shard: ShardId) -> Head:
        head = await self.store.head(shard)
        assert head is not None
        return head

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
        await self._commit(self.shard_of(key), {key: 0}, unlink=_blocks(self.live[key]))
        del self.live[key]

    async def _write(self, shard: ShardId, changed: list[tuple[Document, int]]) -> None:
        firsts, texts, replaced = {}, {}, set()
        for document, first in changed:
            data = document.text.encode()
            held = self.live.get(document.key)
            if held:
                firsts[document.key] = first
                replaced.update(_blocks(held))
            blocks = blocks_from(document.text_id, data, 0, len(data))
            texts.update({name: compress(block) for name, block in blocks})
            if document.paragraphs:
                self.live[document.key] = document
            else:
                self.live.pop(document.key, None)
        await self._commit(shard, firsts, changed, texts, replaced - set(texts))

    async def _commit(
        self,
        shard: ShardId,
        firsts: dict[str, int],
        changed: Sequence[tuple[Document, int]] = (),
        blobs: dict[str, bytes] | None = None,
        unlink: Iterable[str] = (),
    ) -> None:
        """``firsts``: the paragraph from which on chunks die, by document."""
        blobs, deltas = dict(blobs or {}), {}
        head = await self._head(shard)
        for name in head.live:
            manifest = await self.store.manifest(shard, name)
            assert manifest is not None
            by_paragraph = POLICIES[name] == POLICY
            tombstones = [Tombstone(key, first if by_paragraph else 0) for key, first in firsts.items()]
            pieces = [
                (_entry(document, head.seq + 1), cut(name, document.paragraphs, first))
                for document, first in changed
            ]
            deltas[name], added = _delta(name, manifest.next_tombstone, tombstones, pieces)
            blobs |= added
        await self.store.stage(shard, blobs)
        await self.store.commit(
            Commit(
                shard,
                head.fence,
                head.seq,
                applied=head.applied + 1,
                record_digest=_name("d"),
                generations=deltas,
                keep=tuple(blobs),
                unlink=tuple(unlink),
            )
        )

    async def merge(self, policy: MergePolicy, *, at_once: bool = True) -> int:
        """Merge segments while the policy finds any; how many merges. ``at_once``: unlink the old blobs."""
        merges = 0
        for shard in self.shards:
            for generation in (await self._head(shard)).live:
                while (manifest := await self.store.manifest(shard, generation)) and (
                    chosen := policy.plan(manifest.segments, manifest.next_tombstone)
                ):
                    await self._merge(shard, generation, chosen, at_once)
                    merges += 1
        return merges

    async def _merge(self, shard: ShardId, generation: str, chosen: Sequence[str], at_once: bool) -> None:
        manifest = await self.store.manifest(shard, generation)
        assert manifest is not None
        parts = []
        for name in chosen:
            [blob] = await self.store.blobs(shard, [segment_blob(generation, name)])
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
        blob_id = segment_blob(generation, name)
        await self.store.stage(shard, {blob_id: blob})
        old = tuple(segment_blob(generation, segment) for segment in chosen)
        await self.store.commit(
            Commit(
                shard,
                manifest.head.fence,
                manifest.head.seq,
                generations={generation: delta},
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


def _entry(document: Document, seq: int) -> DocumentEntry:
    return DocumentEntry(
        document.source,
        document.doc_id,
        document.revision,
        document.digest,
        document.access,
        "text/markdown",
        document.text_id,
        len(document.text.encode()),
        seq,
    )


def _delta(
    generation: str,
    next_tombstone: int,
    tombstones: Sequence[Tombstone],
    pieces: Sequence[tuple[DocumentEntry, Sequence[ChunkEntry]]],
) -> tuple[GenerationDelta, dict[str, bytes]]:
    """What a commit adds to a generation, and its blobs."""
    segment = build_segment(pieces, ANALYZER)
    added: tuple[SegmentMeta, ...] = ()
    blobs = {}
    if segment.chunks:
        name, blob = _name("s"), encode(segment)
        blobs[segment_blob(generation, name)] = blob
        added = (SegmentMeta(name, next_tombstone + len(tombstones), segment.chunks, len(blob)),)
    return GenerationDelta(next_tombstone, add=added, tombstones=tuple(tombstones)), blobs


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
