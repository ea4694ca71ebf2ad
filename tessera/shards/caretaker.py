"""What a writer does beside batches: follows the registry, fills and removes generations, reaps deletes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from tessera.documents.record import decoded_records
from tessera.errors import PolicyError, SequenceError, SettingsError
from tessera.failpoints import failpoint
from tessera.generations.registry import WRITTEN, Generation, Registry
from tessera.logs import on
from tessera.shards.backfill import LAG_BACKOFF, Backfill, build_slice, missing_keys
from tessera.shards.building import CutFigures, LiveGeneration
from tessera.shards.generations import load_generations
from tessera.store.base import Commit, GenerationDelta, Head, ShardId, ShardStore, Standing

if TYPE_CHECKING:
    from tessera.shards.writer import ShardWriter

logger = logging.getLogger(__name__)

CONTRACT_SEGMENTS = 64
"""Segments removed by one step: the server does nothing else while it takes one."""

RELIST_S = 30.0
"""How long to wait before documents that could not be backfilled are looked at again."""

REAP_EVERY_S = 600.0
REAP_DOCUMENTS = 500
"""How often, and how many at once, deleted documents past the horizon are forgotten."""

BUSY_S = 1.0
"""A shard written to within this time is busy: its backfill then rests as long as it works."""


RETRY_S = 10.0
"""After this time a generation that could not be written is tried again: its tokenizer may be there now."""


class Caretaker:
    """The upkeep of one writer's shard. All its commits go through the writer, one at a time."""

    def __init__(self, store: ShardStore, writer: ShardWriter) -> None:
        self._store = store
        self._writer = writer
        self._registry: Registry | None = None
        self._backfills: dict[str, Backfill] = {}
        self._contracted: set[str] = set()
        self._unwritable: dict[str, tuple[str, float]] = {}
        """Why a generation cannot be written here, and when that was last found."""
        self._reaped_at = time.monotonic()

    def begin(self, registry: Registry) -> None:
        """Take note of the registry that the shard was claimed under."""
        self._registry = registry
        self._contracted.clear()

    async def follow_registry(self) -> None:
        """Adopt generations that are to be written, give up those that are not, remove what was given up.

        SequenceError where the registry has fallen back: what the shard gave up since must not be adopted
        again, for its documents are still marked as written. Claiming anew reapplies the control log.
        """
        known = self._registry
        version, document = await self._store.control()
        if known is not None and version < known.version:
            raise SequenceError(
                f"the registry of generations has fallen back from version {known.version} to {version}: "
                f"claim shard {self._writer.head.shard} again, once the control log was reapplied"
            )
        if document is not None and (known is None or version != known.version):
            self.begin(Registry.from_json(document))
        if self._registry is None:
            return
        wanted = await self._writable(_to_be_live(self._registry, self._writer.head.live))
        if wanted != self._writer.head.live:
            await self._change_live(wanted)
        await self._contract(self._registry)
        await self._reap()

    async def _writable(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Those that the shard writes already, and of the others those that this build can write.

        One that it adopted and cannot write would stop the shard, for good: nobody could give it up again.
        """
        for name in wanted:
            why, found_at = self._unwritable.get(name, ("", -RETRY_S))
            if name in self._writer.head.live or time.monotonic() - found_at < RETRY_S:
                continue
            try:
                await load_generations(self._store, [name])
                self._unwritable.pop(name, None)
            except (SettingsError, PolicyError) as error:
                self._unwritable[name] = str(error), time.monotonic()
                if str(error) != why:
                    shard, extra = self._writer.head.shard, on(self._writer.head.shard, generation=name)
                    logger.error("%s does not adopt %s: %s", shard, name, error, extra=extra)
        return tuple(name for name in wanted if name not in self._unwritable)

    async def _change_live(self, wanted: tuple[str, ...]) -> None:
        async with self._writer.exclusive() as head:
            new = Standing(adopted_at=head.applied, started_at_ms=self._writer.now_ms())
            standings = {name: head.standings.get(name, new) for name in wanted}
            await self._writer.send(Commit(head.shard, head.fence, head.seq, standings=standings))
            failpoint("generation.adopted")
            await self._writer.know_generations()
        self._backfills = {name: fill for name, fill in self._backfills.items() if name in wanted}

    async def _contract(self, registry: Registry) -> None:
        """Remove generations that nobody may read any more, a bounded step at a time.

        Also what a crash left of one that is contracted long since.
        """
        for name, generation in registry.generations.items():
            if generation.state in WRITTEN or name in self._contracted:
                continue
            head = self._writer.head
            if name in head.live or await self._is_read(name):
                continue
            left = 1
            while left:
                left = await self._store.contract_step(head.shard, head.fence, name, CONTRACT_SEGMENTS)
                failpoint("contract.stepped")
            self._contracted.add(name)

    async def _is_read(self, generation: str) -> bool:
        leases = await self._store.readers()
        return any(generation in orjson.loads(lease).get("in_use", ()) for lease in leases.values())

    async def backfill(self, lag: int, budget_s: float) -> bool:
        """See :meth:`tessera.shards.writer.ShardWriter.backfill`."""
        deadline = time.monotonic() + budget_s
        for generation in self._writer.generations:
            if self._writer.head.standings[generation.name].complete:
                self._backfills.pop(generation.name, None)
                continue
            if await self._fill(generation, lag, deadline):
                return True
        return False

    async def _fill(self, generation: LiveGeneration, lag: int, deadline: float) -> bool:
        described = self._described(generation.name)
        reason = _why_waiting(described, lag)
        if reason:
            await self._note(generation.name, reason)
            return False
        fill = self._backfills.setdefault(generation.name, Backfill(generation.name))
        while time.monotonic() < deadline:
            if not fill.keys and not await self._list(fill):
                return False
            keys = fill.take(described.rate if described else None)
            if not keys:
                return False
            await self._write_slice(fill, generation, keys)
        return True

    async def _list(self, fill: Backfill) -> bool:
        """List what is missing; where nothing is, the generation is complete. True where there is work.

        Documents that could not be read are counted, and tried again after a while.
        """
        if fill.lost and time.monotonic() - fill.listed_at < RELIST_S:
            # Every reader is shown the note, and not every reader may know of these documents.
            note = f"{len(fill.lost)} documents cannot be read: the worker's log names them"
            await self._note(fill.generation, note)
            return False
        fill.keys, fill.lost = await missing_keys(self._store, self._writer.head.shard, fill.generation)
        _tell_lost(self._writer.head.shard, fill.generation, fill.lost)
        fill.listed_at = time.monotonic()
        if not fill.keys and not fill.lost:
            await self._complete(fill.generation)
        return bool(fill.keys)

    async def _write_slice(self, fill: Backfill, generation: LiveGeneration, keys: list[str]) -> None:
        started = time.monotonic()
        async with self._writer.exclusive() as head:
            piece = await build_slice(
                self._store, head, generation, keys, self._writer.catalog, self._writer.limits
            )
            fill.lost.update(piece.lost)
            fill.give_back(piece.left)
            _tell_lost(head.shard, generation.name, piece.lost)
            if piece.documents:
                await self._store.stage(head.shard, piece.staged(generation.name))
                failpoint("backfill.staged")
                following = self._writer.next_tombstone(generation.name)
                segments = () if piece.segment is None else (replace(piece.segment, watermark=following),)
                await self._writer.send(
                    Commit(
                        head.shard,
                        head.fence,
                        head.seq,
                        documents=piece.documents,
                        generations={generation.name: GenerationDelta(following, segments)},
                        keep=tuple(piece.staged(generation.name)),
                        counters=piece.counters,
                        standings={**head.standings, generation.name: replace(piece.standing, note="")},
                    )
                )
                self._writer.backfilled[generation.name] += len(piece.documents)
                self._writer.cut_aside.setdefault(generation.name, CutFigures()).merge(piece.figures)
                failpoint("backfill.committed")
        seconds = time.monotonic() - started
        fill.measured(seconds, len(keys) - len(piece.left))
        await asyncio.sleep(seconds if time.monotonic() - self._writer.written_at < BUSY_S else 0)

    async def _complete(self, name: str) -> None:
        async with self._writer.exclusive() as head:
            await self._stand(head, name, replace(head.standings[name], complete=True, note=""))
        failpoint("backfill.completed")
        self._backfills.pop(name, None)

    async def _note(self, name: str, note: str) -> None:
        """Say in the head why the backfill waits; nothing is written where that is said already."""
        if self._writer.head.standings[name].note == note:
            return
        async with self._writer.exclusive() as head:
            await self._stand(head, name, replace(head.standings[name], note=note))

    async def _stand(self, head: Head, name: str, standing: Standing) -> None:
        standings = {**head.standings, name: standing}
        await self._writer.send(Commit(head.shard, head.fence, head.seq, standings=standings))

    def _described(self, name: str) -> Generation | None:
        return None if self._registry is None else self._registry.generations.get(name)

    async def _reap(self) -> None:
        """Forget documents deleted longer ago than the horizon, once no backfill could bring them back."""
        head = self._writer.head
        complete = all(standing.complete for standing in head.standings.values())
        if not complete or time.monotonic() - self._reaped_at < REAP_EVERY_S:
            return
        self._reaped_at = time.monotonic()
        # The earlier of two clocks: one that jumped ahead must not make a delete be forgotten too soon.
        now_ms = min(self._writer.now_ms(), await self._store.now_ms())
        before_ms = now_ms - self._writer.limits.tombstone_horizon_s * 1000
        async with self._writer.exclusive() as head:
            old = await self._deleted_before(before_ms)
            if old:
                counters = Counter(f"tombstones:{key.partition('/')[0]}" for key in old)
                await self._writer.send(
                    Commit(
                        head.shard,
                        head.fence,
                        head.seq,
                        documents=dict.fromkeys(old),
                        counters={name: -count for name, count in counters.items()},
                    )
                )

    async def _deleted_before(self, before_ms: int) -> list[str]:
        records = await self._store.scan_documents(self._writer.head.shard)
        decoded, _ = decoded_records(records)
        old = (key for key, record in decoded if record.deleted and record.changed_at_ms < before_ms)
        return list(islice(old, REAP_DOCUMENTS))


def _tell_lost(shard: ShardId, generation: str, lost: Mapping[str, str]) -> None:
    for key, why in lost.items():
        logger.warning(
            "%s: %r cannot be backfilled: %s",
            generation,
            key,
            why,
            extra=on(shard, generation=generation, source=key.partition("/")[0]),
        )


def _to_be_live(registry: Registry, live: tuple[str, ...]) -> tuple[str, ...]:
    """What the shard must write. A live generation that the registry does not know stays: a registry that
    lost its last second gets it back from the control log, and nothing would tell what was left unwritten."""
    unknown = [name for name in live if name not in registry.generations]
    return tuple(sorted({*registry.written, *unknown}))


def _why_waiting(generation: Generation | None, lag: int) -> str:
    if generation is not None and generation.paused:
        return "paused by an operator"
    if lag > LAG_BACKOFF:
        return "waiting: live changes come first"
    return ""
