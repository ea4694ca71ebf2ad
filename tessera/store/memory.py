"""A store in the memory of one process: for tests and the in-process driver, where nothing must survive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tessera.store import rules
from tessera.store.base import (
    NO_OFFSET,
    Commit,
    GenerationDelta,
    Head,
    Manifest,
    SegmentMeta,
    ShardId,
    Tombstone,
    deadletter_blob,
    segment_blob,
)
from tessera.store.keys import GRACE_S, STAGING_S


@dataclass(slots=True)
class _Blob:
    content: bytes
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class _Lease:
    content: bytes
    expires_at: float


@dataclass(slots=True)
class _Generation:
    segments: dict[str, SegmentMeta] = field(default_factory=dict)
    tombstones: list[Tombstone] = field(default_factory=list)
    tombstone_base: int = 0

    @property
    def next_tombstone(self) -> int:
        return self.tombstone_base + len(self.tombstones)

    @property
    def is_empty(self) -> bool:
        return not self.segments and not self.next_tombstone


@dataclass(slots=True)
class _Shard:
    head: Head | None = None
    documents: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)
    generations: dict[str, _Generation] = field(default_factory=dict)
    blobs: dict[str, _Blob] = field(default_factory=dict)
    deadletters: dict[str, bytes] = field(default_factory=dict)
    outbox: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


class MemoryStore:
    """A :class:`~tessera.store.base.ShardStore` in memory.

    No method awaits anything, so each is one step for every other task of the loop. ``clock`` returns
    seconds and decides when blobs and leases expire.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shards: dict[ShardId, _Shard] = {}
        self._topics: dict[str, int] = {}
        self._version = 0
        self._registry: bytes | None = None
        self._release: bytes | None = None
        self._leases: dict[str, _Lease] = {}

    async def claim(self, shard: ShardId, live: Sequence[str], floor: int = 0) -> Head:
        """Take the fence; a new shard begins with ``live``, complete."""
        rules.require_fence(floor)
        names = rules.live_names(live)
        state = self._at(shard)
        if state.head is None:
            state.head = Head(shard, 0, 0, NO_OFFSET, "", 0, names, rules.complete(names))
            state.generations = {name: _Generation() for name in names}
        state.head = replace(state.head, fence=max(state.head.fence + 1, floor))
        return state.head

    async def head(self, shard: ShardId) -> Head | None:
        """The head, or None where the shard was never claimed."""
        return self._at(shard).head

    async def heads(self, shards: Sequence[ShardId]) -> list[Head | None]:
        """The heads, in the order asked for."""
        return [self._at(shard).head for shard in shards]

    async def documents(self, shard: ShardId, keys: Sequence[str]) -> list[bytes | None]:
        """Encoded records, None where there is none."""
        table = self._at(shard).documents
        return [table.get(key) for key in keys]

    async def scan_documents(self, shard: ShardId, prefix: str = "") -> list[tuple[str, bytes]]:
        """Records whose key starts with ``prefix``, in key order."""
        return sorted(item for item in self._at(shard).documents.items() if item[0].startswith(prefix))

    async def parts(self, shard: ShardId, keys: Sequence[str]) -> list[bytes | None]:
        """Encoded states of documents that arrive in several records."""
        table = self._at(shard).parts
        return [table.get(key) for key in keys]

    async def manifest(self, shard: ShardId, generation: str, from_tombstone: int = 0) -> Manifest | None:
        """Head, segments and tombstones; None where the shard does not hold the generation."""
        if from_tombstone < 0:
            raise ValueError(f"from_tombstone must not be negative, got {from_tombstone}")
        state = self._at(shard)
        if state.head is None or generation not in state.head.live:
            return None
        held = state.generations[generation]
        base = min(max(from_tombstone, held.tombstone_base), held.next_tombstone)
        tombstones = tuple(held.tombstones[base - held.tombstone_base :])
        return Manifest(state.head, dict(held.segments), base, tombstones)

    async def stage(self, shard: ShardId, blobs: Mapping[str, bytes]) -> None:
        """Write blobs with an expiry; those kept already stay as they are."""
        expires_at = self._clock() + STAGING_S
        for name, content in blobs.items():
            held = self._blob(shard, name)
            if held is None:
                self._at(shard).blobs[name] = _Blob(content, expires_at)
            elif held.content != content:
                raise rules.blob_differs(shard, name)
            elif held.expires_at is not None:
                held.expires_at = expires_at

    async def blobs(self, shard: ShardId, ids: Sequence[str]) -> list[bytes | None]:
        """The bytes, None where a blob is gone."""
        found = [self._blob(shard, name) for name in ids]
        return [blob.content if blob is not None else None for blob in found]

    async def commit(self, commit: Commit) -> Head:
        """Apply the commit as a whole; see :class:`~tessera.store.base.Commit` for what is refused."""
        rules.require_well_formed(commit)
        head = self._require_applicable(commit)
        state = self._at(commit.shard)
        self._move_blobs(state, commit)
        _put(state.documents, commit.documents)
        _put(state.parts, commit.parts)
        for name, delta in commit.generations.items():
            _apply_delta(state.generations[name], delta)
        state.outbox += [name for name in commit.deadletters if name not in state.deadletters]
        state.deadletters.update(commit.deadletters)
        for name, amount in commit.counters.items():
            state.counters[name] = state.counters.get(name, 0) + amount
        if commit.applied is not None:
            head = replace(head, applied=commit.applied, record_digest=commit.record_digest)
        if commit.standings is not None:
            head = replace(head, live=tuple(sorted(commit.standings)), standings=dict(commit.standings))
            state.generations |= {name: _Generation() for name in set(head.live) - set(state.generations)}
        state.head = replace(head, seq=head.seq + 1)
        return state.head

    async def adopt_log(self, shard: ShardId) -> Head:
        """Begin a new log; SequenceError where the shard was never claimed."""
        state = self._at(shard)
        state.head = _begun_again(self._known(shard))
        return state.head

    async def contract_step(self, shard: ShardId, fence: int, generation: str, limit: int) -> int:
        """Remove at most ``limit`` segments of a generation given up; return how many are left."""
        rules.require_step(fence, generation, limit)
        state, head = self._at(shard), self._known(shard)
        _require_fence(head, fence)
        if generation in head.live:
            raise rules.still_live(shard, generation)
        held = state.generations.get(generation, _Generation())
        for segment in sorted(held.segments)[:limit]:
            del held.segments[segment]
            state.blobs.pop(segment_blob(generation, segment), None)
        if not held.segments:
            state.generations.pop(generation, None)
            state.removed.add(generation)
            state.counters = {
                name: count
                for name, count in state.counters.items()
                if not name.startswith(rules.counters_of(generation))
            }
        return len(held.segments)

    async def clear(self, shard: ShardId) -> Head:
        """Remove all but dead letters; SequenceError where the shard was never claimed."""
        old, head = self._at(shard), _begun_again(self._known(shard))
        kept = {blob: held for blob, held in old.blobs.items() if blob.startswith(deadletter_blob(""))}
        self._shards[shard] = _Shard(
            replace(head, standings=rules.complete(head.live)),
            generations={
                name: _Generation(tombstone_base=old.generations[name].next_tombstone) for name in head.live
            },
            blobs=kept,
            deadletters=old.deadletters,
            outbox=old.outbox,
            removed=old.removed,
        )
        return self._known(shard)

    async def counters(self, shard: ShardId) -> dict[str, int]:
        """The counters."""
        return dict(self._at(shard).counters)

    async def outbox(self, shard: ShardId) -> list[str]:
        """Ids of dead letters to deliver, oldest first."""
        return list(self._at(shard).outbox)

    async def outbox_done(self, shard: ShardId, ids: Sequence[str]) -> None:
        """Take delivered dead letters out of the outbox."""
        state = self._at(shard)
        state.outbox = [name for name in state.outbox if name not in set(ids)]

    async def deadletters(self, shard: ShardId) -> dict[str, bytes]:
        """All dead letters."""
        return dict(self._at(shard).deadletters)

    async def discard_deadletter(self, shard: ShardId, deadletter_id: str) -> bool:
        """Remove one dead letter, its bytes and its place in the outbox."""
        state = self._at(shard)
        state.blobs.pop(deadletter_blob(deadletter_id), None)
        state.outbox = [name for name in state.outbox if name != deadletter_id]
        return state.deadletters.pop(deadletter_id, None) is not None

    async def topics(self) -> dict[str, int]:
        """Recorded partition counts."""
        return dict(self._topics)

    async def record_topic(self, topic: str, partitions: int) -> int:
        """Record a count if none is, and return the recorded one."""
        return self._topics.setdefault(topic, partitions)

    async def control(self) -> tuple[int, bytes | None]:
        """Version and registry."""
        return self._version, self._registry

    async def put_control(self, expected: int, registry: bytes, release: bytes) -> bool:
        """Write registry and release pointer if the version is ``expected``."""
        rules.require_control(expected, registry, release)
        if self._version != expected:
            return False
        self._version, self._registry, self._release = expected + 1, registry, release
        return True

    async def release(self) -> bytes | None:
        """The release pointer."""
        return self._release

    async def now_ms(self) -> int:
        """This machine's clock."""
        return time.time_ns() // 1_000_000

    async def announce(self, reader: str, lease: bytes, ttl_s: float) -> None:
        """Keep a searcher's lease for ``ttl_s`` seconds."""
        rules.require_lease(reader, lease, ttl_s)
        self._leases = self._running_leases() | {reader: _Lease(lease, self._clock() + ttl_s)}

    async def readers(self) -> dict[str, bytes]:
        """The leases that have not run out."""
        self._leases = self._running_leases()
        return {reader: lease.content for reader, lease in self._leases.items()}

    async def ping(self) -> None:
        """Memory always answers."""

    async def close(self) -> None:
        """There is no connection to release."""

    def _at(self, shard: ShardId) -> _Shard:
        return self._shards.setdefault(shard, _Shard())

    def _known(self, shard: ShardId) -> Head:
        head = self._at(shard).head
        if head is None:
            raise rules.unknown_shard(shard)
        return head

    def _running_leases(self) -> dict[str, _Lease]:
        now = self._clock()
        return {reader: lease for reader, lease in self._leases.items() if lease.expires_at > now}

    def _blob(self, shard: ShardId, name: str) -> _Blob | None:
        blobs = self._at(shard).blobs
        blob = blobs.get(name)
        if blob is not None and blob.expires_at is not None and blob.expires_at <= self._clock():
            del blobs[name]
            return None
        return blob

    def _move_blobs(self, state: _Shard, commit: Commit) -> None:
        expires_at = self._clock() + GRACE_S
        for name in commit.keep:
            state.blobs[name].expires_at = None
        for name in commit.expire:
            if name in state.blobs:
                state.blobs[name].expires_at = expires_at
        for name in commit.unlink:
            state.blobs.pop(name, None)

    def _require_applicable(self, commit: Commit) -> Head:
        shard, state, head = commit.shard, self._at(commit.shard), self._known(commit.shard)
        _require_head(head, commit)
        for name in sorted(set(commit.standings or ()) - set(head.live)):
            if name in state.removed:
                raise rules.removed(shard, name)
            if not state.generations.get(name, _Generation()).is_empty:
                raise rules.left_over(shard, name)
        for name, delta in commit.generations.items():
            _require_generation(shard, name, state.generations[name], delta)
        for name in commit.keep:
            if self._blob(shard, name) is None:
                raise rules.blob_gone(shard, name)
        for name, amount in commit.counters.items():
            if abs(state.counters.get(name, 0) + amount) > rules.MAX_INTEGER:
                raise rules.counter_full(shard, name)
        return head


def _begun_again(head: Head) -> Head:
    return replace(
        head,
        fence=head.fence + 1,
        seq=head.seq + 1,
        applied=NO_OFFSET,
        record_digest="",
        epoch=head.epoch + 1,
    )


def _require_fence(head: Head, fence: int) -> None:
    if head.fence > fence:
        raise rules.fenced(head.shard, head.fence, fence)
    if head.fence < fence:
        raise rules.fence_lost(head.shard, head.fence, fence)


def _require_head(head: Head, commit: Commit) -> None:
    _require_fence(head, commit.fence)
    if head.seq != commit.seq:
        raise rules.moved(head.shard, head.seq, commit.seq)
    named = set(commit.generations)
    if (
        commit.standings is not None
        and set(commit.standings) != set(head.live)
        and (named or commit.applied is not None)
    ):
        raise rules.adoption_not_alone(head.shard, head.live, commit.standings)
    if not named <= set(head.live) or (commit.applied is not None and named != set(head.live)):
        raise rules.other_generations(head.shard, head.live, named)
    if commit.after is not None and commit.after != head.applied:
        raise rules.elsewhere(head.shard, head.applied, commit.after)
    if commit.applied is not None and commit.applied <= head.applied:
        raise rules.not_rising(head.shard, head.applied, commit.applied)


def _require_generation(shard: ShardId, name: str, held: _Generation, delta: GenerationDelta) -> None:
    if held.next_tombstone != delta.expected_next_tombstone:
        raise rules.other_tombstones(shard, name, held.next_tombstone, delta.expected_next_tombstone)
    for segment in delta.drop:
        if segment not in held.segments:
            raise rules.segment_missing(shard, name, segment)
    for meta in delta.add:
        if meta.id in held.segments:
            raise rules.segment_taken(shard, name, meta.id)
    below = delta.trim_tombstones_below
    if below is None:
        return
    staying = [meta for meta in held.segments.values() if meta.id not in delta.drop]
    for meta in (*staying, *delta.add):
        if meta.watermark < below:
            raise rules.trim_unsafe(shard, name, meta.id, below)


def _apply_delta(held: _Generation, delta: GenerationDelta) -> None:
    for segment in delta.drop:
        del held.segments[segment]
    held.segments.update({meta.id: meta for meta in delta.add})
    held.tombstones += delta.tombstones
    base = max(held.tombstone_base, delta.trim_tombstones_below or 0)
    del held.tombstones[: base - held.tombstone_base]
    held.tombstone_base = base


def _put(table: dict[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    for key, value in changes.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
