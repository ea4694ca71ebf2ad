"""A rebuild from the log: for when Redis was lost, or can no longer be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.errors import RefusedError
from tessera.kafka.connection import NO_SECURITY, Security, reaching
from tessera.kafka.reader import open_reader
from tessera.settings import Settings
from tessera.shards.deadletters import all_shards
from tessera.store.base import NO_OFFSET, Head, ShardId, ShardStore


@dataclass(frozen=True, slots=True)
class ShardRebuild:
    """What a rebuild of one shard reads: offsets ``start`` to before ``end`` of its log.

    ``applied`` is the last offset applied now.
    """

    shard: ShardId
    applied: int
    start: int
    end: int

    @property
    def unreachable(self) -> int:
        """How many offsets the log no longer holds."""
        return self.start

    @property
    def explanation(self) -> str:
        """The same in words."""
        reads = f"reads {self.end - self.start:,} records, offsets {self.start} to {self.end - 1}"
        if self.start == self.end:
            reads = "its log is empty: nothing can be read"
        if not self.unreachable:
            return reads
        return (
            f"{reads}; offsets 0 to {self.start - 1} are gone from the log: documents last changed there are "
            "lost until their source is published again"
        )


async def plan_rebuild(
    settings: Settings, store: ShardStore, security: Security = NO_SECURITY
) -> list[ShardRebuild]:
    """What a rebuild would read, per shard that was ever claimed."""
    shards = await all_shards(store)
    claimed = {
        shard: head for shard, head in zip(shards, await store.heads(shards), strict=True) if head is not None
    }
    if not claimed:
        return []
    async with (
        reaching(settings.broker, "asking for the bounds of logs"),
        open_reader(settings.broker, list(claimed), security) as reader,
    ):
        bounds = await reader.bounds()
    return [ShardRebuild(shard, head.applied, *bounds[shard]) for shard, head in claimed.items()]


async def rebuild(store: ShardStore, plan: list[ShardRebuild], *, confirmed: bool) -> list[Head]:
    """Empty every shard of the plan, so that its worker reads its log from the beginning; the new heads.

    Refused unless ``confirmed``: until they have been read again, documents are missing from every answer.
    """
    if not confirmed:
        applied = sum(each.applied > NO_OFFSET for each in plan)
        raise RefusedError(
            "unconfirmed",
            f"a rebuild empties {applied} shards, which answer nothing until they have been read again",
            "give --yes if that is what you want",
        )
    return [await store.clear(each.shard) for each in plan]
