"""What a worker does for its shards besides batches: heads checked, merges, dead letters, refused logs.

Each shard has its own round about once a second, so that one that is slow holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from streams.observed import observe_cut
from streams.ownership import CheckLogs, OwnedShard, Ownership
from tessera import metrics
from tessera.errors import FencedError, SequenceError, TesseraError
from tessera.logs import on
from tessera.shards.writer import Produce
from tessera.store.base import ShardId, ShardStore

logger = logging.getLogger(__name__)

ROUND_S = 1.0
"""Bounds how long an idle worker takes to notice that the store lost data, or that a log was adopted."""

Highwater = Callable[[ShardId], int | None]


class Upkeep:
    """Rounds over all owned shards until cancelled."""

    def __init__(
        self,
        ownership: Ownership,
        store: ShardStore,
        check_logs: CheckLogs,
        produce: Produce,
        highwater: Highwater,
    ) -> None:
        self._ownership = ownership
        self._store = store
        self._check_logs = check_logs
        self._produce = produce
        self._highwater = highwater
        self._filling = asyncio.Lock()

    async def run(self) -> None:
        """Make rounds for ever; an unknown error ends the process."""
        try:
            while True:
                busy = await self.round()
                await asyncio.sleep(0 if busy else ROUND_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must see the process end
            self._ownership.fatal(error)

    async def round(self) -> bool:
        """Look after every shard once; True where a backfill has more to do at once."""
        current = [owned for owned in self._ownership.owned if self._ownership.current(owned)]
        budget_s = ROUND_S / max(1, len(current))
        return any(await asyncio.gather(*(self._look_after(owned, budget_s) for owned in current)))

    async def _look_after(self, owned: OwnedShard, budget_s: float) -> bool:
        busy = False
        try:
            if owned.refusal is not None:
                await self._reconsider(owned)
            elif not owned.halted:
                await owned.writer.tick()
                async with self._filling:  # live batches of all shards share one processor with backfills
                    busy = await owned.writer.backfill(self._lag(owned), budget_s)
            delivered = await owned.writer.deliver(self._produce)
        except (FencedError, SequenceError) as error:
            await self._ownership.halt(owned, error)
            return False
        except TesseraError as error:
            if not error.retriable:
                raise
            metrics.RETRIES.labels("upkeep").inc()
            logger.warning("%s: upkeep waits: %s", owned.shard, error, extra=on(owned.shard))
            return False
        metrics.DEADLETTERS_DELIVERED.labels(owned.shard.topic).inc(delivered)
        done = owned.writer.take_side_work()
        metrics.MERGES.labels(owned.shard.topic).inc(done.merges)
        for generation, documents in done.backfilled.items():
            metrics.BACKFILLED.labels(generation).inc(documents)
        observe_cut(done.cut)
        if self._ownership.current(owned):
            metrics.LAG.labels(*owned.shard).set(self._lag(owned))
        return busy

    async def _reconsider(self, owned: OwnedShard) -> None:
        claimed = owned.writer.head
        head = await self._store.head(owned.shard)
        if head is None or (head.epoch, head.fence) != (claimed.epoch, claimed.fence):
            await self._ownership.halt(owned, "its log was adopted")
            return
        states = await self._check_logs({owned.shard: claimed})
        if states[owned.shard].verdict != "foreign":
            await self._ownership.halt(owned, "its log continues what was applied again")

    def _lag(self, owned: OwnedShard) -> int:
        """Records that the log holds and the shard has not applied, as far as the consumer knows."""
        end = self._highwater(owned.shard)
        return 0 if end is None else max(0, end - owned.writer.head.applied - 1)
