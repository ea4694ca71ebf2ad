"""How a shard's standing with a generation moves as documents change."""

from __future__ import annotations

from dataclasses import replace

from tessera.documents.record import DocumentRecord
from tessera.shards.fingerprint import add, contribution
from tessera.store.base import Standing


def moved(
    standing: Standing, generation: str, key: str, before: DocumentRecord | None, after: DocumentRecord
) -> Standing:
    """The standing once ``after`` has taken the place of ``before`` in the generation."""
    left, joined = _part(generation, key, before), _part(generation, key, after)
    if left == joined:
        return standing
    return replace(
        standing,
        documents=standing.documents + (joined is not None) - (left is not None),
        fingerprint=add(standing.fingerprint, joined or 0, left or 0),
    )


def _part(generation: str, key: str, record: DocumentRecord | None) -> int | None:
    """What a record adds to the generation's fingerprint; None where the generation does not hold it."""
    if record is None or record.deleted or generation not in record.indexed:
        return None
    return contribution(key, record.revision, record.content_digest)
