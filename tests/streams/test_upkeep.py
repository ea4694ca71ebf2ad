"""Rounds of a worker over its shards."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from streams.upkeep import ROUND_S, Upkeep
from tessera.shards.writer import SideWork
from tessera.store.base import ShardId


class FillingWriter:
    """Notes how many backfills are under way at once, and the time that each was given."""

    under_way = most = 0
    budgets: list[float]

    def __init__(self) -> None:
        self.head = SimpleNamespace(applied=-1)

    async def tick(self) -> None:
        pass

    def take_side_work(self) -> SideWork:
        return SideWork()

    async def deliver(self, produce: object) -> int:
        return 0

    async def backfill(self, lag: int, budget_s: float) -> bool:
        cls = type(self)
        cls.under_way += 1
        cls.most = max(cls.most, cls.under_way)
        cls.budgets.append(budget_s)
        await asyncio.sleep(0)
        cls.under_way -= 1
        return True


def test_backfills_of_a_worker_take_turns_and_share_the_time_of_a_round() -> None:
    FillingWriter.budgets = []
    shards = [ShardId("tessera.documents", number) for number in range(4)]
    owned = [
        SimpleNamespace(shard=shard, writer=FillingWriter(), refusal=None, halted=False) for shard in shards
    ]
    ownership: Any = SimpleNamespace(owned=owned, current=lambda _: True)
    upkeep = Upkeep(ownership, cast("Any", None), cast("Any", None), cast("Any", None), lambda shard: None)
    assert asyncio.run(upkeep.round())
    assert FillingWriter.most == 1
    assert FillingWriter.budgets == [ROUND_S / 4] * 4
