"""What a shard's log would give back: found out by applying its records to an empty store in memory.

Only documents in doubt are asked for: those whose last change stands in an earlier log or before the log's
start, and logs that may have begun there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from tessera.documents.record import EPOCH_STEP, DocumentRecord, decoded_records
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.generations.bootstrap import bootstrap
from tessera.kafka.probe import LogState
from tessera.limits import Limits
from tessera.shards.writer import ShardWriter
from tessera.store.base import Head, ShardId
from tessera.store.memory import MemoryStore

KnownRecord = DocumentRecord | None
"""None for one whose stored form cannot be read: nothing says then that the log holds it."""


def known_records(stored: Sequence[tuple[str, bytes]]) -> dict[str, KnownRecord]:
    """Records of a shard by key."""
    records, unreadable = decoded_records(stored)
    return {**dict(records), **dict.fromkeys(unreadable)}


def in_doubt(records: Mapping[str, KnownRecord], head: Head, log: LogState) -> dict[str, KnownRecord]:
    """Those of a shard's documents, deleted ones too, that its log may not give back as they are."""
    return {key: record for key, record in records.items() if not _is_in(record, head, log)}


def _is_in(record: KnownRecord, head: Head, log: LogState) -> bool:
    """Whether the log surely holds all that the record was made from."""
    if record is None or log.verdict == "foreign":
        return False
    if record.is_log and (head.epoch > 0 or log.start > 0):
        return False  # its first lines may have come in another log, or before the start of this one
    epoch, offset = divmod(record.log_revision, EPOCH_STEP)
    return epoch == head.epoch and log.start <= offset < log.end


async def lost(
    doubtful: Mapping[str, KnownRecord],
    batches: AsyncIterator[Sequence[Record]],
    shard: ShardId,
    partitions: int,
    catalog: SourceCatalog,
    limits: Limits,
) -> list[str]:
    """Keys among ``doubtful`` that the log, read from its start, leaves otherwise than they are, sorted.

    Texts of these documents are held in memory, as far as the log has them.
    """
    store = MemoryStore()
    await bootstrap(store, {shard.topic: partitions})
    writer = ShardWriter(store, shard, partitions=partitions, catalog=catalog, limits=limits)
    await writer.open()
    async for batch in batches:
        asked = [record for record in batch if (record.key or b"").decode("utf-8", "replace") in doubtful]
        if asked:
            await writer.write(asked)
    given = known_records(await store.scan_documents(shard))
    return [key for key, record in sorted(doubtful.items()) if not _is_same(record, given.get(key))]


def _is_same(held: KnownRecord, given: KnownRecord) -> bool:
    """Whether the log gives back what readers see now; revisions that a log numbers are others in each."""
    if held is None:
        return given is not None
    if held.deleted:
        return given is None or given.deleted
    return given is not None and _seen(held) == _seen(given)


def _seen(record: DocumentRecord) -> tuple[object, ...]:
    return (record.deleted, record.content_digest, record.media_type, record.access)
