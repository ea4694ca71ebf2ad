from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tessera.cli import deadletter
from tessera.cli import main as entry
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.parts import Headers
from tessera.events.topics import DOCUMENTS, LOGS
from tessera.generations.bootstrap import bootstrap
from tessera.shards.deadletters import list_deadletters
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

SERVERS = ["--broker", "b:1", "--redis", "redis://r/0"]
FAR_FUTURE_MS = 1_700_000_000_123_456_789


class FakePublisher:
    def __init__(self) -> None:
        self.keys: list[bytes | None] = []

    async def publish_record(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        self.keys.append(key)


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> FakePublisher:
    """Commands find an index with three dead letters: without key and value, without key, with both."""
    store, fake = MemoryStore(), FakePublisher()
    records = [
        Record(DOCUMENTS, 0, 0, None, None),
        Record(DOCUMENTS, 0, 1, None, b"value"),
        Record(DOCUMENTS, 0, 2, b"wiki/a.md", b"not JSON", (), FAR_FUTURE_MS),
    ]

    async def fill() -> None:
        await bootstrap(store, {DOCUMENTS: 1, LOGS: 1})
        writer = ShardWriter(store, ShardId(DOCUMENTS, 0), partitions=1, catalog=SourceCatalog())
        await writer.open()
        await writer.write(records)

    @asynccontextmanager
    async def opened_store(_: object) -> AsyncIterator[MemoryStore]:
        yield store

    @asynccontextmanager
    async def opened_publisher(*_: object) -> AsyncIterator[FakePublisher]:
        yield fake

    asyncio.run(fill())
    fake.store = store  # type: ignore[attr-defined]
    monkeypatch.setattr(deadletter, "opened_store", opened_store)
    monkeypatch.setattr(deadletter, "opened_publisher", opened_publisher)
    return fake


def left(publisher: Any) -> list[int]:
    return [letter.offset for letter in asyncio.run(list_deadletters(publisher.store))]


def test_a_letter_that_cannot_be_replayed_is_told_and_the_others_are_replayed(
    publisher: FakePublisher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(["deadletter", "replay", *SERVERS]) == 1
    shown = capsys.readouterr()
    assert "1 dead letter replayed" in shown.out
    assert shown.err.splitlines()[:2] == [
        f"tessera: {DOCUMENTS}:0:0:{offset}: its record has no key, so it names no document: discard it"
        for offset in (0, 1)
    ]
    assert shown.err.splitlines()[2:] == ["tessera: 2 dead letters could not be replayed"]
    assert publisher.keys == [b"wiki/a.md"]
    assert left(publisher) == [0, 1]


def test_json_names_the_replayed_and_the_refused(
    publisher: FakePublisher, capsys: pytest.CaptureFixture[str]
) -> None:
    bare, whole = f"{DOCUMENTS}:0:0:0", f"{DOCUMENTS}:0:0:2"
    assert entry.run(["deadletter", "replay", bare, "nonsense", whole, "--json", *SERVERS]) == 1
    told = orjson.loads(capsys.readouterr().out)
    assert told["replayed"] == [whole]
    assert list(told["refused"]) == [bare, "nonsense"]


@pytest.mark.usefixtures("publisher")
def test_a_time_that_no_calendar_has_is_shown_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["deadletter", "list", "--redis", "redis://r/0"]) == 0
    shown = capsys.readouterr().out
    assert f"produced {FAR_FUTURE_MS} ms after 1970" in shown
    assert "produced 1970-01-01T00:00:00+00:00" in shown
