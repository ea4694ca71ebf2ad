"""Whatever a log holds, what is sound in it is read and every offset is accounted for."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record._crc32c import crc as crc32c
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.backends import Broker
from tessera.errors import EventError
from tessera.events.decoding import DAMAGED_HEADER, decode_record
from tessera.events.digest import record_digest
from tessera.events.topics import DOCUMENTS
from tessera.kafka import expansion
from tessera.kafka.admin import ensure_topics, high_watermarks
from tessera.kafka.expansion import MAX_BATCH_BYTES
from tessera.kafka.parsing import ReadableRecords
from tessera.kafka.probe import probe_log
from tessera.kafka.reader import open_reader, record_of
from tessera.store.base import ShardId

NAME = "a-name-that-is-here-once"
CODECS = {
    "none": DefaultRecordBatch.CODEC_NONE,
    "gzip": DefaultRecordBatch.CODEC_GZIP,
    "snappy": DefaultRecordBatch.CODEC_SNAPPY,
    "lz4": DefaultRecordBatch.CODEC_LZ4,
    "zstd": DefaultRecordBatch.CODEC_ZSTD,
}
CRC_AT, CHECKED_FROM = 17, 21


def batch(first: int, count: int, codec: int = 0, name: str = "h", timestamp: int = 1_000) -> bytes:
    """A batch of the offsets from ``first`` on, each with one header."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1_000_000)
    for index in range(count):
        builder.append(index, timestamp, b"k%d" % (first + index), b"v" * 40, [(name, b"x")])
    data = bytes(builder.build())
    return struct.pack(">q", first) + data[8:]


def sealed(data: bytes) -> bytes:
    """The batch with the checksum that its bytes have."""
    return data[:CRC_AT] + struct.pack(">I", crc32c(data[CHECKED_FROM:])) + data[CHECKED_FROM:]


def fetched(data: bytes, offset: int = 0, parser: Any = ReadableRecords) -> list[Any]:
    """What aiokafka's fetcher makes of the bytes, fetched from ``offset`` on, and where it goes on."""
    records = PartitionRecords(TopicPartition("t", 0), parser(data), None, offset, None, None, True, 0)
    return [*records, records.next_fetch_offset]


def offsets(data: bytes, offset: int = 0) -> list[int]:
    *messages, following = fetched(data, offset)
    return [*(message.offset for message in messages), following]


@pytest.mark.parametrize("codec", CODECS)
def test_sound_batches_are_read_as_the_client_reads_them(codec: str) -> None:
    data = batch(0, 3, CODECS[codec]) + batch(3, 2, CODECS[codec]) + batch(5, 1)[:-1]
    assert fetched(data) == fetched(data, parser=MemoryRecords)
    assert offsets(data) == [0, 1, 2, 3, 4, 5]


def test_a_header_name_that_is_not_utf8_is_read_with_backslashes_and_all_else_as_it_is() -> None:
    evil = sealed(batch(1, 2, name=NAME).replace(NAME.encode(), b"\xff" * len(NAME)))
    *messages, following = fetched(batch(0, 1) + evil + batch(3, 1))
    assert [message.offset for message in messages] == [0, 1, 2, 3]
    assert following == 4
    for message in messages[1:3]:
        assert message.headers == ((r"\xff" * len(NAME), b"x"),)
        assert (message.key, message.value) == (b"k%d" % message.offset, b"v" * 40)
        assert message.timestamp == 1_000


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_whose_checksum_is_wrong_gives_refused_records_for_its_offsets_and_stops_nothing(
    codec: str,
) -> None:
    bad = batch(1, 3, CODECS[codec])
    bad = bad[:-1] + bytes([bad[-1] ^ 1])
    *messages, following = fetched(batch(0, 1) + bad + batch(4, 1))
    assert [message.offset for message in messages] == [0, 1, 2, 3, 4]
    assert following == 5
    assert [message.value for message in messages[1:4]] == [bad, None, None]
    for message in messages[1:4]:
        with pytest.raises(EventError, match="checksum") as refused:
            decode_record(record_of(message))
        assert refused.value.reason == "damaged_batch"
    assert offsets(bad, offset=2) == [2, 3, 4]


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_a_batch_that_would_become_gigabytes_is_a_damaged_one_and_is_not_held(codec: str) -> None:
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], 0, -1, -1, -1, 1 << 30)
    builder.append(0, 1_000, b"k", bytes(MAX_BATCH_BYTES + 1), [])
    bomb = bytes(builder.build())
    tracemalloc.start()
    *messages, following = fetched(bomb + batch(1, 1))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [message.offset for message in messages] == [0, 1]
    assert following == 2
    assert messages[0].headers[0][0] == DAMAGED_HEADER
    assert b"becomes more than 64 MiB" in messages[0].headers[0][1]
    assert messages[0].value == bomb
    assert most < 32 * 1024 * 1024 + 4 * len(bomb)


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
@settings(max_examples=40, deadline=None)
@given(size=st.integers(0, 200_000), kind=st.sampled_from(["same", "drawn"]))
def test_what_a_sound_batch_becomes_is_never_taken_for_less(codec: str, size: int, kind: str) -> None:
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], 0, -1, -1, -1, 1 << 30)
    builder.append(0, 1_000, b"k", bytes(size) if kind == "same" else random.Random(size).randbytes(size), [])
    data = bytes(builder.build())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expansion, "MAX_BATCH_BYTES", size - 1)
        patch.setattr(expansion, "_SMALL_BYTES", {})
        if data[22] & 7 and size:  # a batch that would only grow is left as it is
            with pytest.raises(ValueError, match="becomes more"):
                expansion.require_bounded(data)
    expansion.require_bounded(data)


def test_a_batch_in_a_compression_that_nobody_knows_is_a_damaged_one() -> None:
    data = batch(0, 2)
    unknown = sealed(data[:22] + bytes([data[22] | 7]) + data[23:])
    *messages, following = fetched(unknown)
    assert [name for message in messages for name, _ in message.headers] == [DAMAGED_HEADER] * 2
    assert following == 2


@given(st.data())
def test_no_damage_stops_the_batches_behind_it(data: st.DataObject) -> None:
    whole = batch(7, 4)
    position = data.draw(st.integers(12, len(whole) - 1))
    damaged = whole[:position] + data.draw(st.binary(min_size=1, max_size=8)) + whole[position + 8 :]
    damaged = whole[:8] + struct.pack(">i", len(damaged) - 12) + damaged[12:]
    if data.draw(st.booleans()):
        damaged = sealed(damaged.ljust(61, b"\0"))
        damaged = damaged[:8] + struct.pack(">i", len(damaged) - 12) + damaged[12:]
    *messages, following = fetched(batch(6, 1) + damaged + batch(11, 1), offset=6)
    assert messages[0].offset == 6
    assert (messages[-1].offset, following) == (11, 12)
    for message in messages:
        assert len(record_digest(record_of(message))) == 64


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_timestamp_is_kept_to_the_millisecond(timestamp: int) -> None:
    [message, _] = fetched(batch(0, 1, timestamp=timestamp))
    assert record_of(message).timestamp_ms == timestamp


EVIL_PRODUCER = """
import asyncio, sys
from aiokafka import AIOKafkaProducer

class Name(str):
    def encode(self, *_):
        return b"\\xff\\xfe"

async def main():
    producer = AIOKafkaProducer(bootstrap_servers=sys.argv[1], acks="all")
    await producer.start()
    for headers in ([], [(Name("k"), b"v")], []):
        await producer.send_and_wait(sys.argv[2], b"{}", b"s/d", 0, headers=headers)
    await producer.stop()

asyncio.run(main())
"""


@pytest.mark.servers
def test_a_log_with_such_a_name_is_read_and_probed_at_a_real_broker(broker: Broker) -> None:
    shard = ShardId(DOCUMENTS, 0)

    asyncio.run(ensure_topics(broker.address, 1))
    subprocess.run(
        [sys.executable, "-c", EVIL_PRODUCER, broker.address, DOCUMENTS],
        env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"},
        check=True,
        timeout=30,
    )

    async def scenario() -> None:
        async with open_reader(broker.address, [shard], {}) as reader:
            record = (await reader.records({shard: 1}))[shard]
        assert record is not None
        assert record.headers == ((r"\xff\xfe", b"v"),)
        states = await probe_log(broker.address, {shard: (1, record_digest(record))})
        assert states[shard].verdict == "continues"
        assert await high_watermarks(broker.address, [shard]) == {shard: 3}

    asyncio.run(scenario())
