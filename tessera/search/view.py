"""A generation kept current: reads what changed in its shards, and hands out snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tessera.errors import CorruptionError, StaleSnapshotError
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.codec import decode
from tessera.index.merge import dead_chunks
from tessera.index.segment import segment_blob
from tessera.search.consolidation import Consolidation, in_order, plan
from tessera.search.flight import SharedFlight
from tessera.search.part import Change, Origin, Part, part_of
from tessera.search.shardstate import ShardChange, ShardState, first_state, next_state
from tessera.search.snapshot import Snapshot
from tessera.store.base import NO_OFFSET, Head, SegmentMeta, ShardId, ShardStore

INLINE_CHUNKS = 2_000
"""More chunks than this are decoded in a thread: 10 ms of work would stall every query."""

ATTEMPTS = 5
"""Reads of a manifest whose segments were merged away before they were fetched. Merges of one shard are
seconds apart, so more failures in a row mean that blobs are lost."""


@dataclass(frozen=True, slots=True)
class Load:
    """One shard's change and the bytes of the segments it adds; ``change`` None: it holds nothing now."""

    shard: ShardId
    head: Head | None
    change: ShardChange | None
    forget: frozenset[str]
    blobs: Sequence[bytes] = ()


@dataclass(slots=True)
class _Shard:
    head: Head | None
    state: ShardState | None


class GenerationView:
    """One generation of all shards in memory."""

    def __init__(self, store: ShardStore, generation: str, policy_id: str, analyzer: WordsAnalyzer) -> None:
        self.generation = generation
        self.policy_id = policy_id
        self.analyzer = analyzer
        self._store = store
        self._shards: dict[ShardId, _Shard] = {}
        self._parts: tuple[Part, ...] = ()
        self._consolidations: dict[Consolidation, asyncio.Task[None]] = {}
        self._flight = SharedFlight(self._advance)
        self._snapshot = Snapshot((), {})
        self._failure: CorruptionError | None = None

    @property
    def segments(self) -> int:
        """Segments in the manifests last read."""
        return sum(len(shard.state.segments) for shard in self._shards.values() if shard.state)

    async def fresh(self) -> Snapshot:
        """A snapshot that holds everything committed before this call.

        Raises :class:`~tessera.errors.StaleSnapshotError` where segments stay missing, and
        :class:`~tessera.errors.CorruptionError` where they contradict each other.
        """
        return await self._flight.join()

    async def settle(self) -> None:
        """Wait until no parts are left to be merged; raises what :meth:`fresh` raises."""
        while self._consolidations:
            await asyncio.gather(*self._consolidations.values())
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Give up merges under way."""
        tasks = list(self._consolidations.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _advance(self) -> Snapshot:
        if self._failure is not None:
            return await self._reload()
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._follow(await self._heads())
            except StaleSnapshotError:
                continue
        return await self._follow(await self._heads())

    async def _reload(self) -> Snapshot:
        """Read everything anew after parts contradicted each other; what caused it may be mended since.

        Raises CorruptionError where it is not: all segments are merged at once, so none is overlooked.
        """
        for task in self._consolidations.values():
            task.cancel()  # their result would stand beside what is read now
        self._consolidations.clear()
        self._shards, self._parts, self._snapshot = {}, (), Snapshot((), {})
        snapshot = await self._follow(await self._heads())
        self._failure = None
        return snapshot

    async def _heads(self) -> dict[ShardId, Head | None]:
        known = list(self._shards)
        topics, heads = await asyncio.gather(self._store.topics(), self._store.heads(known))
        shards = [ShardId(topic, number) for topic in sorted(topics) for number in range(topics[topic])]
        if shards != known:
            heads = await self._store.heads(shards)
        return dict(zip(shards, heads, strict=True))

    async def _follow(self, heads: dict[ShardId, Head | None]) -> Snapshot:
        changed = [
            (shard, head)
            for shard, head in heads.items()
            if shard not in self._shards or self._shards[shard].head != head
        ]
        if not changed:
            return self._snapshot
        loads = await asyncio.gather(*(self._load(shard, head) for shard, head in changed))
        added = sum(meta.chunks for load in loads if load.change for meta in load.change.added)
        if added > INLINE_CHUNKS:
            parts, changes = await asyncio.to_thread(_applied, self._parts, loads)
        else:
            parts, changes = _applied(self._parts, loads)
        for consolidation in self._consolidations:
            consolidation.note(changes)
        for load in loads:
            state = load.change.state.trimmed() if load.change else None
            self._shards[load.shard] = _Shard(load.head, state)
        self._shards = {shard: self._shards[shard] for shard in heads}
        self._replace_parts(parts)
        return self._snapshot

    async def _load(self, shard: ShardId, head: Head | None) -> Load:
        """What changed in one shard, and the bytes of what was added."""
        held = self._shards.get(shard)
        state = held.state if held else None
        forget = frozenset(state.segments) if state else frozenset()
        manifest = head and await self._store.manifest(
            shard, self.generation, from_tombstone=state.ask_from(head) if state else 0
        )
        if not manifest:
            return Load(shard, head, None, forget)
        change = next_state(state, manifest) if state else first_state(manifest)
        if change is None:
            manifest = await self._store.manifest(shard, self.generation)
            if not manifest:
                return Load(shard, head, None, forget)
            change = first_state(manifest, forget)
        blobs = await self._fetch(shard, change.added)
        return Load(shard, change.state.head, change, change.gone, blobs)

    async def _fetch(self, shard: ShardId, segments: Sequence[SegmentMeta]) -> list[bytes]:
        if not segments:
            return []
        ids = [segment_blob(self.generation, meta.id) for meta in segments]
        found = await self._store.blobs(shard, ids)
        blobs = [blob for blob in found if blob is not None]
        if len(blobs) < len(ids):
            raise StaleSnapshotError(
                f"shard {shard}: {ids[found.index(None)]} is gone from the store although the manifest names "
                "it: restore the server from a backup, or rebuild the generation"
            )
        return blobs

    def _replace_parts(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        applied = {
            shard: held.head.applied if held.head else NO_OFFSET for shard, held in self._shards.items()
        }
        self._snapshot = Snapshot(parts, applied)
        busy = {index for running in self._consolidations for index in running.inputs}
        chosen = plan([part for part in parts if part.index not in busy])
        if chosen:
            consolidation = Consolidation(chosen)
            self._consolidations[consolidation] = asyncio.create_task(self._consolidate(consolidation))

    async def _consolidate(self, consolidation: Consolidation) -> None:
        try:
            merged = await consolidation.run()
            async with self._flight.lock:
                parts = consolidation.finished(merged, self._parts)
                del self._consolidations[consolidation]
                self._replace_parts(parts)
        except CorruptionError as error:
            self._failure = error
        finally:
            self._consolidations.pop(consolidation, None)


def _applied(parts: Sequence[Part], loads: Sequence[Load]) -> tuple[tuple[Part, ...], list[Change]]:
    """The parts after these changes, and what was done to each of the parts that were there before."""
    changes: list[Change] = []
    for load in loads:
        if load.forget:
            changes.append(partial(Part.without_segments, shard=load.shard, segments=load.forget))
        if load.change and load.change.tombstones:
            changes.append(
                partial(Part.after_tombstones, shard=load.shard, tombstones=load.change.tombstones)
            )
    new = _loaded_part(loads)
    if new is not None:
        changes.append(partial(Part.with_entries, entries=new.live_entries()))
    current = []
    for part in parts:
        for change in changes:
            part = change(part)
        current.append(part)
    if new is not None:
        for part in current:
            new = new.with_entries(part.entries_for(new.segment.documents))
        current.append(new)
    return in_order(current), changes


def _loaded_part(loads: Sequence[Load]) -> Part | None:
    """One part of all segments that the changes add, None where they add no live chunk."""
    sources = []
    for load in loads:
        if load.change is None:
            continue
        for meta, blob in zip(load.change.added, load.blobs, strict=True):
            segment = decode(blob)
            dead = dead_chunks(segment, load.change.state.tombstones_from(meta.watermark))
            origin = Origin(load.shard, meta.id)
            sources.append((segment, dead, [origin], np.zeros(segment.chunks, np.uint32)))
    part = part_of(sources) if sources else None
    if part and part.live_chunks > INLINE_CHUNKS:
        part.index.prepare()
    return part if part and part.live_chunks else None
