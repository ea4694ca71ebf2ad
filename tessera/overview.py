"""What an operator is shown about the whole index: shards, lag, generations, sources, dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.errors import TesseraError
from tessera.generations.description import described
from tessera.generations.registry import Registry
from tessera.kafka.admin import high_watermarks
from tessera.kafka.security import security_of
from tessera.settings import Settings, redacted
from tessera.shards.deadletters import all_shards
from tessera.shards.status import IndexStatus, ShardStatus, SourceStatus, StatusReader
from tessera.store.base import NO_OFFSET, ShardId, ShardStore


async def read_overview(
    settings: Settings,
    store: ShardStore,
    reader: StatusReader | None = None,
    max_fields: int | None = None,
) -> dict[str, Any]:
    """The status as JSON values. Where the broker does not answer, ends and lag are None and it says why.

    A ``reader`` that is given each time knows most of it already; see :meth:`StatusReader.read` for
    ``max_fields``.
    """
    ends_and_trouble = asyncio.create_task(_ends(settings, await all_shards(store)))
    try:
        index = await (reader or StatusReader(store)).read(max_fields)
        ends, trouble = await ends_and_trouble
    finally:
        ends_and_trouble.cancel()
    return await overview(settings, store, index, ends, trouble)


async def _ends(settings: Settings, shards: Sequence[ShardId]) -> tuple[Mapping[ShardId, int], str | None]:
    """The logs' next offsets, or why they are not known. A broker takes longer to tell than the store."""
    try:
        return await high_watermarks(settings.broker, shards, security=security_of(settings)), None
    except TesseraError as error:
        return {}, str(error)


async def overview(
    settings: Settings,
    store: ShardStore,
    index: IndexStatus,
    ends: Mapping[ShardId, int],
    broker_trouble: str | None = None,
) -> dict[str, Any]:
    """The status as JSON values, from what was read already. ``ends`` are the next offsets of the logs."""
    _, encoded = await store.control()
    registry = Registry.from_json(encoded) if encoded is not None else None
    serving = registry.release.generation if registry else None
    return {
        "release": registry.release.release if registry else None,
        "assembly": registry.release.context_assembly.id if registry else None,
        "previous": registry.previous.release if registry and registry.previous else None,
        "generation": serving,
        "broker": {"address": settings.broker, "trouble": broker_trouble},
        "redis": {"address": redacted(settings.redis)},
        "shards": [_shard(shard, ends.get(shard.shard)) for shard in index.shards],
        "generations": described(registry, index, round(time.time() * 1000)) if registry else [],
        "sources": {name: _source(source, serving) for name, source in index.sources.items()},
        "totals": _totals(index, ends, serving),
        "tombstone_horizon_s": settings.tombstone_horizon_s,
    }


def shard_lag(shard: ShardStatus, end: int | None) -> int | None:
    """Records of the shard's log that are not applied yet; None where its end is not known."""
    return None if end is None else max(0, end - (shard.applied + 1))


def _shard(shard: ShardStatus, end: int | None) -> dict[str, Any]:
    head = shard.head
    return {
        "shard": str(shard.shard),
        "topic": shard.shard.topic,
        "partition": shard.shard.partition,
        "claimed": head is not None,
        "applied": shard.applied if head is not None else NO_OFFSET,
        "end": end,
        "lag": shard_lag(shard, end),
        "epoch": head.epoch if head is not None else 0,
        "fence": head.fence if head is not None else 0,
        "sequence": head.seq if head is not None else 0,
        "records": shard.records,
        "duplicates": shard.duplicates,
        "stale": shard.stale,
        "dead_letters": shard.waiting_deadletters,
    }


def _source(source: SourceStatus, serving: str | None) -> dict[str, Any]:
    return {
        "documents": source.documents,
        "chunks": source.chunks.get(serving or "", 0),
        "chunks_by_generation": source.chunks,
        "uncovered": source.uncovered.get(serving or "", 0),
        "uncovered_lines": source.uncovered_lines.get(serving or "", 0),
        "uncovered_ratio": source.uncovered_ratio(serving or ""),
        "parse_failures": source.parse_failures,
        "tombstones": source.tombstones,
        "text_bytes": source.text_bytes,
    }


def _totals(index: IndexStatus, ends: Mapping[ShardId, int], serving: str | None) -> dict[str, Any]:
    lags = [shard_lag(shard, ends.get(shard.shard)) for shard in index.shards]
    sources = index.sources.values()
    return {
        "documents": sum(source.documents for source in sources),
        "chunks": sum(source.chunks.get(serving or "", 0) for source in sources),
        "uncovered": sum(source.uncovered.get(serving or "", 0) for source in sources),
        "lag": sum(known) if len(known := [each for each in lags if each is not None]) == len(lags) else None,
        "duplicates": index.total("duplicates"),
        "stale": index.total("stale"),
        "dead_letters": index.total("waiting_deadletters"),
    }
