"""All that a generation holds in one shard: the live chunks of every document, read from its segments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tessera.errors import CorruptionError
from tessera.index.codec import decode
from tessera.index.merge import dead_chunks
from tessera.index.segment import I64, DocumentEntry, Segment
from tessera.store.base import Manifest, ShardId, ShardStore, Tombstone, segment_blob

FIELDS: Final = (
    "ordinal",
    "start",
    "end",
    "start_byte",
    "end_byte",
    "start_line",
    "end_line",
    "start_token",
    "end_token",
    "length",
)
"""Columns of :attr:`HeldChunks.rows`, named as in :data:`tessera.index.segment.COLUMNS`."""

ATTEMPTS: Final = 3
"""Manifests read while segments go missing. A merge leaves the old ones for minutes, so more failures in a
row mean that blobs are lost."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldChunks:
    """The live chunks of one document, by ordinal: C rows of :data:`FIELDS`, C heading paths.

    ``entry`` is what the index knows of the document, from the segment written last.
    """

    entry: DocumentEntry
    rows: I64
    headings: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> I64:
        """One column of :data:`FIELDS`, C values."""
        return self.rows[:, FIELDS.index(name)]


NOTHING: Final = np.empty((0, len(FIELDS)), np.int64)
"""The rows of a document without a chunk."""


async def read_inventory(store: ShardStore, shard: ShardId, generation: str) -> dict[str, HeldChunks]:
    """The live chunks by ``<source>/<doc_id>``; nothing where the shard does not hold the generation.

    Raises :class:`~tessera.errors.CorruptionError` where a segment is missing or cannot be read.
    """
    for _ in range(ATTEMPTS):
        manifest = await store.manifest(shard, generation)
        if manifest is None:
            return {}
        pieces: dict[str, list[HeldChunks]] = {}
        if await _read_segments(store, generation, manifest, pieces):
            return {key: _joined(held) for key, held in pieces.items()}
    raise CorruptionError(
        f"shard {shard}: segments of generation {generation} are gone: rebuild the generation"
    )


async def _read_segments(
    store: ShardStore, generation: str, manifest: Manifest, pieces: dict[str, list[HeldChunks]]
) -> bool:
    """Read the manifest's segments one by one into ``pieces``; False where one is gone meanwhile."""
    for meta in manifest.segments.values():
        [blob] = await store.blobs(manifest.head.shard, [segment_blob(generation, meta.id)])
        if blob is None:
            return False
        applying = manifest.tombstones[max(0, meta.watermark - manifest.tombstone_base) :]
        await asyncio.to_thread(_take, blob, applying, pieces)
    return True


def _take(blob: bytes, tombstones: Sequence[Tombstone], pieces: dict[str, list[HeldChunks]]) -> None:
    segment = decode(blob)
    alive = ~dead_chunks(segment, tombstones)
    table = np.stack([segment.column(name) for name in FIELDS], axis=1).astype(np.int64)
    starts = segment.document_starts().tolist()
    for row, entry in enumerate(segment.documents):
        numbers = np.flatnonzero(alive[starts[row] : starts[row + 1]]) + starts[row]
        if len(numbers):
            held = HeldChunks(entry, table[numbers], _headings(segment, numbers))
            pieces.setdefault(entry.key, []).append(held)


def _headings(segment: Segment, numbers: I64) -> tuple[tuple[str, ...], ...]:
    return tuple(segment.headings[row] for row in segment.column("heading")[numbers].tolist())


def _joined(pieces: Sequence[HeldChunks]) -> HeldChunks:
    if len(pieces) == 1:
        return pieces[0]
    rows = np.concatenate([piece.rows for piece in pieces])
    headings = [path for piece in pieces for path in piece.headings]
    order = np.argsort(rows[:, 0], kind="stable")
    return HeldChunks(
        max((piece.entry for piece in pieces), key=lambda entry: entry.seq),
        rows[order],
        tuple(headings[number] for number in order.tolist()),
    )
