"""Producing change events: routed by their source, in order per document, acknowledged by all replicas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownError,
    UnsupportedVersionError,
)

from tessera.errors import EventError, PartitionCountError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Change
from tessera.events.decoding import MAX_CONTENT_BYTES, check_routing
from tessera.events.encoding import Event, encode_event
from tessera.events.parts import Headers, max_event_bytes, split_record
from tessera.events.topics import partition_of, topic_of
from tessera.kafka.admin import topic_partitions
from tessera.kafka.connection import DEADLINE_S, NO_SECURITY, Security, reaching
from tessera.tracing import carrying

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT_BYTES: Final = 8 * 1024 * 1024
MAX_IN_FLIGHT_RECORDS: Final = 2000
"""Sent and not acknowledged yet: bounds memory, and what can be lost when a producer dies."""

_BATCH_BYTES: Final = 256 * 1024
_LINGER_MS: Final = 5
_MAX_REQUEST_BYTES: Final = 1024 * 1024

_NO_IDEMPOTENCE: Final = (UnknownError, UnsupportedVersionError, ClusterAuthorizationFailedError)
"""What brokers answer that do not have the idempotent producer, or do not grant it."""


class Position(NamedTuple):
    """Where the broker put a record."""

    topic: str
    partition: int
    offset: int


class Outgoing(NamedTuple):
    """One record on its way."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size_bytes(self) -> int:
        """Key and value."""
        return len(self.key or b"") + len(self.value or b"")


class Publisher:
    """A producer of change events; an async context manager, used from one event loop.

    ``partitions`` holds the recorded partition counts by topic: a topic with another count is refused,
    since its keys would move between shards. ``idempotence`` keeps a broker from storing a retried batch
    twice; None uses it where the broker has it (the embedded one has not; a duplicate is then a change that
    was applied already).
    """

    def __init__(
        self,
        bootstrap: str,
        catalog: SourceCatalog,
        partitions: Mapping[str, int],
        *,
        max_content_bytes: int = MAX_CONTENT_BYTES,
        idempotence: bool | None = None,
        security: Security = NO_SECURITY,
    ) -> None:
        self._bootstrap = bootstrap
        self._catalog = catalog
        self._partitions = dict(partitions)
        self._max_content_bytes = max_content_bytes
        self._idempotence = idempotence
        self._security = security
        self._counts: dict[str, int] = {}
        self._started: AIOKafkaProducer | None = None

    @property
    def idempotent(self) -> bool | None:
        """Whether the broker drops a retried batch it has already; None before the start with auto."""
        return self._idempotence

    async def __aenter__(self) -> Self:
        """Connect. Raises :class:`~tessera.errors.UnavailableError` and :class:`PartitionCountError`."""
        self._counts = await topic_partitions(self._bootstrap, security=self._security)
        for topic in self._partitions:
            self._check_count(topic, self._counts.get(topic, 0))
        self._started = await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect; what was sent and not acknowledged is waited for, within the deadline."""
        producer, self._started = self._started, None
        if producer is not None:
            await _stop(producer)

    async def publish(self, item: Change | Event) -> Position:
        """Send one change and return its position once the broker has it.

        Raises :class:`EventError` where the change is refused (as :func:`encode_event` and
        :func:`check_routing` do), :class:`PartitionCountError`, and
        :class:`~tessera.errors.UnavailableError` where no acknowledgement comes in time.
        """
        return (await self.publish_many([item]))[0]

    async def publish_many(self, items: Iterable[Change | Event]) -> list[Position]:
        """Send changes in their order and return their positions, one per item, once the broker has all.

        Of a change that takes several records it is the last one's position. Changes before the one that
        raises may have been sent. Raises as :meth:`publish` does.
        """
        window = _Window()
        async with self._sending(window):
            for item in items:
                records = self._records_of(item)
                for record in records:
                    await self._send(record, window, last=record is records[-1])
            return await self._finish(window)

    async def publish_record(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Position:
        """Send one record as it stands, to the partition of its key (0 without one).

        Raises as :meth:`publish`.
        """
        if key is None and value is None:
            raise ValueError("a record has a key or a value")
        window = _Window()
        async with self._sending(window):
            await self._send(Outgoing(topic, key, value, headers), window, last=True)
            return (await self._finish(window))[0]

    def _records_of(self, item: Change | Event) -> list[Outgoing]:
        """The records that carry a change, once it is known to be acceptable where it goes."""
        event = item if isinstance(item, Event) else encode_event(item, self._max_content_bytes)
        topic = topic_of(self._catalog[event.source].kind)
        if not isinstance(item, Event):
            check_routing(item, self._catalog, topic)
        if event.value is None:
            return [Outgoing(topic, event.key, None)]
        size, limit = len(event.value), max_event_bytes(self._max_content_bytes)
        if size > limit:
            key = event.key.decode()
            raise EventError(
                "too_large", f"the event for {key!r} has {size} bytes, at most {limit} are allowed"
            )
        records = split_record(event.value)
        return [Outgoing(topic, event.key, payload, headers) for headers, payload in records]

    @asynccontextmanager
    async def _sending(self, window: _Window) -> AsyncIterator[None]:
        """Leave nothing of the window unaccounted for, and name the record that the broker refuses."""
        try:
            yield
        except MessageSizeTooLargeError as error:
            raise EventError(
                "too_large", f"the broker at {self._bootstrap} refuses the record: {error}"
            ) from error
        finally:
            window.abandon()

    async def _send(self, record: Outgoing, window: _Window, last: bool) -> None:
        """Hand one record to the client library, once there is room in the window."""
        producer = self._producer
        if record.topic not in self._counts:
            self._check_count(record.topic, 0)
        async with reaching(self._bootstrap, f"producing to {record.topic}"):
            await window.make_room(record.size_bytes)
            count = len(await producer.partitions_for(record.topic))
            self._check_count(record.topic, count)
            partition = 0 if record.key is None else partition_of(record.key, count)
            delivery = await producer.send(
                record.topic, record.value, record.key, partition, headers=list(carrying(record.headers))
            )
        window.add(delivery, record.size_bytes, last)

    async def _finish(self, window: _Window) -> list[Position]:
        """Wait for everything sent; each record has the deadline to itself."""
        while not window.empty:
            async with reaching(self._bootstrap, "waiting for acknowledgements"):
                await window.settle()
        return window.positions

    def _check_count(self, topic: str, count: int) -> None:
        expected = self._partitions.get(topic)
        if count == 0 or (expected is not None and count != expected):
            recorded = "it was not there" if expected is None else f"{expected} are recorded"
            raise PartitionCountError(
                f"topic {topic} has {count} partitions at {self._bootstrap}, {recorded}: use the broker that "
                "the index was made from, or make the topic with the recorded count"
            )

    @property
    def _producer(self) -> AIOKafkaProducer:
        if self._started is None:
            raise RuntimeError("enter the publisher before publishing: async with Publisher(…) as publisher")
        return self._started

    async def _start(self) -> AIOKafkaProducer:
        """A connected producer, with idempotence where it is asked for or the broker has it."""
        if self._idempotence is not None:
            return await self._connect(self._idempotence)
        try:
            with _quiet(logging.getLogger("aiokafka.producer.sender")):
                producer = await self._connect(idempotence=True)
            self._idempotence = True
        except _NO_IDEMPOTENCE as error:
            logger.info("%s has no idempotent producer (%r): a retry can store twice", self._bootstrap, error)
            producer = await self._connect(idempotence=False)
            self._idempotence = False
        return producer

    async def _connect(self, idempotence: bool) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=idempotence,
            linger_ms=_LINGER_MS,
            max_batch_size=_BATCH_BYTES,
            max_request_size=_MAX_REQUEST_BYTES,
            request_timeout_ms=round(DEADLINE_S * 1000),
            **self._security,
        )
        try:
            async with reaching(self._bootstrap, "connecting a producer"):
                await producer.start()
        except BaseException:
            await _stop(producer)
            raise
        return producer


class _Window:
    """Records sent and not acknowledged yet, in order, and the positions of those that are."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[Any], int, bool]] = deque()
        self._size_bytes = 0
        self._positions: list[Position] = []

    def add(self, delivery: asyncio.Future[Any], size_bytes: int, last: bool) -> None:
        """Wait for one more; ``last`` ones give a position."""
        self._waiting.append((delivery, size_bytes, last))
        self._size_bytes += size_bytes

    async def make_room(self, size_bytes: int) -> None:
        """Wait for the oldest until a record of this size may be sent."""
        while self._waiting and (
            len(self._waiting) >= MAX_IN_FLIGHT_RECORDS or self._size_bytes + size_bytes > MAX_IN_FLIGHT_BYTES
        ):
            await self.settle()

    async def settle(self) -> None:
        """Wait for the oldest."""
        delivery, size_bytes, last = self._waiting[0]
        metadata = await delivery
        self._waiting.popleft()
        self._size_bytes -= size_bytes
        if last:
            self._positions.append(Position(metadata.topic, metadata.partition, metadata.offset))

    @property
    def empty(self) -> bool:
        """Whether everything sent has been acknowledged."""
        return not self._waiting

    @property
    def positions(self) -> list[Position]:
        """Of the acknowledged, in order."""
        return self._positions

    def abandon(self) -> None:
        """Wait for nothing any more; what the client library holds it still sends."""
        for delivery, _, _ in self._waiting:
            delivery.cancel()
        self._waiting.clear()


async def _stop(producer: AIOKafkaProducer) -> None:
    """Close, though the broker may be gone: the client library would wait for it."""
    with contextlib.suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(DEADLINE_S):
            await producer.stop()


@contextlib.contextmanager
def _quiet(client_logger: logging.Logger) -> Iterator[None]:
    """Keep an expected refusal, which is handled, from being shown as an error."""
    client_logger.addFilter(_nothing)
    try:
        yield
    finally:
        client_logger.removeFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False
