"""Documents as the shards' tables hold them, whatever a generation cuts them into."""

from __future__ import annotations

from typing import NamedTuple

from tessera.documents.record import DocumentRecord
from tessera.documents.text import block_ids, decompress
from tessera.events.change import document_key
from tessera.events.topics import CHANGE_TOPICS, partition_of
from tessera.store.base import ShardId, ShardStore


class Stored(NamedTuple):
    """A document's record and the shard that holds it."""

    shard: ShardId
    record: DocumentRecord


async def stored_document(store: ShardStore, source: str, doc_id: str) -> Stored | None:
    """The document, where it is held; also a deleted one, as long as it is remembered."""
    key = document_key(source, doc_id)
    topics = await store.topics()
    for topic in CHANGE_TOPICS:
        if topic not in topics:
            continue
        shard = ShardId(topic, partition_of(key.encode(), topics[topic]))
        [encoded] = await store.documents(shard, [key])
        if encoded is not None:
            return Stored(shard, DocumentRecord.decode(encoded, key))
    return None


async def document_text(store: ShardStore, stored: Stored) -> str | None:
    """The document's text; None where a block went meanwhile."""
    ids = block_ids(stored.record.text_id, stored.record.size_bytes) if stored.record.text_id else []
    pieces = []
    for blob_id, blob in zip(ids, await store.blobs(stored.shard, ids), strict=True):
        if blob is None:
            return None
        pieces.append(decompress(blob, blob_id))
    return b"".join(pieces).decode()
