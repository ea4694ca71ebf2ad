from __future__ import annotations

import asyncio
import time

import pytest

from bench.backends import Broker, begin_anew
from tessera.errors import PartitionCountError, UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.digest import record_digest
from tessera.events.topics import DOCUMENTS
from tessera.kafka.admin import ensure_topics
from tessera.kafka.probe import LogState, judge, probe_log
from tessera.kafka.publisher import Publisher
from tessera.kafka.reader import Bounds, open_reader
from tessera.store.base import NO_OFFSET, ShardId

HERE = "a" * 64
OTHER = "b" * 64
KEY = b"handbook/a.md"


@pytest.mark.parametrize(
    ("bounds", "applied", "digest", "verdict"),
    [
        (Bounds(0, 0), NO_OFFSET, None, "continues"),  # nothing applied, nothing there
        (Bounds(0, 9), NO_OFFSET, None, "continues"),  # nothing applied, everything there
        (Bounds(1, 9), NO_OFFSET, None, "gap"),  # nothing applied, the first record gone
        (Bounds(0, 9), 8, HERE, "continues"),  # caught up
        (Bounds(0, 9), 3, HERE, "continues"),  # behind
        (Bounds(3, 9), 3, HERE, "continues"),  # retention took what was before it
        (Bounds(0, 9), 3, OTHER, "foreign"),  # made anew, as long
        (Bounds(0, 9), 3, None, "foreign"),  # made anew, compacted
        (Bounds(0, 3), 3, None, "foreign"),  # made anew, shorter by one
        (Bounds(0, 0), 3, None, "foreign"),  # made anew, empty
        (Bounds(4, 9), 3, None, "starts_after"),  # retention took exactly what was applied
        (Bounds(4, 4), 3, None, "starts_after"),  # ... and nothing came since
        (Bounds(5, 9), 3, None, "gap"),  # retention took a record that was not applied
        (Bounds(5, 5), 3, None, "gap"),
    ],
)
def test_the_verdict_follows_from_bounds_and_record(
    bounds: Bounds, applied: int, digest: str | None, verdict: str
) -> None:
    state = judge(bounds, applied, HERE if applied >= 0 else "", digest)
    assert (state.verdict, state.start, state.end, state.digest) == (verdict, *bounds, digest)
    assert state.explanation


async def fill(bootstrap: str, records: int, partitions: int = 1) -> ShardId:
    """Put records with one key into the documents topic; return the partition they are in."""
    counts = await ensure_topics(bootstrap, partitions)
    async with Publisher(bootstrap, SourceCatalog(), counts) as publisher:
        partition = 0
        for number in range(records):
            position = await publisher.publish_record(DOCUMENTS, KEY, b"%d" % number)
            assert position.offset == number
            partition = position.partition
    return ShardId(DOCUMENTS, partition)


async def digest_at(bootstrap: str, shard: ShardId, offset: int) -> str:
    async with open_reader(bootstrap, [shard], {}) as reader:
        record = (await reader.records({shard: offset}))[shard]
    assert record is not None
    assert record.offset == offset
    return record_digest(record)


async def probe_one(bootstrap: str, shard: ShardId, applied: int, digest: str) -> LogState:
    started = time.monotonic()
    states = await probe_log(bootstrap, {shard: (applied, digest)})
    assert time.monotonic() - started < 5
    assert states.keys() == {shard}
    return states[shard]


@pytest.mark.servers
def test_partitions_are_probed_together_whatever_they_hold(broker: Broker) -> None:
    async def scenario() -> None:
        full = await fill(broker.address, records=6, partitions=4)
        digest = await digest_at(broker.address, full, 5)
        empty = [ShardId(DOCUMENTS, number) for number in range(4) if number != full.partition]
        states = await probe_log(
            broker.address,
            {full: (5, digest), empty[0]: (NO_OFFSET, ""), empty[1]: (0, digest), empty[2]: (10**9, digest)},
        )
        assert states[full].verdict == "continues"
        assert (states[full].start, states[full].end, states[full].digest) == (0, 6, digest)
        assert [states[shard].verdict for shard in empty] == ["continues", "foreign", "foreign"]
        assert all((states[shard].start, states[shard].end) == (0, 0) for shard in empty)

    asyncio.run(scenario())


@pytest.mark.servers
def test_a_shard_that_is_behind_continues_and_one_ahead_is_refused(broker: Broker) -> None:
    async def scenario() -> None:
        shard = await fill(broker.address, records=5)
        for applied in range(5):
            digest = await digest_at(broker.address, shard, applied)
            state = await probe_one(broker.address, shard, applied, digest)
            assert (state.verdict, state.end) == ("continues", 5)
            assert (await probe_one(broker.address, shard, applied + 1, digest)).verdict == "foreign"
        assert (await probe_one(broker.address, shard, NO_OFFSET, "")).verdict == "continues"

    asyncio.run(scenario())


@pytest.mark.servers
def test_a_log_made_anew_with_the_same_content_is_another_log(broker: Broker) -> None:
    async def before() -> tuple[ShardId, str]:
        shard = await fill(broker.address, records=3)
        return shard, await digest_at(broker.address, shard, 2)

    async def after(shard: ShardId, digest: str, records: int) -> LogState:
        assert await fill(broker.address, records) == shard
        return await probe_one(broker.address, shard, 2, digest)

    shard, digest = asyncio.run(before())
    for records in (2, 3, 4):
        begin_anew(broker)
        state = asyncio.run(after(shard, digest, records))
        assert (state.verdict, state.end) == ("foreign", records)


@pytest.mark.servers
def test_a_digest_is_the_same_whoever_reads_the_record_again(broker: Broker) -> None:
    async def scenario() -> None:
        counts = await ensure_topics(broker.address, 1)
        shard = ShardId(DOCUMENTS, 0)
        records = [(KEY, b"x", (("h", b"v"),)), (KEY, None, ()), (KEY, b"", ()), (None, b"x", ())]
        async with Publisher(broker.address, SourceCatalog(), counts) as publisher:
            for key, value, headers in records:
                await publisher.publish_record(DOCUMENTS, key, value, headers)
        digests = [await digest_at(broker.address, shard, offset) for offset in range(len(records))]
        assert len(set(digests)) == len(records)
        assert digests == [await digest_at(broker.address, shard, offset) for offset in range(len(records))]
        async with open_reader(broker.address, [shard], {}) as reader:
            for offset, (key, value, headers) in enumerate(records):
                record = (await reader.records({shard: offset}))[shard]
                assert record is not None
                assert (record.key, record.value, record.headers) == (key, value, headers)
                assert abs(record.timestamp_ms / 1000 - time.time()) < 60

    asyncio.run(scenario())


@pytest.mark.servers
def test_a_partition_that_does_not_exist_is_an_error_and_is_not_made(broker: Broker) -> None:
    async def scenario() -> None:
        await ensure_topics(broker.address, 2)
        for shard in (ShardId(DOCUMENTS, 2), ShardId("tessera.unknown", 0)):
            for _ in range(2):
                with pytest.raises(PartitionCountError, match=str(shard)):
                    await probe_log(broker.address, {shard: (NO_OFFSET, "")})

    asyncio.run(scenario())


def test_a_broker_that_is_not_there_is_named(unused_port: int) -> None:
    address = f"127.0.0.1:{unused_port}"
    with pytest.raises(UnavailableError, match=address):
        asyncio.run(probe_log(address, {ShardId(DOCUMENTS, 0): (NO_OFFSET, "")}))


def test_a_broker_that_never_answers_is_given_up_on(silent_port: int) -> None:
    address = f"127.0.0.1:{silent_port}"
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=address):
        asyncio.run(probe_log(address, {ShardId(DOCUMENTS, 0): (NO_OFFSET, "")}, timeout_s=0.5))
    assert time.monotonic() - started < 5
