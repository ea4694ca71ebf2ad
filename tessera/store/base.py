"""What a shard store holds, and the one way to change it.

A *shard* is what one Kafka partition feeds. It holds

* a **head**: fence, sequence, applied offset, log epoch, live generations;
* a **document table**: ``<source>/<doc_id>`` → an encoded record (:mod:`tessera.documents.record`);
* per generation a **manifest** (segments by id) and a **tombstone log** (numbered from 0, ever rising);
* **blobs**: immutable bytes under relative ids (texts, segments, parts, dead letters);
* **dead letters**, the **outbox** of those the broker has not yet, and **counters**.

Blobs are *staged* first, with an expiry, then kept by the :class:`Commit` that refers to them. A commit
applies as a whole or not at all; it fails with :class:`~tessera.errors.FencedError`,
:class:`~tessera.errors.SequenceError` or :class:`~tessera.errors.StagingError` and has then written nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

NO_OFFSET = -1
"""The applied offset of a shard that has applied nothing."""


class ShardId(NamedTuple):
    """One partition of one change topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def deadletter_blob(deadletter_id: str) -> str:
    """Id of the blob that holds a dead letter's bytes: stage and keep it under this id."""
    return f"deadletter/{deadletter_id}"


def segment_blob(generation: str, segment_id: str) -> str:
    """Id of the blob that holds a segment: stage and keep it under this id, or contraction cannot find it."""
    return f"segment/{generation}/{segment_id}"


GENERATION_COUNTERS = ("chunks", "uncovered", "uncovered_lines", "uncovered_bytes")
"""What a shard counts by generation and source, as ``<what>:<generation>:<source>``; all of a generation's go
with it when it is contracted."""

NO_FINGERPRINT = "0" * 32
"""The fingerprint of no documents: an order-free sum modulo 2^128, as 32 hex digits."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a shard stands with one generation that it writes.

    ``adopted_at`` is the applied offset at which it began to be written; ``complete`` says that all documents
    are in it. ``documents`` counts the live ones that are, ``fingerprint`` sums them
    (:mod:`tessera.shards.fingerprint`). ``started_at_ms`` is when its backfill began; ``note`` is why the
    backfill waits, empty where it does not.
    """

    adopted_at: int = NO_OFFSET
    complete: bool = False
    documents: int = 0
    fingerprint: str = NO_FINGERPRINT
    started_at_ms: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a shard stands.

    ``fence`` rises with every claim; ``seq`` with every commit. ``applied`` is the last applied offset,
    :data:`NO_OFFSET` before the first. ``record_digest`` is the hex SHA-256 of the record at that offset
    (:func:`tessera.shards.logcheck.record_digest`), empty before the first. ``epoch`` counts the logs that
    fed this shard, from 0. ``live`` lists the generations that every commit must write, sorted;
    ``standings`` has one entry for each of them.
    """

    shard: ShardId
    fence: int
    seq: int
    applied: int
    record_digest: str
    epoch: int
    live: tuple[str, ...]
    standings: Mapping[str, Standing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """One segment in a manifest.

    ``watermark``: tombstones with a number below it have been taken into account when the segment was
    made; those from it on still apply. ``chunks`` counts all chunks in the blob, dead ones included.
    """

    id: str
    watermark: int
    chunks: int
    size_bytes: int


class Tombstone(NamedTuple):
    """Chunks of a document that are dead: those with ordinal >= ``from_ordinal`` in older segments."""

    key: str
    from_ordinal: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A generation's segments in one shard, with the tombstones asked for, read at one moment.

    ``tombstones[i]`` has the number ``tombstone_base + i``; ``next_tombstone`` is the number that the next
    one will get. Where a reader asked from a number that has been trimmed away, ``tombstone_base`` is
    greater than what it asked for, and every remaining segment has a watermark of at least that base.
    """

    head: Head
    segments: Mapping[str, SegmentMeta]
    tombstone_base: int
    tombstones: Sequence[Tombstone]

    @property
    def next_tombstone(self) -> int:
        """The number the next tombstone of this generation will get."""
        return self.tombstone_base + len(self.tombstones)


@dataclass(frozen=True, slots=True)
class GenerationDelta:
    """What one commit changes in one generation.

    ``add`` holds segments whose ``watermark`` counts this commit's own ``tombstones`` as seen.
    ``expected_next_tombstone`` is checked, since watermarks are computed from it.
    ``trim_tombstones_below`` drops tombstones that no segment needs any more (None: leave all).
    """

    expected_next_tombstone: int
    add: tuple[SegmentMeta, ...] = ()
    drop: tuple[str, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    trim_tombstones_below: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change of one shard.

    The head must still have ``fence`` and ``seq``; the generations in ``generations`` must be the head's
    live ones when ``applied`` moves (a merge names only those it touches). Every blob in ``keep`` must be
    staged. ``documents`` and ``parts`` map keys to encoded values, None removes. ``expire`` gives replaced
    blobs the grace period; ``unlink`` removes at once. ``counters`` are added to. ``after`` is the applied
    offset that a batch follows: whatever was lost or claimed meanwhile, no commit leaves records out.

    ``standings``, where given, replaces all of the head's, and its keys become the live generations: to adopt
    a generation or to give one up is a commit that changes the keys, and names no ``generations`` and no
    ``applied`` (ValueError). A new generation begins empty; one given up keeps its segments until
    :meth:`ShardStore.contract_step`, and is never adopted again.
    """

    shard: ShardId
    fence: int
    seq: int
    applied: int | None = None
    after: int | None = None
    record_digest: str = ""
    documents: Mapping[str, bytes | None] = field(default_factory=dict)
    parts: Mapping[str, bytes | None] = field(default_factory=dict)
    generations: Mapping[str, GenerationDelta] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    expire: tuple[str, ...] = ()
    unlink: tuple[str, ...] = ()
    deadletters: Mapping[str, bytes] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    standings: Mapping[str, Standing] | None = None


class ShardStore(Protocol):
    """Storage of all shards. Implementations: ``memory`` (tests, the in-process driver) and ``redis``."""

    async def claim(self, shard: ShardId, live: Sequence[str], floor: int = 0) -> Head:
        """Take the shard's fence and return its head. A new shard begins with generations ``live``, complete.

        The fence is the next one, and at least ``floor``. Give the time: a store that lost an earlier claim
        would otherwise hand its number out again, and two writers would hold one fence.
        """
        ...

    async def head(self, shard: ShardId) -> Head | None:
        """The shard's head, or None where it was never claimed."""
        ...

    async def heads(self, shards: Sequence[ShardId]) -> list[Head | None]:
        """Heads of many shards in as few round trips as the servers allow."""
        ...

    async def documents(self, shard: ShardId, keys: Sequence[str]) -> list[bytes | None]:
        """Encoded records of these document keys, None where there is none."""
        ...

    async def scan_documents(self, shard: ShardId, prefix: str = "") -> list[tuple[str, bytes]]:
        """All records of a shard whose key starts with ``prefix``, in key order (not one moment's view)."""
        ...

    async def parts(self, shard: ShardId, keys: Sequence[str]) -> list[bytes | None]:
        """Encoded states of documents that arrive in several records."""
        ...

    async def manifest(self, shard: ShardId, generation: str, from_tombstone: int = 0) -> Manifest | None:
        """Head, segments and tombstones numbered from ``from_tombstone``, read at one moment.

        None where the shard was never claimed or does not hold the generation. Asked from beyond the next
        tombstone, it gives none, and ``tombstone_base`` is that next number.
        """
        ...

    async def stage(self, shard: ShardId, blobs: Mapping[str, bytes]) -> None:
        """Write immutable blobs that vanish by themselves unless a commit keeps them.

        An id belongs to its bytes: staging the same again starts the expiry anew (or changes nothing where
        they are kept), other bytes raise :class:`~tessera.errors.SequenceError`.
        """
        ...

    async def blobs(self, shard: ShardId, ids: Sequence[str]) -> list[bytes | None]:
        """The bytes of these blobs, None where one is gone."""
        ...

    async def commit(self, commit: Commit) -> Head:
        """Apply the commit as a whole and return the new head."""
        ...

    async def adopt_log(self, shard: ShardId) -> Head:
        """Begin a new log: epoch + 1, nothing applied, a new fence; documents stay."""
        ...

    async def counters(self, shard: ShardId) -> dict[str, int]:
        """The shard's counters."""
        ...

    async def outbox(self, shard: ShardId) -> list[str]:
        """Ids of dead letters that the broker does not have yet, oldest first."""
        ...

    async def outbox_done(self, shard: ShardId, ids: Sequence[str]) -> None:
        """Take delivered dead letters out of the outbox; they stay listed as dead letters."""
        ...

    async def deadletters(self, shard: ShardId) -> dict[str, bytes]:
        """All dead letters of the shard: id → encoded description."""
        ...

    async def discard_deadletter(self, shard: ShardId, deadletter_id: str) -> bool:
        """Remove one dead letter and its bytes; False where it is not there."""
        ...

    async def topics(self) -> dict[str, int]:
        """Recorded partition counts by topic."""
        ...

    async def record_topic(self, topic: str, partitions: int) -> int:
        """Record a topic's partition count if none is recorded, and return the recorded one."""
        ...

    async def control(self) -> tuple[int, bytes | None]:
        """Version and encoded registry of generations and releases; (0, None) where there is none yet."""
        ...

    async def put_control(self, expected: int, registry: bytes, release: bytes) -> bool:
        """Write registry and release pointer in one step, as version ``expected`` + 1.

        False, and nothing is written, where the version is not ``expected``.
        """
        ...

    async def release(self) -> bytes | None:
        """The release pointer: the encoded release that queries are to use."""
        ...

    async def now_ms(self) -> int:
        """The store's own clock, in Unix milliseconds: the second opinion on what a machine's clock says."""
        ...

    async def announce(self, reader: str, lease: bytes, ttl_s: float) -> None:
        """Say what a searcher serves, for ``ttl_s`` seconds from now; the next announcement replaces it.

        ValueError where ``ttl_s`` is not above 0, or longer than an hour.
        """
        ...

    async def readers(self) -> dict[str, bytes]:
        """The leases that have not run out, by searcher."""
        ...

    async def contract_step(self, shard: ShardId, fence: int, generation: str, limit: int) -> int:
        """Remove at most ``limit`` segments of a generation given up; with the last, tombstones and counters.

        Returns how many segments are left; 0 once nothing of it is left, also when asked again: from then on
        the shard refuses to adopt it, even if it never had. FencedError, or SequenceError where the
        generation is live.
        """
        ...

    async def clear(self, shard: ShardId) -> Head:
        """Remove everything the shard holds but dead letters; nothing applied, epoch + 1, a new fence.

        The live generations stay, empty and complete; their tombstones are numbered on. SequenceError where
        the shard was never claimed, FencedError where a worker keeps claiming it meanwhile; then nothing is
        removed.
        """
        ...

    async def ping(self) -> None:
        """Raise :class:`~tessera.errors.UnavailableError` where the store does not answer."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
