"""Query latency of the searcher's kernel and of whole searches, p50 and p99 in milliseconds.

    python bench/query.py [--chunks 100000] [--queries 400]

The synthetic corpus draws words from a Zipf distribution. Where the environment variable TESSERA_DATA names
a folder, the Markdown and logs in it (archives included) are measured too. "kernel" is scoring and ranking
alone; "search" is the whole call on a store in memory: version check, ranking, texts, hits.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tessera.documents.text import blocks_from, compress
from tessera.generations.registry import Generation, Registry
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.builder import build_segment
from tessera.index.codec import encode
from tessera.index.segment import ChunkEntry, DocumentEntry
from tessera.releases import Contract, Release, Scorer
from tessera.search import Searcher
from tessera.search.scoring import query_terms
from tessera.store.base import Commit, GenerationDelta, SegmentMeta, ShardId, Tombstone
from tessera.store.memory import MemoryStore

ANALYZER = WordsAnalyzer()
PARTITIONS = 4
BATCH_CHUNKS = 5_000
SUFFIXES = (".md", ".txt", ".log")

Piece = tuple[DocumentEntry, list[ChunkEntry], bytes]


def synthetic(chunks: int, seed: int = 7) -> Iterator[tuple[str, list[str]]]:
    """Documents of 20 paragraphs; word frequencies follow a Zipf distribution over 60,000 words."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 60_001)
    ends = np.cumsum(weights / weights.sum())
    for number in range(0, chunks, 20):
        lengths = rng.integers(4, 26, 20)
        words = np.searchsorted(ends, rng.random(lengths.sum()))
        cuts = np.cumsum(lengths)[:-1]
        yield f"doc-{number:07}.md", [" ".join(f"w{word}" for word in part) for part in np.split(words, cuts)]


def real(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Paragraphs (runs of non-blank lines) of every text under the folder and in its archives."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES:
            yield str(path.relative_to(folder)), _paragraphs(path.read_bytes())
        elif path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.name.endswith(SUFFIXES) else None
                    if content:
                        yield member.name, _paragraphs(content.read())


def _paragraphs(data: bytes) -> list[str]:
    text = data.decode(errors="replace")
    return [part for part in (piece.strip("\n") for piece in text.split("\n\n")) if part.strip()]


def _pieces(doc_id: str, paragraphs: list[str]) -> Piece:
    data = "\n\n".join(paragraphs).encode()
    chunks, start, start_byte, line = [], 0, 0, 1
    for ordinal, text in enumerate(paragraphs):
        size, lines = len(text.encode()), text.count("\n")
        spans = (start, start + len(text), start_byte, start_byte + size, line, line + lines, 0, 0)
        chunks.append(ChunkEntry(ordinal, *spans, (), text))
        start, start_byte, line = start + len(text) + 2, start_byte + size + 2, line + lines + 2
    entry = DocumentEntry("bench", doc_id, 1, "sha256:0", ("*",), "text/plain", doc_id, len(data), 1)
    return entry, chunks, data


async def _commit(
    store: MemoryStore,
    shard: ShardId,
    batch: list[Piece],
    dead: list[str],
) -> None:
    head, manifest = await store.head(shard), await store.manifest(shard, "g1")
    assert head
    assert manifest
    blobs = {
        name: compress(block)
        for entry, _, data in batch
        for name, block in blocks_from(entry.text_id, data, 0, len(data))
    }
    segment = build_segment([(entry, chunks) for entry, chunks, _ in batch], ANALYZER)
    blob, name = encode(segment), f"s{head.seq}"
    blobs[f"segment/g1/{name}"] = blob
    watermark = manifest.next_tombstone + len(dead)
    meta = SegmentMeta(name, watermark, segment.chunks, len(blob))
    delta = GenerationDelta(
        manifest.next_tombstone,
        add=(meta,) if batch else (),
        tombstones=tuple(Tombstone(f"bench/{doc_id}", 0) for doc_id in dead),
    )
    await store.stage(shard, blobs)
    await store.commit(
        Commit(
            shard,
            head.fence,
            head.seq,
            applied=head.applied + 1,
            record_digest="d",
            generations={"g1": delta},
            keep=tuple(blobs),
        )
    )


async def fill(documents: Iterator[tuple[str, list[str]]]) -> tuple[MemoryStore, list[str], list[str]]:
    """A store of these documents, the texts of all chunks, and the documents' ids."""
    store, texts, doc_ids = MemoryStore(), [], []
    contract = Contract("bench@0", {}, ANALYZER.identity)
    await store.record_topic("tessera.documents", PARTITIONS)
    registry = Registry(1, Release("r1", "g1"), generations={"g1": Generation("g1", contract, "serving")})
    await store.put_control(0, registry.to_json(), registry.release.to_json())
    shards = [ShardId("tessera.documents", number) for number in range(PARTITIONS)]
    for shard in shards:
        await store.claim(shard, ["g1"])
    pending: dict[ShardId, list[Piece]] = {shard: [] for shard in shards}
    for number, (doc_id, paragraphs) in enumerate(documents):
        if not paragraphs:
            continue
        shard = shards[number % PARTITIONS]
        pending[shard].append(_pieces(doc_id, paragraphs))
        texts += paragraphs
        doc_ids.append(doc_id)
        if sum(len(chunks) for _, chunks, _ in pending[shard]) >= BATCH_CHUNKS:
            await _flush(store, shard, pending)
    for shard in shards:
        await _flush(store, shard, pending)
    return store, texts, doc_ids


async def _flush(
    store: MemoryStore,
    shard: ShardId,
    pending: dict[ShardId, list[Piece]],
) -> None:
    batch, pending[shard] = pending[shard], []
    if batch:
        await _commit(store, shard, batch, [])


def queries(texts: list[str], count: int, least: int, most: int, seed: int = 3) -> list[str]:
    """Words that stand together in some chunk, ``least`` to ``most`` of them."""
    rng = random.Random(seed)
    found: list[str] = []
    while len(found) < count:
        words = ANALYZER.terms(rng.choice(texts))
        if len(words) >= least:
            length = rng.randint(least, min(most, len(words)))
            at = rng.randint(0, len(words) - length)
            found.append(" ".join(words[at : at + length]))
    return found


def report(name: str, seconds: list[float]) -> None:
    p50, p99 = np.percentile(np.array(seconds) * 1000, [50, 99])
    print(f"    {name:<28} p50 {p50:7.3f} ms   p99 {p99:7.3f} ms", flush=True)


async def measure(name: str, documents: Iterator[tuple[str, list[str]]], count: int) -> None:
    """Load a corpus and print latencies of several kinds of queries."""
    began = time.perf_counter()
    store, texts, doc_ids = await fill(documents)
    filled = time.perf_counter()
    searcher = Searcher(store)
    await searcher.warm()
    loaded = time.perf_counter()
    stats = await searcher.stats()
    print(
        f"{name}: {stats.chunks_live} chunks, {stats.documents} documents, {stats.segments} segments, "
        f"{stats.parts} parts, {stats.memory_bytes / 1e6:.0f} MB; "
        f"built in {filled - began:.1f} s, loaded in {loaded - filled:.2f} s"
    )
    await _delete_some(store, doc_ids[::20])
    await searcher.warm()
    for kind, least, most in (("2-6 terms", 2, 6), ("one term", 1, 1), ("ten terms", 10, 10)):
        await _measure_kind(searcher, kind, queries(texts, count, least, most))
    await searcher.close()


async def _delete_some(store: MemoryStore, doc_ids: list[str]) -> None:
    """Tombstones for these documents in every shard: one that does not hold a document ignores its own."""
    for number in range(PARTITIONS):
        await _commit(store, ShardId("tessera.documents", number), [], doc_ids)


async def _measure_kind(searcher: Searcher, kind: str, asked: list[str]) -> None:
    view, snapshot = await searcher._current()
    scorer, kernel, whole = Scorer(), [], []
    for query in asked:
        began = time.perf_counter()
        snapshot.search(query_terms(query, 10, view.analyzer), 10, scorer, None, None)
        kernel.append(time.perf_counter() - began)
        began = time.perf_counter()
        await searcher.search(query, 10)
        whole.append(time.perf_counter() - began)
    report(f"{kind}, kernel", kernel)
    report(f"{kind}, search", whole)


async def main() -> None:
    """Measure what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=100_000, help="chunks of the synthetic corpus")
    parser.add_argument("--queries", type=int, default=400, help="queries of each kind")
    options = parser.parse_args()
    await measure("synthetic", synthetic(options.chunks), options.queries)
    folder = os.environ.get("TESSERA_DATA")
    if folder:
        await measure("TESSERA_DATA", real(Path(folder)), options.queries)


if __name__ == "__main__":
    asyncio.run(main())
