from __future__ import annotations

import asyncio
import time

import pytest

from bench.backends import Broker
from tessera.errors import PartitionCountError, UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.topics import CHANGE_TOPICS, CONTROL, DEADLETTER_TOPIC, DOCUMENTS, LOGS, METRICS
from tessera.kafka.admin import ensure_topics, high_watermarks, lag, topic_partitions
from tessera.kafka.publisher import Publisher
from tessera.store.base import NO_OFFSET, ShardId


@pytest.mark.servers
def test_missing_topics_are_made_and_those_there_keep_their_count(broker: Broker) -> None:
    async def scenario() -> None:
        assert await topic_partitions(broker.address) == {}
        assert await ensure_topics(broker.address, 3, topics=[LOGS]) == {LOGS: 3}
        counts = await ensure_topics(broker.address, 4)
        assert counts == {DOCUMENTS: 4, LOGS: 3, DEADLETTER_TOPIC: 4, CONTROL: 1, METRICS: 4}
        assert await ensure_topics(broker.address, 7) == counts
        assert await topic_partitions(broker.address) == counts

    asyncio.run(scenario())


@pytest.mark.servers
def test_two_that_make_the_same_topics_at_once_agree(broker: Broker) -> None:
    async def scenario() -> list[dict[str, int]]:
        return await asyncio.gather(*(ensure_topics(broker.address, count) for count in (2, 3, 4)))

    first, *others = asyncio.run(scenario())
    assert all(other == first for other in others)


@pytest.mark.servers
def test_ends_of_logs_count_every_record_of_a_batch_and_none_in_empty_partitions(
    broker: Broker,
) -> None:
    async def scenario() -> None:
        counts = await ensure_topics(broker.address, 4)
        shards = [ShardId(topic, number) for topic in CHANGE_TOPICS for number in range(4)]
        assert await high_watermarks(broker.address, shards) == dict.fromkeys(shards, 0)
        async with Publisher(broker.address, SourceCatalog(), counts) as publisher:
            # At once, so that they travel as one batch, whose base is all that the broker's own answer knows.
            sent = await asyncio.gather(
                *(publisher.publish_record(DOCUMENTS, b"handbook/a.md", b"x") for _ in range(20))
            )
        home = ShardId(DOCUMENTS, sent[0].partition)
        ends = await high_watermarks(broker.address, shards)
        assert ends == {shard: 20 if shard == home else 0 for shard in shards}

    asyncio.run(scenario())


@pytest.mark.servers
def test_the_end_of_a_partition_that_does_not_exist_is_an_error(broker: Broker) -> None:
    async def scenario() -> None:
        await ensure_topics(broker.address, 1)
        with pytest.raises(PartitionCountError, match=f"{DOCUMENTS}/1"):
            await high_watermarks(broker.address, [ShardId(DOCUMENTS, 1)])

    asyncio.run(scenario())


def test_a_broker_that_is_not_there_is_named_at_once(unused_port: int) -> None:
    address = f"127.0.0.1:{unused_port}"
    started = time.monotonic()
    for call in (
        ensure_topics(address, 1),
        topic_partitions(address),
        high_watermarks(address, [ShardId(DOCUMENTS, 0)]),
    ):
        with pytest.raises(UnavailableError, match=address):
            asyncio.run(call)
    assert time.monotonic() - started < 5


def test_lag_counts_what_is_not_applied() -> None:
    shards = [ShardId(DOCUMENTS, number) for number in range(4)]
    ends = dict(zip(shards, (0, 10, 10, 10), strict=True))
    applied = {shards[0]: NO_OFFSET, shards[1]: NO_OFFSET, shards[2]: 9}
    assert list(lag(ends, applied).values()) == [0, 10, 0, 10]
