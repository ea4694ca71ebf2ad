"""Where all shards stand, and what they hold by source: read for status, never for queries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tessera.shards.deadletters import all_shards
from tessera.store.base import GENERATION_COUNTERS, NO_OFFSET, Head, ShardId, ShardStore

_NO_TOMBSTONES = 2**53 - 1
"""Asked from here on, a manifest comes without its tombstones: only its few segments are wanted."""

SOURCE_COUNTERS = ("documents", "tombstones", "parse_failures", "text_bytes")


@dataclass(frozen=True, slots=True)
class Segments:
    """A generation's segments in one shard: how many, and all their chunks, dead ones included."""

    count: int = 0
    chunks: int = 0


REREAD_S = 60.0
"""How long a shard may stand still until its counters are read again all the same."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard: its head (None where no worker has claimed it) and its totals since it was made.

    ``segments`` are by live generation.
    """

    shard: ShardId
    head: Head | None
    records: int
    duplicates: int
    changes: int
    stale: int
    deadletters: int
    merges: int
    waiting_deadletters: int
    segments: Mapping[str, Segments] = field(default_factory=dict)

    @property
    def applied(self) -> int:
        """The last applied offset, -1 before the first."""
        return NO_OFFSET if self.head is None else self.head.applied


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source over all shards. Chunks, and ranges, lines and bytes that none holds, are by generation."""

    documents: int = 0
    tombstones: int = 0
    parse_failures: int = 0
    text_bytes: int = 0
    chunks: Mapping[str, int] = field(default_factory=dict)
    uncovered: Mapping[str, int] = field(default_factory=dict)
    uncovered_lines: Mapping[str, int] = field(default_factory=dict)
    uncovered_bytes: Mapping[str, int] = field(default_factory=dict)

    def uncovered_ratio(self, generation: str) -> float:
        """The share, 0 to 1, of the source's bytes that the generation leaves uncovered."""
        return self.uncovered_bytes.get(generation, 0) / self.text_bytes if self.text_bytes else 0.0


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """All shards and all sources; ``generations`` are those some shard writes."""

    shards: tuple[ShardStatus, ...]
    sources: Mapping[str, SourceStatus]
    generations: tuple[str, ...]

    def total(self, name: str) -> int:
        """The sum of a shard total (``duplicates``, ``waiting_deadletters``, ...) over all shards."""
        return sum(getattr(shard, name) for shard in self.shards)


async def read_status(store: ShardStore) -> IndexStatus:
    """Heads and counters of every shard of every recorded topic."""
    return await StatusReader(store).read()


class StatusReader:
    """Reads the status again and again, and keeps what it knows: most counters are the same the next time."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store
        self._known: dict[ShardId, _Counted] = {}
        self._totals: dict[str, int] = {}
        self._tallies: dict[str, _Tally] = {}
        self._sources: dict[str, SourceStatus] = {}

    async def read(self, max_fields: int | None = None) -> IndexStatus:
        """The status. With ``max_fields``, counters are read only of shards that made a commit since or were
        not read for :data:`REREAD_S`, those never read first, then the longest unread, and of no further
        known shard once so many counters were read: the rest comes with the next calls.
        """
        shards = await all_shards(self._store)
        heads = dict(zip(shards, await self._store.heads(shards), strict=True))
        for shard in self._known.keys() - {shard for shard, head in heads.items() if head is not None}:
            self._forget(shard)
        await self._count({shard: head for shard, head in heads.items() if head is not None}, max_fields)
        statuses = []
        for shard, head in heads.items():
            waiting = 0 if head is None else len(await self._store.deadletters(shard))
            known = self._known.get(shard, _NOTHING)
            statuses.append(_shard_status(shard, head, known.counters, waiting, known.segments))
        live = {name for status in statuses if status.head for name in status.head.live}
        return IndexStatus(tuple(statuses), dict(self._sources), tuple(sorted(live)))

    async def _count(self, heads: Mapping[ShardId, Head], max_fields: int | None) -> None:
        due = list(heads)
        if max_fields is not None:
            due = [shard for shard, head in heads.items() if self._is_due(shard, head)]
            due.sort(key=lambda shard: self._known[shard].read_at if shard in self._known else 0.0)
        dirty: set[str] = set()
        fields = 0
        for shard in due:
            if max_fields is not None and fields >= max_fields and shard in self._known:
                break
            head = heads[shard]
            counters, segments = await asyncio.gather(
                self._store.counters(shard), _segments(self._store, head)
            )
            fields += len(counters)
            known = self._known.get(shard)
            dirty |= self._add(known.counters if known else {}, counters)
            self._known[shard] = _Counted(_mark(head), time.monotonic(), counters, segments)
        self._summarize(dirty)

    def _is_due(self, shard: ShardId, head: Head) -> bool:
        known = self._known.get(shard)
        # A generation that is removed takes its counters along without a commit.
        return known is None or known.mark != _mark(head) or time.monotonic() - known.read_at >= REREAD_S

    def _forget(self, shard: ShardId) -> None:
        self._summarize(self._add(self._known.pop(shard).counters, {}))

    def _add(self, before: Mapping[str, int], after: Mapping[str, int]) -> set[str]:
        """Add to the totals what a shard counts more; returns the names of those that changed."""
        if not before:
            changed = dict(after)
        else:
            changed = {name: amount for name, amount in after.items() if before.get(name) != amount}
            if len(before.keys() | changed.keys()) != len(after):
                changed |= dict.fromkeys(before.keys() - after.keys(), 0)
        totals = self._totals
        for name, amount in changed.items():
            totals[name] = totals.get(name, 0) + amount - before.get(name, 0)
        return set(changed)

    def _summarize(self, dirty: set[str]) -> None:
        """Bring the sources up to date whose totals these are."""
        changed = set()
        for name in dirty:
            what, colon, rest = name.partition(":")
            generation = ""
            if colon and what in GENERATION_COUNTERS:
                generation, _, rest = rest.partition(":")
            elif not colon or what not in SOURCE_COUNTERS:
                continue  # the shard's, not a source's
            changed.add(rest)
            self._tallies.setdefault(rest, {})[what, generation] = self._totals[name]
        added = {source: _source_status(self._tallies[source]) for source in changed}
        in_order = added.keys() <= self._sources.keys()
        sources = self._sources | added
        self._sources = sources if in_order else dict(sorted(sources.items()))


class _Counted(NamedTuple):
    """A shard's counters and segments by generation, when they were read, and how far the shard was."""

    mark: tuple[int, int]
    read_at: float
    counters: Mapping[str, int]
    segments: Mapping[str, Segments]


_NOTHING = _Counted((0, 0), 0.0, {}, {})


_Tally = dict[tuple[str, str], int]
"""What is counted of a source, by counter and generation (empty where it is none's).

Counters are named ``<what>:<source>`` or ``<what>:<generation>:<source>``.
"""


def _mark(head: Head) -> tuple[int, int]:
    return head.fence, head.seq


def _source_status(tally: _Tally) -> SourceStatus:
    flat = {what: tally.get((what, ""), 0) for what in SOURCE_COUNTERS}
    nested: dict[str, dict[str, int]] = {what: {} for what in GENERATION_COUNTERS}
    for (what, generation), amount in tally.items():
        if what in nested:
            nested[what][generation] = amount
    return SourceStatus(**flat, **nested)  # type: ignore[arg-type]


async def _segments(store: ShardStore, head: Head) -> dict[str, Segments]:
    """Segments by generation; without one that was given up since the head was read."""
    manifests = await asyncio.gather(
        *(store.manifest(head.shard, generation, _NO_TOMBSTONES) for generation in head.live)
    )
    return {
        generation: Segments(len(found.segments), sum(meta.chunks for meta in found.segments.values()))
        for generation, found in zip(head.live, manifests, strict=True)
        if found is not None
    }


def _shard_status(
    shard: ShardId,
    head: Head | None,
    counters: Mapping[str, int],
    waiting: int,
    segments: Mapping[str, Segments],
) -> ShardStatus:
    names = ("records", "duplicates", "changes", "stale", "deadletters", "merges")
    totals = {name: counters.get(name, 0) for name in names}
    return ShardStatus(shard, head, **totals, waiting_deadletters=waiting, segments=segments)
