"""Where all shards stand: read once for all generations and all queries that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from tessera.search.flight import SharedFlight
from tessera.store.base import Head, ShardId, ShardStore


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """All shards' heads, None for one never claimed. ``number`` rises with each reading of one reader."""

    number: int
    by_shard: Mapping[ShardId, Head | None]

    def lacking(self, generation: str) -> tuple[ShardId, ...]:
        """Claimed shards that do not hold all their documents in a generation."""
        return tuple(
            shard
            for shard, head in self.by_shard.items()
            if head and (generation not in head.live or is_incomplete(head, generation))
        )


def is_incomplete(head: Head, generation: str) -> bool:
    """Whether a shard writes the generation, and still has documents to backfill."""
    standing = head.standings.get(generation)
    return generation in head.live and not (standing and standing.complete)


class HeadsReader:
    """Reads the heads of all recorded shards."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store
        self._last = Heads(0, {})
        self._flight = SharedFlight(self._read)

    async def read(self) -> Heads:
        """Heads that hold everything committed before this call; calls made meanwhile share a reading.

        Raises :class:`~tessera.errors.UnavailableError` where one shard cannot be asked: what was deleted
        or revoked there is not known, so no query may be answered.
        """
        return await self._flight.join()

    async def _read(self) -> Heads:
        known = list(self._last.by_shard)
        topics, heads = await asyncio.gather(self._store.topics(), self._store.heads(known))
        shards = [ShardId(topic, number) for topic in sorted(topics) for number in range(topics[topic])]
        if shards != known:
            heads = await self._store.heads(shards)
        self._last = Heads(self._last.number + 1, dict(zip(shards, heads, strict=True)))
        return self._last
