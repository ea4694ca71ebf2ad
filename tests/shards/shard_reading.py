"""Reads a whole shard the slow and obvious way: every live chunk with its text, and every record."""

from __future__ import annotations

from tessera.documents.record import DocumentRecord
from tessera.documents.text import block_ids, decompress
from tessera.index.codec import decode
from tessera.index.merge import dead_chunks
from tessera.index.segment import COLUMNS, segment_blob
from tessera.store.base import ShardId, ShardStore


async def read_records(store: ShardStore, shard: ShardId) -> dict[str, DocumentRecord]:
    return {key: DocumentRecord.decode(data, key) for key, data in await store.scan_documents(shard)}


async def read_text(store: ShardStore, shard: ShardId, record: DocumentRecord) -> str:
    ids = block_ids(record.text_id, record.size_bytes)
    blobs = await store.blobs(shard, ids)
    return b"".join(decompress(blob, name) for blob, name in zip(blobs, ids, strict=True)).decode()


async def read_chunks(store: ShardStore, shard: ShardId, generation: str = "g1") -> dict[str, list[dict]]:
    """Live chunks by document key, each a dict of the segment's columns with headings and bytes."""
    manifest = await store.manifest(shard, generation)
    assert manifest is not None
    found: dict[str, list[dict]] = {}
    for meta in manifest.segments.values():
        [blob] = await store.blobs(shard, [segment_blob(generation, meta.id)])
        assert blob is not None
        segment = decode(blob)
        dead = dead_chunks(segment, manifest.tombstones[max(0, meta.watermark - manifest.tombstone_base) :])
        for row, gone in zip(segment.columns.tolist(), dead, strict=True):
            if not gone:
                chunk = dict(zip(COLUMNS, row, strict=True))
                chunk["headings"] = segment.headings[chunk["heading"]]
                entry = segment.documents[chunk["document"]]
                chunk["revision"] = entry.revision
                found.setdefault(entry.key, []).append(chunk)
    return {key: sorted(chunks, key=lambda chunk: chunk["ordinal"]) for key, chunks in found.items()}


async def check_shard(
    store: ShardStore, shard: ShardId, expected: dict[str, str], policy, generation: str = "g1"
) -> None:
    """Every live document has the expected text, and just the chunks of that text cut at once."""
    records = await read_records(store, shard)
    live = {key: record for key, record in records.items() if not record.deleted}
    assert sorted(live) == sorted(expected)
    chunks = await read_chunks(store, shard, generation)
    for key, record in live.items():
        text = await read_text(store, shard, record)
        assert text == expected[key]
        if record.gaps:
            continue
        cut = policy.chunk(text, "s", record.media_type)
        held = chunks.pop(key, [])
        fields = ("start", "end", "start_line", "end_line", "start_token", "end_token", "headings")
        assert [tuple(c[f] for f in fields) for c in held] == [
            tuple(getattr(c, f) for f in fields) for c in cut
        ]
        for chunk, whole in zip(held, cut, strict=True):
            assert text.encode()[chunk["start_byte"] : chunk["end_byte"]].decode() == whole.text
        assert record.indexed[generation].chunks == len(cut)
    assert not {key for key in chunks if key not in live}


async def newest_entry(store: ShardStore, shard: ShardId, key: str, generation: str = "g1"):
    """The document entry with the greatest sequence among all segments, None where the document has none."""
    manifest = await store.manifest(shard, generation)
    assert manifest is not None
    entries = []
    for meta in manifest.segments.values():
        [blob] = await store.blobs(shard, [segment_blob(generation, meta.id)])
        entries += [entry for entry in decode(blob).documents if entry.key == key]
    return max(entries, key=lambda entry: entry.seq, default=None)
