"""A shard store in memory that writes two generations, filled through the writers themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Record
from tessera.generations.bootstrap import bootstrap, contract_of, read_registry
from tessera.generations.registry import Generation
from tessera.policies import ChunkPolicy, TextPolicy
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

DOCUMENTS = ShardId("tessera.documents", 0)
LOGS = ShardId("tessera.logs", 0)
SHARDS = [DOCUMENTS, LOGS]
CATALOG = SourceCatalog(
    [
        SourceDeclaration("handbook", "documents", "event", ("*",)),
        SourceDeclaration("devex", "devex", "log", ("*",)),
    ]
)
_RULE = TextPolicy("window", size=6, overlap=2)
WINDOWS = ChunkPolicy("win-6", documents=_RULE, run_logs=_RULE)


@dataclass
class DualIndex:
    """``g1`` is the paragraph generation that is served, ``g2`` cuts windows of six words."""

    store: MemoryStore = field(default_factory=MemoryStore)
    writers: dict[ShardId, ShardWriter] = field(default_factory=dict)
    offsets: dict[ShardId, int] = field(default_factory=dict)
    revision: int = 0

    async def open(self) -> DualIndex:
        await bootstrap(self.store, {shard.topic: 1 for shard in SHARDS})
        for shard in SHARDS:
            self.writers[shard] = ShardWriter(self.store, shard, partitions=1, catalog=CATALOG)
            await self.writers[shard].open()
        return self

    async def add_candidate(self, policy: ChunkPolicy = WINDOWS, backfill: bool = True) -> None:
        registry = await read_registry(self.store)
        candidate = Generation("g2", contract_of(policy), "building")
        generations = {**registry.generations, "g2": candidate}
        moved = replace(registry, version=registry.version + 1, generations=generations)
        assert await self.store.put_control(registry.version, moved.to_json(), moved.release.to_json())
        for writer in self.writers.values():
            await writer.tick()
            while backfill and await writer.backfill(0, 5.0):
                pass

    async def put(self, doc_id: str, content: str, **more: Any) -> None:
        self.revision += 1
        event = {"op": "upsert", "source": "handbook", "doc_id": doc_id, "revision": self.revision}
        await self._write(DOCUMENTS, {**event, "media_type": "text/markdown", "content": content, **more})

    async def delete(self, doc_id: str) -> None:
        self.revision += 1
        event = {"op": "delete", "source": "handbook", "doc_id": doc_id, "revision": self.revision}
        await self._write(DOCUMENTS, event)

    async def append(self, doc_id: str, first_line: int, content: str) -> None:
        event = {"op": "append", "source": "devex", "doc_id": doc_id, "first_line": first_line}
        await self._write(LOGS, {**event, "content": content})

    async def _write(self, shard: ShardId, event: dict[str, Any]) -> None:
        offset = self.offsets.get(shard, -1) + 1
        self.offsets[shard] = offset
        key = f"{event['source']}/{event['doc_id']}".encode()
        value = json.dumps({"v": 1, **event}).encode()
        record = Record(shard.topic, 0, offset, key, value, (), 1_700_000_000_000)
        report = await self.writers[shard].write([record])
        assert not report.reasons


async def small_index() -> DualIndex:
    """Some documents, a deleted one and logs, one with missing lines; written before and after adoption."""
    index = await DualIndex().open()
    for number in range(12):
        await index.put(
            f"a/{number}.md",
            f"# Title {number}\n\nfirst naïve words of {number}\n\nand then seven more words follow\n",
        )
    await index.put("empty.md", "\n\n")
    await index.put("gone.md", "this goes away\n")
    await index.append("run_1.log", 1, "one two three\n\nfour five six seven\n")
    await index.add_candidate()
    await index.delete("gone.md")
    await index.put("a/3.md", "a shorter text\n")
    await index.append("run_1.log", 4, "eight nine\n")
    await index.append("run_2.log", 1, "one two\n")
    await index.append("run_2.log", 5, "five six\n\nseven eight nine ten eleven twelve\n")
    return index
