"""Where all shards stand, and what they hold by source: read for status, never for queries."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    shards = await all_shards(store)
    heads = await store.heads(shards)
    statuses = []
    totals: defaultdict[str, int] = defaultdict(int)
    for shard, head in zip(shards, heads, strict=True):
        if head is None:
            statuses.append(_shard_status(shard, None, {}, 0, {}))
            continue
        counters, waiting, segments = await asyncio.gather(
            store.counters(shard), store.deadletters(shard), _segments(store, head)
        )
        statuses.append(_shard_status(shard, head, counters, len(waiting), segments))
        for name, amount in counters.items():
            if ":" in name:
                totals[name] += amount
    live = {name for status in statuses if status.head for name in status.head.live}
    return IndexStatus(tuple(statuses), _by_source(totals), tuple(sorted(live)))


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


def _by_source(totals: Mapping[str, int]) -> dict[str, SourceStatus]:
    """Counters are named ``<what>:<source>`` or ``<what>:<generation>:<source>``."""
    flat: dict[str, dict[str, int]] = {}
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for name, amount in totals.items():
        what, _, rest = name.partition(":")
        if what in SOURCE_COUNTERS:
            flat.setdefault(rest, {})[what] = amount
        elif what in GENERATION_COUNTERS:
            generation, _, source = rest.partition(":")
            nested.setdefault(source, {}).setdefault(what, {})[generation] = amount
    return {
        source: SourceStatus(**flat.get(source, {}), **nested.get(source, {}))  # type: ignore[arg-type]
        for source in sorted(flat.keys() | nested.keys())
    }
