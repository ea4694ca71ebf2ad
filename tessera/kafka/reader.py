"""Reading single records and the bounds of partitions, outside of any consumer group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from tessera.errors import PartitionCountError
from tessera.events.change import Record
from tessera.kafka.connection import DEADLINE_S, Security
from tessera.kafka.parsing import read_all_records
from tessera.store.base import ShardId

_POLL_MS: Final = 50
_FETCH_WAIT_MS: Final = 50
"""How long a broker waits for new records: at the end of a log every answer takes this long."""

_MIN_TIMESTAMP_MS: Final = -(2**63)
_MAX_TIMESTAMP_MS: Final = 2**63 - 1
"""A time delta in a record can lead beyond, and the description of a dead letter holds no greater number."""


class Bounds(NamedTuple):
    """The offsets a partition holds, half-open: its first available one, and the one its next record gets."""

    start: int
    end: int


def record_of(message: Any) -> Record:
    """The record in a message whose timestamp is in whole milliseconds, as aiokafka gives it.

    A message without a timestamp (of before Kafka 0.10) has 0; one beyond 64 bits, the nearest within.
    """
    headers = tuple((name, value or b"") for name, value in message.headers or ())
    timestamp_ms = min(max(message.timestamp or 0, _MIN_TIMESTAMP_MS), _MAX_TIMESTAMP_MS)
    return Record(
        message.topic, message.partition, message.offset, message.key, message.value, headers, timestamp_ms
    )


class LogReader:
    """Reads from fixed partitions. Every call waits as long as the broker takes: bound it from outside."""

    def __init__(self, consumer: AIOKafkaConsumer, shards: Collection[ShardId]) -> None:
        self._consumer = consumer
        self._partitions = {shard: TopicPartition(*shard) for shard in shards}

    async def bounds(self) -> dict[ShardId, Bounds]:
        """Where each partition's log starts and ends now."""
        partitions = list(self._partitions.values())
        starts = await self._consumer.beginning_offsets(partitions)
        # Only where to look: the embedded broker answers with the base of the last batch + 1. What a fetch
        # says is right on every broker, for empty partitions too.
        near_ends = await self._consumer.end_offsets(partitions)
        for partition in partitions:
            self._consumer.seek(partition, max(starts[partition], near_ends[partition]))
        while any(self._consumer.highwater(partition) is None for partition in partitions):
            await self._consumer.getmany(timeout_ms=_POLL_MS)
        return {
            shard: Bounds(starts[partition], self._consumer.highwater(partition))
            for shard, partition in self._partitions.items()
        }

    async def records(self, offsets: Mapping[ShardId, int]) -> dict[ShardId, Record | None]:
        """The record at an offset within :meth:`bounds` of each of these partitions; None where a later one
        is the first found (a compacted topic, a marker of a transaction). Beyond the end it never returns.
        """
        wanted = {self._partitions[shard]: shard for shard in offsets}
        for partition, shard in wanted.items():
            self._consumer.seek(partition, offsets[shard])
            self._consumer.resume(partition)
        found: dict[ShardId, Record | None] = {}
        while len(found) < len(wanted):
            messages = await self._consumer.getmany(*wanted, timeout_ms=_POLL_MS, max_records=len(wanted))
            for partition, batch in messages.items():
                record = record_of(batch[0])
                shard = wanted[partition]
                found.setdefault(shard, record if record.offset == offsets[shard] else None)
                self._consumer.pause(
                    partition
                )  # or what follows would be fetched while others are waited for
        return found

    async def batches(self, shard: ShardId) -> AsyncIterator[list[Record]]:
        """Every record of the partition in order, as they are fetched, up to the end that it has when the
        last one is read."""
        partition = self._partitions[shard]
        starts = await self._consumer.beginning_offsets([partition])
        self._consumer.seek(partition, starts[partition])
        while True:
            messages = await self._consumer.getmany(partition, timeout_ms=_POLL_MS)
            yield [record_of(message) for message in messages.get(partition, ())]
            end = self._consumer.highwater(partition)
            if end is not None and await self._consumer.position(partition) >= end:
                return

    async def all_records(self, shard: ShardId) -> list[Record]:
        """The records of :meth:`batches` together."""
        return [record async for batch in self.batches(shard) for record in batch]


@asynccontextmanager
async def open_reader(
    bootstrap: str, shards: Collection[ShardId], security: Security
) -> AsyncIterator[LogReader]:
    """A reader of these partitions. Raises :class:`PartitionCountError` where one does not exist."""
    read_all_records()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",  # an offset that is gone is an answer, not a reason to read elsewhere
        fetch_max_wait_ms=_FETCH_WAIT_MS,
        request_timeout_ms=round(DEADLINE_S * 1000),
        **security,
    )
    try:
        await consumer.start()
        await _assign(consumer, bootstrap, shards)
        yield LogReader(consumer, shards)
    finally:
        await consumer.stop()


async def _assign(consumer: AIOKafkaConsumer, bootstrap: str, shards: Collection[ShardId]) -> None:
    """Assign the partitions; one that is not there would be waited for until the deadline."""
    known = await consumer.topics()  # of all topics: asking for one by name may make it
    if all(shard.topic in known for shard in shards):
        consumer.assign([TopicPartition(*shard) for shard in shards])
        # The client learns of partitions in its own time; what it was asked above tells it nothing.
        await consumer._client.force_metadata_update()
    for shard in shards:
        if shard.partition not in (consumer.partitions_for_topic(shard.topic) or ()):
            raise PartitionCountError(
                f"the Kafka broker at {bootstrap} has no partition {shard}: make the topic with its recorded "
                "partition count, or use the broker that holds it"
            )
