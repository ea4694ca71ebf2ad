"""A generation kept current: reads what changed in its shards, and hands out snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tessera.errors import CorruptionError, StaleSnapshotError
from tessera.index.analyzer import Analyzer
from tessera.index.codec import decode
from tessera.index.merge import dead_chunks
from tessera.index.segment import segment_blob
from tessera.search.consolidation import Consolidation, in_order, plan
from tessera.search.flight import retrieve
from tessera.search.heads import Heads, HeadsReader, is_incomplete
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

    def __init__(
        self,
        store: ShardStore,
        heads: HeadsReader,
        generation: str,
        policy_id: str,
        analyzer: Analyzer,
    ) -> None:
        self.generation = generation
        self.policy_id = policy_id
        self.analyzer = analyzer
        self.lock = asyncio.Lock()
        """Held while the view moves; hold it to keep the view where it is."""
        self._store = store
        self._heads = heads
        self._number = 0
        self._shards: dict[ShardId, _Shard] = {}
        self._parts: tuple[Part, ...] = ()
        self._consolidations: dict[Consolidation, asyncio.Task[None]] = {}
        self._snapshot = Snapshot((), {})
        self._failure: CorruptionError | None = None

    @property
    def segments(self) -> int:
        """Segments in the manifests last read."""
        return sum(len(shard.state.segments) for shard in self._shards.values() if shard.state)

    @property
    def loaded(self) -> bool:
        """Whether it has been brought up to the shards once, and can be again."""
        return self._number > 0 and self._failure is None

    @property
    def snapshot(self) -> Snapshot:
        """Where the view is now."""
        return self._snapshot

    def head(self, shard: ShardId) -> Head | None:
        """The head that the snapshot holds the shard at."""
        held = self._shards.get(shard)
        return held.head if held else None

    async def at(self, heads: Heads) -> Snapshot:
        """A snapshot that holds everything these heads hold, or more; at once where the view is there.

        Raises :class:`~tessera.errors.StaleSnapshotError` where segments stay missing, and
        :class:`~tessera.errors.CorruptionError` where they contradict each other.
        """
        if heads.number <= self._number and self._failure is None:
            return self._snapshot
        advance = asyncio.create_task(self._advance(heads))
        advance.add_done_callback(retrieve)
        # A load goes on for the others where this caller is cancelled.
        return await asyncio.shield(advance)

    async def follow(self, heads: Mapping[ShardId, Head | None]) -> Snapshot:
        """As :meth:`at`, once, for a caller that holds the lock; StaleSnapshotError where heads moved on."""
        if self._failure is not None:
            raise self._failure
        changed = [
            (shard, head)
            for shard, head in heads.items()
            if shard not in self._shards or self._shards[shard].head != head
        ]
        if not changed and self._shards.keys() == heads.keys():
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

    async def _advance(self, heads: Heads) -> Snapshot:
        async with self.lock:
            if heads.number <= self._number and self._failure is None:
                return self._snapshot
            if self._failure is not None:
                self._forget()
            for _ in range(ATTEMPTS - 1):
                try:
                    await self.follow(heads.by_shard)
                    break
                except StaleSnapshotError:
                    heads = await self._heads.read()
            else:
                await self.follow(heads.by_shard)
            self._number = max(self._number, heads.number)
            return self._snapshot

    def _forget(self) -> None:
        """Begin anew after parts contradicted each other: what caused it may be mended since."""
        for task in self._consolidations.values():
            task.cancel()  # their result would stand beside what is read now
        self._consolidations.clear()
        self._shards, self._parts, self._snapshot = {}, (), Snapshot((), {})
        self._number, self._failure = 0, None

    async def _load(self, shard: ShardId, head: Head | None) -> Load:
        """What changed in one shard, and the bytes of what was added."""
        held = self._shards.get(shard)
        state = held.state if held else None
        forget = frozenset(state.segments) if state else frozenset()
        manifest = head and await self._store.manifest(
            shard, self.generation, from_tombstone=state.ask_from(head) if state else 0
        )
        change = None
        if manifest:
            change = next_state(state, manifest) if state else first_state(manifest)
        if manifest and change is None:
            manifest = await self._store.manifest(shard, self.generation)
            change = first_state(manifest, forget) if manifest else None
        if change is None:
            if head and self.generation in head.live:
                raise StaleSnapshotError(
                    f"shard {shard} gave up generation {self.generation} while it was read: ask again"
                )
            return Load(shard, head, None, forget)
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
        heads = {shard: held.head for shard, held in self._shards.items()}
        applied = {shard: head.applied if head else NO_OFFSET for shard, head in heads.items()}
        claimed = [head for head in heads.values() if head]
        self._snapshot = Snapshot(
            parts,
            applied,
            absent=tuple(head.shard for head in claimed if self.generation not in head.live),
            incomplete=tuple(head.shard for head in claimed if is_incomplete(head, self.generation)),
        )
        busy = {index for running in self._consolidations for index in running.inputs}
        chosen = plan([part for part in parts if part.index not in busy])
        if chosen:
            consolidation = Consolidation(chosen)
            self._consolidations[consolidation] = asyncio.create_task(self._consolidate(consolidation))

    async def _consolidate(self, consolidation: Consolidation) -> None:
        try:
            merged = await consolidation.run()
            async with self.lock:
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
