"""What the index holds of a source, as its connector compares it with the files."""

from __future__ import annotations

from collections.abc import Iterable

from tessera.documents.record import DocumentRecord
from tessera.sources.held import HeldDocument
from tessera.store.base import ShardId, ShardStore


async def held_documents(
    store: ShardStore, source: str, shards: Iterable[ShardId]
) -> dict[str, HeldDocument]:
    """All documents of a source by id, deleted ones included, from the shards of its topic."""
    prefix = f"{source}/"
    held = {}
    for shard in shards:
        for key, data in await store.scan_documents(shard, prefix):
            record = DocumentRecord.decode(data, key)
            held[key.removeprefix(prefix)] = HeldDocument(
                revision=record.revision,
                content_digest=record.content_digest,
                media_type=record.media_type,
                access=record.access,
                deleted=record.deleted,
                lines=record.lines,
                size_bytes=record.size_bytes,
                ends_with_newline=record.ends_with_newline,
            )
    return held
