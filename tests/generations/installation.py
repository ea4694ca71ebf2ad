"""An installation without servers: store and control log in memory, operators with a clock of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from dual_index import CATALOG, DOCUMENTS, SHARDS

from tessera.events.change import Record
from tessera.generations.bootstrap import bootstrap, read_registry
from tessera.generations.control import ControlLog
from tessera.generations.operations import Operator
from tessera.generations.record import ControlRecord
from tessera.generations.registry import Evidence, Registry
from tessera.policies import ChunkPolicy, TextPolicy
from tessera.settings import Settings
from tessera.shards.writer import ShardWriter
from tessera.store.base import NO_OFFSET, ShardId, ShardStore
from tessera.store.memory import MemoryStore

NAMESPACE = "tessera"
WINDOW = TextPolicy("window", size=6, overlap=2)


def policy(size: int = 6) -> ChunkPolicy:
    """A policy of its own for every size."""
    rule = replace(WINDOW, size=size)
    return ChunkPolicy(f"win-{size}", documents=rule, run_logs=rule)


class MemoryLog:
    """A control log in memory. While ``race`` is set, appends wait there for each other."""

    def __init__(self, race: asyncio.Barrier | None = None) -> None:
        self.values: list[bytes | None] = []
        self.race = race

    async def append(self, key: bytes, value: bytes) -> None:
        if self.race is not None:
            await self.race.wait()
        self.values.append(value)

    async def read(self) -> Sequence[bytes | None]:
        return list(self.values)

    def records(self) -> list[ControlRecord]:
        return [ControlRecord.from_json(value)[1] for value in self.values if value is not None]


@dataclass
class Installation:
    """``now`` is the store's clock and, ``skew_s`` ahead of it, the operators'; in seconds."""

    store: ShardStore = field(default_factory=MemoryStore)
    log: MemoryLog = field(default_factory=MemoryLog)
    now: float = 1_800_000_000.0
    skew_s: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    writers: dict[ShardId, ShardWriter] = field(default_factory=dict)

    async def open(self, shards: Iterable[ShardId] = SHARDS) -> Installation:
        await bootstrap(self.store, {shard.topic: 1 for shard in SHARDS})
        for shard in shards:
            self.writers[shard] = ShardWriter(self.store, shard, partitions=1, catalog=CATALOG)
            await self.writers[shard].open()
        return self

    async def put(self, doc_id: str, content: str) -> None:
        """One document, or its next revision."""
        offset = self.writers[DOCUMENTS].head.applied + 1
        event = {"v": 1, "op": "upsert", "source": "handbook", "doc_id": doc_id, "revision": offset}
        value = orjson.dumps({**event, "media_type": "text/markdown", "content": content})
        record = Record(
            DOCUMENTS.topic, 0, offset, f"handbook/{doc_id}".encode(), value, (), 1_700_000_000_000
        )
        report = await self.writers[DOCUMENTS].write([record])
        assert not report.reasons

    def operator(self, actor: str = "ann@desk") -> Operator:
        async def now_ms() -> int:
            return round(self.now * 1000)

        self.store.now_ms = now_ms  # type: ignore[method-assign]
        changed = {"broker": "b:1", "redis": "redis://r/0", "cutover_wait_s": 0.0, **self.settings}
        control = ControlLog(self.log, NAMESPACE)
        return Operator(self.store, Settings(**changed), actor, control, clock=lambda: self.now + self.skew_s)

    async def tick(self) -> None:
        """What the workers do in a few rounds: adopt, backfill, give up, remove."""
        for writer in self.writers.values():
            for _ in range(2):
                await writer.tick()
                while await writer.backfill(0, 5.0):
                    pass

    async def registry(self) -> Registry:
        return await read_registry(self.store)

    async def states(self) -> dict[str, str]:
        return {name: each.state for name, each in (await self.registry()).generations.items()}

    async def announce(
        self, reader: str, *loaded: str, in_use: Sequence[str] = (), follows: bool = True
    ) -> None:
        lease = {"release": "r1", "generations": loaded, "in_use": in_use, "follows": follows}
        await self.store.announce(reader, orjson.dumps(lease), 10.0)

    async def evidence(self, candidate: str, **changed: Any) -> Evidence:
        registry = await self.registry()
        now_ms = round(self.now * 1000)
        evidence = Evidence(
            registry.serving.name,
            registry.serving.contract.digest,
            registry.generations[candidate].contract.digest,
            "sha256:0",
            {},
            passed=True,
            failed=(),
            figures={},
            at_ms=now_ms,
            expires_at_ms=now_ms + 3600_000,
        )
        return replace(evidence, **changed)

    async def gated(self, name: str = "g2", size: int = 6, **evidence: Any) -> None:
        """A candidate that is ready to be served, of one document at least."""
        if DOCUMENTS in self.writers and self.writers[DOCUMENTS].head.applied == NO_OFFSET:
            await self.put("first.md", "something to serve\n")
        operator = self.operator()
        await operator.create(policy(size), name)
        await self.tick()
        await operator.record_verified(name, (await self.registry()).serving.name, "equal")
        proof = await self.evidence(name, **evidence)
        await operator.step(await self.registry(), "compared", name, evidence=proof)


def broker_that_knows(monkeypatch: pytest.MonkeyPatch, ends: dict[str, int]) -> None:
    """The ends of the logs, by ``topic/partition``; 0 where none is given."""

    async def high_watermarks(_: str, shards: Sequence[ShardId], **_security: object) -> dict[ShardId, int]:
        return {shard: ends.get(str(shard), 0) for shard in shards}

    monkeypatch.setattr("tessera.generations.operations.high_watermarks", high_watermarks)
