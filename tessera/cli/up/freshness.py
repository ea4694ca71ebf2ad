"""How long a published change takes to become searchable, measured from outside the worker."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from tessera.cli.feeds import Published
from tessera.store.base import ShardId, ShardStore

POLL_S = 0.05
"""Resolution of the measurement; shards are only asked while something is on its way."""

REMEMBERED = 200


class FreshnessWatch:
    """Follows changes from the moment they are sent until their shard has applied them."""

    def __init__(self, searchable: Callable[[Published, float], None]) -> None:
        self.seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._searchable = searchable
        self._waiting: dict[ShardId, deque[Published]] = {}
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """Changes that the broker has and no shard has applied yet."""
        return sum(map(len, self._waiting.values()))

    def sent(self, batch: Sequence[Published]) -> None:
        """Take note of changes that the broker has just acknowledged."""
        for each in batch:
            shard = ShardId(each.position.topic, each.position.partition)
            self._waiting.setdefault(shard, deque()).append(each)
        if self.waiting:
            self._idle.clear()
            self._news.set()

    async def all_searchable(self) -> None:
        """Wait until nothing that was sent is on its way."""
        await self._idle.wait()

    async def follow(self, store: ShardStore) -> None:
        """Measure without end; raises what the store raises."""
        while True:
            if not self.waiting:
                self._idle.set()
                self._news.clear()
                await self._news.wait()
            await self._look(store)
            await asyncio.sleep(POLL_S)

    async def _look(self, store: ShardStore) -> None:
        shards = [shard for shard, waiting in self._waiting.items() if waiting]
        heads = await store.heads(shards)
        now = time.monotonic()
        for shard, head in zip(shards, heads, strict=True):
            waiting = self._waiting[shard]
            while head is not None and waiting and waiting[0].position.offset <= head.applied:
                published = waiting.popleft()
                self.seconds.append(now - published.sent_at)
                self._searchable(published, now - published.sent_at)

    def quantile(self, q: float) -> float | None:
        """The q-quantile of the last measurements in seconds; None before the first."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None
