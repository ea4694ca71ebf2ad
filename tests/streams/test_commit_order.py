"""A process that dies between any two steps of a commit leaves nothing out and nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.backends import new_redis
from bench.crash import live_chunks
from streams.driver import Driver
from tessera.documents.record import DocumentRecord
from tessera.embedded.redis import EmbeddedRedis
from tessera.events.change import Record
from tessera.events.topics import DOCUMENTS
from tessera.failpoints import NAMES, VARIABLE
from tessera.store.base import ShardId, ShardStore
from tessera.store.connect import connect
from tessera.store.memory import MemoryStore

SHARD = ShardId(DOCUMENTS, 0)
POINTS = [name for name in NAMES if name.startswith(("shard.", "batch.", "outbox."))]
"""The steps of one batch. Merges and the life of generations are walked through by their own tests."""


def upsert(offset: int, doc_id: str, content: str) -> Record:
    event = {"v": 1, "op": "upsert", "source": "s", "doc_id": doc_id, "media_type": "text/plain"}
    value = orjson.dumps({**event, "content": content})
    return Record(*SHARD, offset, f"s/{doc_id}".encode(), value)


FIRST = [upsert(0, "a", "one\n\ntwo\n"), upsert(1, "b", "three\n"), Record(*SHARD, 2, b"s/c", b"poison")]
SECOND = [upsert(3, "a", "four\n"), upsert(4, "c", "five\n\nsix\n"), Record(*SHARD, 5, b"s/b", None)]


async def drive(store: ShardStore) -> Driver:
    """All records in two batches, then a round of upkeep; a log that is longer than what is applied."""
    async with Driver(store, partitions=1) as driver:
        applied = driver.ownership.position(SHARD) or 0
        driver.logs[SHARD] = [record for record in FIRST + SECOND if record.offset < applied]
        for batch in (FIRST, SECOND):
            await driver.feed(record for record in batch if record.offset >= applied)
        await driver.upkeep()
    return driver


async def state(store: ShardStore) -> dict[str, Any]:
    """Everything a reader can see of the shard."""
    head = await store.head(SHARD)
    assert head is not None
    rows = await store.scan_documents(SHARD)
    records = {key: DocumentRecord.decode(data, key) for key, data in rows}
    counters = await store.counters(SHARD)
    return {
        "applied": head.applied,
        "documents": {key: (record.revision, record.deleted) for key, record in records.items()},
        "chunks": await live_chunks(store, SHARD),
        "deadletters": sorted(await store.deadletters(SHARD)),
        "outbox": await store.outbox(SHARD),
        "counted": {name: counters.get(name, 0) for name in ("records", "changes", "deadletters")},
    }


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with new_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.mark.servers
@pytest.mark.parametrize("point", POINTS)
def test_after_a_death_at_any_step_everything_is_there_once(point: str, redis: EmbeddedRedis) -> None:
    hit = "2" if point.startswith("batch.") else "1"
    ended = subprocess.run(
        [sys.executable, __file__, redis.url, point],
        env={**os.environ, VARIABLE: f"{point}:{hit}"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr

    async def resume() -> tuple[dict[str, Any], Driver]:
        store = connect(redis.url, point)
        try:
            driver = await drive(store)
            return await state(store), driver
        finally:
            await store.close()

    async def undisturbed() -> dict[str, Any]:
        store = MemoryStore()
        await drive(store)
        return await state(store)

    found, driver = asyncio.run(resume())
    assert found == asyncio.run(undisturbed())
    assert len(driver.produced) == 1


def main() -> None:
    """The process that dies."""
    store = connect(sys.argv[1], sys.argv[2])
    asyncio.run(drive(store))


if __name__ == "__main__":
    main()
