"""Merges of one shard's segments: computed off the hot path, committed like anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from tessera.errors import CorruptionError
from tessera.index.codec import decode, encode
from tessera.index.merge import MergePolicy, dead_chunks, merge
from tessera.index.segment import Segment, segment_blob
from tessera.store.base import GenerationDelta, Manifest, SegmentMeta, ShardId, ShardStore, Tombstone


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome of a merge, ready to be committed. ``segment`` is None where every chunk was dead."""

    segment: SegmentMeta | None
    blob_id: str
    blob: bytes
    delta: GenerationDelta
    replaced: tuple[str, ...]


class Merger:
    """Finds and computes merges for one shard; one at a time."""

    def __init__(self, store: ShardStore, shard: ShardId, policy: MergePolicy | None = None) -> None:
        self._store = store
        self._shard = shard
        self._policy = policy or MergePolicy()
        self._numbers = count()
        self._seen: dict[str, int] = {}

    async def merge(self, generation: str, fence: int, seq: int) -> Merged | None:
        """The next merge that is due, or None. Reads only; ``fence`` and ``seq`` make its name unique."""
        if self._seen.get(generation) == seq:
            return None
        manifest = await self._store.manifest(self._shard, generation)
        if manifest is None:
            return None
        chosen = self._policy.plan(manifest.segments, manifest.next_tombstone)
        if not chosen:
            self._seen[generation] = seq
            return None
        ids = [segment_blob(generation, segment_id) for segment_id in chosen]
        blobs = await self._store.blobs(self._shard, ids)
        encoded = []
        for blob_id, blob in zip(ids, blobs, strict=True):
            if blob is None:
                raise CorruptionError(
                    f"segment {blob_id} of shard {self._shard} is gone: rebuild the generation from its log"
                )
            encoded.append(blob)
        metas = [manifest.segments[segment_id] for segment_id in chosen]
        name = f"m{seq:x}-{fence:x}-{next(self._numbers):x}"
        return await asyncio.to_thread(_merged, generation, name, manifest, metas, encoded)


def _merged(
    generation: str, name: str, manifest: Manifest, metas: Sequence[SegmentMeta], blobs: Sequence[bytes]
) -> Merged:
    parts = []
    for meta, blob in zip(metas, blobs, strict=True):
        segment = decode(blob)
        parts.append((segment, dead_chunks(segment, _applying(manifest, meta))))
    segment = merge(parts)
    blob = encode(segment)
    added = _meta(name, manifest, segment, blob)
    chosen = {meta.id for meta in metas}
    left = [other.watermark for other in manifest.segments.values() if other.id not in chosen]
    delta = GenerationDelta(
        expected_next_tombstone=manifest.next_tombstone,
        add=(added,) if added else (),
        drop=tuple(chosen),
        trim_tombstones_below=min([manifest.next_tombstone, *left]),
    )
    replaced = tuple(segment_blob(generation, segment_id) for segment_id in sorted(chosen))
    return Merged(added, segment_blob(generation, name), blob, delta, replaced)


def _applying(manifest: Manifest, meta: SegmentMeta) -> Sequence[Tombstone]:
    return manifest.tombstones[max(0, meta.watermark - manifest.tombstone_base) :]


def _meta(name: str, manifest: Manifest, segment: Segment, blob: bytes) -> SegmentMeta | None:
    if not segment.chunks:
        return None
    return SegmentMeta(name, manifest.next_tombstone, segment.chunks, len(blob))
