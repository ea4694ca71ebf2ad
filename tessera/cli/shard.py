"""``tessera shard adopt-log``: follow a topic that was made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tessera.cli.servers import opened_store
from tessera.cli.terminal import print_json
from tessera.errors import SettingsError
from tessera.events.topics import CHANGE_TOPICS
from tessera.settings import Settings, load_settings
from tessera.store.base import Head, ShardId, ShardStore


def adopt_log(
    flags: Mapping[str, Any], config: Path | None, shards: Sequence[str], *, every: bool, as_json: bool
) -> None:
    """Let the named shards begin a new log and print where they stand."""
    if bool(shards) == every:
        raise SettingsError(
            "name the shards (tessera.documents/0 …) or give --all: see tessera shard adopt-log --help"
        )
    settings = load_settings(flags, config=config, require=("redis",))
    heads = asyncio.run(_adopt(settings, [_shard_id(name) for name in shards]))
    if as_json:
        print_json(
            [{"shard": str(head.shard), "epoch": head.epoch, "applied": head.applied} for head in heads]
        )
        return
    for head in heads:
        print(f"{head.shard}: epoch {head.epoch}, reads its log from the start")
    if not heads:
        print("no shard has applied anything yet: there is nothing to adopt")


async def _adopt(settings: Settings, asked: list[ShardId]) -> list[Head]:
    async with opened_store(settings) as store:
        if not asked:
            return await adopt_known_logs(store)
        known = await store.heads(asked)
        unknown = [str(shard) for shard, head in zip(asked, known, strict=True) if head is None]
        if unknown:
            raise SettingsError(
                f"there is no shard {', '.join(unknown)}: `tessera status` lists those there are"
            )
        return [await store.adopt_log(shard) for shard in asked]


async def adopt_known_logs(store: ShardStore) -> list[Head]:
    """Let every shard that a worker has ever claimed begin a new log; return their new heads."""
    topics = await store.topics()
    shards = [ShardId(topic, each) for topic in CHANGE_TOPICS for each in range(topics.get(topic, 0))]
    heads = await store.heads(shards)
    return [
        await store.adopt_log(shard) for shard, head in zip(shards, heads, strict=True) if head is not None
    ]


def _shard_id(name: str) -> ShardId:
    topic, _, partition = name.rpartition("/")
    if not topic or not partition.isascii() or not partition.isdigit():
        raise SettingsError(f"{name!r} is not a shard: write TOPIC/PARTITION, such as tessera.documents/0")
    return ShardId(topic, int(partition))
