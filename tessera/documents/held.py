"""What the index holds of a source's documents, as its connector compares them with the files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tessera.documents.record import DocumentRecord
from tessera.store.base import ShardId, ShardStore


@dataclass(frozen=True, slots=True)
class HeldDocument:
    """One document of a source as the index holds it.

    ``content_digest`` is that of :mod:`tessera.documents.digests`, empty for a deleted document.
    ``access`` holds the principals that apply, the source's default filled in. The last three describe
    the held text: ``lines`` counts as ``sed -n`` does, ``size_bytes`` is that of its UTF-8 form.
    """

    revision: int
    content_digest: str
    media_type: str
    access: tuple[str, ...]
    deleted: bool = False
    lines: int = 0
    size_bytes: int = 0
    ends_with_newline: bool = True


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
