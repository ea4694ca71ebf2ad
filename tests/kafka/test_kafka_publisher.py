from __future__ import annotations

import asyncio
import logging
import time

import pytest

from bench.backends import ARE_REAL, Broker
from tessera.errors import EventError, PartitionCountError, UnavailableError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Append, Change, Delete, Part, Record, Upsert
from tessera.events.decoding import check_partition, decode_joined, decode_record
from tessera.events.encoding import Event
from tessera.events.parts import join_parts
from tessera.events.topics import DEADLETTER_TOPIC, DOCUMENTS, LOGS
from tessera.kafka import publisher as publishing
from tessera.kafka.admin import ensure_topics, high_watermarks
from tessera.kafka.publisher import Position, Publisher
from tessera.kafka.reader import open_reader
from tessera.store.base import ShardId

CATALOG = SourceCatalog([SourceDeclaration("handbook", revision_from="event")])
PARTITIONS = 4


def upsert(doc_id: str, revision: int = 1, content: str = "x\n") -> Upsert:
    return Upsert("handbook", doc_id, revision, "text/markdown", content, ("*",))


async def opened(broker: Broker) -> Publisher:
    counts = await ensure_topics(broker.address, PARTITIONS)
    return Publisher(broker.address, CATALOG, counts)


async def read(broker: Broker, topic: str) -> dict[int, list[Record]]:
    """All records of a topic by partition, in order of offset."""
    shards = [ShardId(topic, number) for number in range(PARTITIONS)]
    ends = await high_watermarks(broker.address, shards)
    records: dict[int, list[Record]] = {}
    async with open_reader(broker.address, shards, {}) as reader:
        for shard, end in ends.items():
            records[shard.partition] = []
            for offset in range(end):
                record = (await reader.records({shard: offset}))[shard]
                assert record is not None
                records[shard.partition].append(record)
    return records


@pytest.mark.servers
def test_changes_arrive_on_their_sources_topic_in_their_keys_partition_in_order(
    broker: Broker,
) -> None:
    changes: list[Change] = [upsert(f"d{number % 7}", revision=number) for number in range(30)]
    changes += [Append("devex", "run", 1, "x\n"), Delete("handbook", "d1", None, outright=True)]

    async def scenario() -> None:
        async with await opened(broker) as publisher:
            positions = await publisher.publish_many(changes)
        assert len(positions) == len(changes)
        seen: dict[Position, Change] = {}
        for topic in (DOCUMENTS, LOGS):
            for records in (await read(broker, topic)).values():
                for record in records:
                    check_partition(record, PARTITIONS)
                    change = decode_record(record)
                    assert not isinstance(change, Part)
                    seen[Position(record.topic, record.partition, record.offset)] = change
        assert [seen[position] for position in positions] == changes
        assert len(seen) == len(changes)
        assert {position.topic for position in positions[:30]} == {DOCUMENTS}
        assert positions[30].topic == LOGS

    asyncio.run(scenario())


@pytest.mark.servers
def test_a_small_window_loses_and_reorders_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MAX_IN_FLIGHT_RECORDS", 3)
    monkeypatch.setattr(publishing, "MAX_IN_FLIGHT_BYTES", 500)

    async def scenario() -> None:
        async with await opened(broker) as publisher:
            positions = await publisher.publish_many(upsert("one", revision=number) for number in range(40))
        assert [position.offset for position in positions] == list(range(40))
        records = (await read(broker, DOCUMENTS))[positions[0].partition]
        assert [decode_record(record) for record in records] == [
            upsert("one", number) for number in range(40)
        ]

    asyncio.run(scenario())


@pytest.mark.servers
def test_a_large_document_travels_in_parts_and_its_position_is_the_last_ones(broker: Broker) -> None:
    large = upsert("large", content="word " * 500_000)

    async def scenario() -> None:
        async with await opened(broker) as publisher:
            first, position, last = await publisher.publish_many(
                [upsert("large", 0), large, upsert("large", 2)]
            )
        assert (first.offset, position.offset, last.offset) == (0, 3, 4)
        records = (await read(broker, DOCUMENTS))[position.partition]
        parts = [decode_record(record) for record in records[1:4]]
        value = join_parts([part for part in parts if isinstance(part, Part)])
        assert decode_joined(b"handbook/large", value) == large

    asyncio.run(scenario())


@pytest.mark.servers
def test_what_would_be_refused_on_arrival_is_refused_before_it_is_sent(broker: Broker) -> None:
    refused: list[tuple[Change | Event, str]] = [
        (upsert("a/../b"), "invalid_doc_id"),
        (Upsert("handbook", "a", None, "text/plain", "x", None), "revision_missing"),
        (Append("handbook", "a", 1, "x\n"), "append_to_documents"),
        (upsert("big", content="x" * 1001), "too_large"),
        (Event("handbook", "big", b"x" * 4_000_000), "too_large"),
    ]

    async def scenario() -> None:
        counts = await ensure_topics(broker.address, PARTITIONS)
        async with Publisher(broker.address, CATALOG, counts, max_content_bytes=1000) as publisher:
            for item, reason in refused:
                with pytest.raises(EventError) as caught:
                    await publisher.publish(item)
                assert caught.value.reason == reason
            with pytest.raises(EventError):
                await publisher.publish_many([upsert("good"), upsert("..")])
            assert (await publisher.publish(upsert("good", 2))).topic == DOCUMENTS

    asyncio.run(scenario())


@pytest.mark.servers
def test_raw_records_go_where_they_are_sent(broker: Broker) -> None:
    async def scenario() -> None:
        async with await opened(broker) as publisher:
            await publisher.publish(Event("handbook", "bad", b"not JSON"))
            dead = await publisher.publish_record(DEADLETTER_TOPIC, None, b"v", (("tessera-reason", b"x"),))
            with pytest.raises(ValueError, match="key or a value"):
                await publisher.publish_record(DEADLETTER_TOPIC, None, None)
            with pytest.raises(PartitionCountError, match="unknown"):
                await publisher.publish_record("unknown", b"k", b"v")
        record = (await read(broker, DEADLETTER_TOPIC))[dead.partition][dead.offset]
        assert (record.key, record.value, record.headers) == (None, b"v", (("tessera-reason", b"x"),))
        assert "unknown" not in await ensure_topics(broker.address, PARTITIONS)

    asyncio.run(scenario())


@pytest.mark.servers
def test_a_topic_with_another_partition_count_is_refused(broker: Broker) -> None:
    async def scenario() -> None:
        await ensure_topics(broker.address, 2)
        for recorded in ({DOCUMENTS: 4}, {DOCUMENTS: 2, "missing": 1}):
            with pytest.raises(PartitionCountError, match="recorded"):
                async with Publisher(broker.address, CATALOG, recorded):
                    pass

    asyncio.run(scenario())


@pytest.mark.servers
@pytest.mark.skipif(ARE_REAL, reason="Apache Kafka has one")
def test_without_idempotent_producer_it_goes_on_and_says_so(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with await opened(broker) as publisher:
            assert publisher.idempotent is False
            await publisher.publish(upsert("a"))

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert "idempotent" in caplog.text
    assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING]


def test_a_broker_that_is_not_there_is_named(unused_port: int) -> None:
    async def scenario() -> None:
        async with Publisher(f"127.0.0.1:{unused_port}", CATALOG, {}):
            pass

    with pytest.raises(UnavailableError, match=str(unused_port)):
        asyncio.run(scenario())


@pytest.mark.servers
def test_a_broker_that_goes_away_is_named_within_the_deadline(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "DEADLINE_S", 1.0)

    async def scenario() -> None:
        async with await opened(broker) as publisher:
            await publisher.publish(upsert("a"))
            broker.stop()
            started = time.monotonic()
            with pytest.raises(UnavailableError, match=broker.address):
                await publisher.publish_many([upsert("b"), upsert("c")])
            assert time.monotonic() - started < 12

    asyncio.run(scenario())


def test_a_publisher_must_be_entered() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(Publisher("127.0.0.1:1", CATALOG, {}).publish(upsert("a")))
