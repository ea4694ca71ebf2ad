"""Topics: made where they are missing, counted, and measured to their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NoError, TopicAlreadyExistsError, for_code

from tessera.errors import SettingsError
from tessera.events.topics import CHANGE_TOPICS, CONTROL, DEADLETTER_TOPIC, METRICS, ONE_PARTITION
from tessera.kafka.connection import DEADLINE_S, NO_SECURITY, Security, reaching
from tessera.kafka.reader import open_reader
from tessera.store.base import ShardId

_KEPT_FOR_EVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}
"""Compaction would eat appends; what retention removes, a rebuild from the log cannot reach."""

_KEPT_A_WEEK: Final = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000)}

_POLL_S: Final = 0.05


async def ensure_topics(
    bootstrap: str,
    partitions: int,
    *,
    topics: Collection[str] = (*CHANGE_TOPICS, DEADLETTER_TOPIC, CONTROL, METRICS),
    replication_factor: int = 1,
    security: Security = NO_SECURITY,
) -> dict[str, int]:
    """Make the topics that are missing, with ``partitions`` each, and return the partition counts of all.

    Those that keep one order of all records (:data:`~tessera.events.topics.ONE_PARTITION`) are made with one.
    A topic that is there keeps the count it has. Raises :class:`~tessera.errors.UnavailableError`, and
    :class:`SettingsError` where the broker refuses to make one.
    """
    async with reaching(bootstrap, "making topics"), _admin(bootstrap, security) as admin:
        counts = await _partition_counts(admin)
        missing = [topic for topic in topics if topic not in counts]
        if missing:
            await _create(admin, bootstrap, missing, partitions, replication_factor)
        # A broker knows a new topic a moment before its metadata does.
        while not counts.keys() >= set(topics):
            await asyncio.sleep(_POLL_S)
            counts = await _partition_counts(admin)
    return {topic: counts[topic] for topic in topics}


async def topic_partitions(bootstrap: str, *, security: Security = NO_SECURITY) -> dict[str, int]:
    """Partition counts of all topics the broker has. Raises :class:`~tessera.errors.UnavailableError`."""
    async with reaching(bootstrap, "listing topics"), _admin(bootstrap, security) as admin:
        return await _partition_counts(admin)


async def high_watermarks(
    bootstrap: str, shards: Collection[ShardId], *, security: Security = NO_SECURITY
) -> dict[ShardId, int]:
    """For each partition the offset that its next record will get; 0 in one that never had a record.

    Raises :class:`~tessera.errors.PartitionCountError` where a partition does not exist, and
    :class:`~tessera.errors.UnavailableError`.
    """
    async with (
        reaching(bootstrap, "asking for ends of logs"),
        open_reader(bootstrap, shards, security) as reader,
    ):
        return {shard: bounds.end for shard, bounds in (await reader.bounds()).items()}


def lag(ends: Mapping[ShardId, int], applied: Mapping[ShardId, int]) -> dict[ShardId, int]:
    """Records of each partition that are not applied yet: those from ``applied + 1`` to before its end.

    A partition of which nothing has been applied may be left out of ``applied``.
    """
    return {shard: max(0, end - (applied.get(shard, -1) + 1)) for shard, end in ends.items()}


@asynccontextmanager
async def _admin(bootstrap: str, security: Security) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap, request_timeout_ms=round(DEADLINE_S * 1000), **security
    )
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def _partition_counts(admin: AIOKafkaAdminClient) -> dict[str, int]:
    """Counts of all topics: asking for one by name would make it, where brokers make topics by themselves."""
    described = await admin.describe_topics()
    return {
        topic["topic"]: len(topic["partitions"])
        for topic in described
        if for_code(topic["error_code"]) is NoError
    }


async def _create(
    admin: AIOKafkaAdminClient,
    bootstrap: str,
    topics: Collection[str],
    partitions: int,
    replication_factor: int,
) -> None:
    """Ask for new topics; one that another client made meanwhile is fine."""
    response = await admin.create_topics(
        [
            NewTopic(
                topic,
                1 if topic in ONE_PARTITION else partitions,
                replication_factor,
                topic_configs=_KEPT_A_WEEK if topic == METRICS else _KEPT_FOR_EVER,
            )
            for topic in topics
        ]
    )
    for topic, error_code, *rest in response.topic_errors:
        error = for_code(error_code)
        if error in (NoError, TopicAlreadyExistsError):
            continue
        if error.retriable:
            raise error(topic)
        why = (rest[0] if rest else None) or error.__name__
        raise SettingsError(f"the Kafka broker at {bootstrap} refuses to make topic {topic}: {why}")
