"""``tessera shard adopt-log``: follow a topic that was made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tessera.cli.servers import opened_store
from tessera.cli.terminal import counted, print_json
from tessera.errors import SettingsError
from tessera.events.topics import CHANGE_TOPICS
from tessera.kafka.probe import probe_log
from tessera.kafka.security import security_of
from tessera.settings import BOTH, Settings, load_settings
from tessera.store.base import Head, ShardId, ShardStore


def adopt_log(
    flags: Mapping[str, Any],
    config: Path | None,
    shards: Sequence[str],
    *,
    every: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Let the shards begin a new log and print where they stand; only refused ones unless ``yes``."""
    if bool(shards) == every:
        raise SettingsError(
            "name the shards (tessera.documents/0 …) or give --all: see tessera shard adopt-log --help"
        )
    asked = [_shard_id(name) for name in shards]
    settings = load_settings(flags, config=config, require=("redis",) if yes else BOTH)
    heads = asyncio.run(_adopt(settings, asked, yes=yes))
    if as_json:
        print_json(
            [{"shard": str(head.shard), "epoch": head.epoch, "applied": head.applied} for head in heads]
        )
        return
    for head in heads:
        print(f"{head.shard}: epoch {head.epoch}, reads its log from the start")
    if not heads:
        print("no shard has applied anything yet: there is nothing to adopt")


async def _adopt(settings: Settings, asked: list[ShardId], *, yes: bool) -> list[Head]:
    async with opened_store(settings) as store:
        heads = await _asked_heads(store, asked) if asked else await _known_heads(store)
        if heads and not yes:
            heads = await _refused_heads(settings, heads, every=not asked)
        return [await store.adopt_log(head.shard) for head in heads]


async def adopt_known_logs(store: ShardStore) -> list[Head]:
    """Let every shard that a worker has ever claimed begin a new log; return their new heads."""
    return [await store.adopt_log(head.shard) for head in await _known_heads(store)]


async def _asked_heads(store: ShardStore, asked: list[ShardId]) -> list[Head]:
    heads = await store.heads(asked)
    unknown = [str(shard) for shard, head in zip(asked, heads, strict=True) if head is None]
    if unknown:
        raise SettingsError(f"there is no shard {', '.join(unknown)}: `tessera status` lists those there are")
    return [head for head in heads if head is not None]


async def _known_heads(store: ShardStore) -> list[Head]:
    topics = await store.topics()
    shards = [ShardId(topic, each) for topic in CHANGE_TOPICS for each in range(topics.get(topic, 0))]
    return [head for head in await store.heads(shards) if head is not None]


async def _refused_heads(settings: Settings, heads: list[Head], *, every: bool) -> list[Head]:
    """Those whose log is another than the applied one. Of ``every`` shard the sound ones are left alone.

    Raises :class:`SettingsError` that says what ``--yes`` would do where there is nothing else to do, or
    where a sound one was asked for by name.
    """
    states = await probe_log(
        settings.broker,
        {head.shard: (head.applied, head.record_digest) for head in heads},
        security=security_of(settings),
    )
    refused = [head for head in heads if states[head.shard].verdict == "foreign"]
    sound = [head.shard for head in heads if head not in refused]
    if sound and not (every and refused):
        records = sum(states[shard].end - states[shard].start for shard in sound)
        raise SettingsError(
            f"{', '.join(map(str, sound))}: not refused, the log goes on from what was applied. Nothing was "
            "done; with --yes a new epoch would begin there, and "
            f"{counted(records, 'record')} would be read again"
        )
    return refused


def _shard_id(name: str) -> ShardId:
    topic, _, partition = name.rpartition("/")
    if not topic or not partition.isascii() or not partition.isdigit():
        raise SettingsError(f"{name!r} is not a shard: write TOPIC/PARTITION, such as tessera.documents/0")
    return ShardId(topic, int(partition))
