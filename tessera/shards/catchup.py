"""Waiting until shards have applied what their logs hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from tessera.store.base import NO_OFFSET, ShardId, ShardStore

POLL_S = 0.05


async def wait_applied(
    store: ShardStore,
    offsets: Mapping[ShardId, int],
    patience_s: float,
    on_progress: Callable[[int], None] = lambda _: None,
) -> bool:
    """Wait until every shard has applied its offset; False once none has moved for ``patience_s``.

    ``on_progress`` is told how many records are still to be applied.
    """
    shards = list(offsets)
    left_before, moved_at = None, time.monotonic()
    while True:
        heads = await store.heads(shards)
        applied = [NO_OFFSET if head is None else head.applied for head in heads]
        left = sum(max(0, offsets[shard] - at) for shard, at in zip(shards, applied, strict=True))
        on_progress(left)
        if not left:
            return True
        if left != left_before:
            left_before, moved_at = left, time.monotonic()
        elif time.monotonic() - moved_at > patience_s:
            return False
        await asyncio.sleep(POLL_S)
