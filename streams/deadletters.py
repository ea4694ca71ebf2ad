"""Where dead letters leave for the broker: a producer that is started when the first one is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    CorruptRecordException,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
)

from tessera.errors import UnavailableError
from tessera.events.parts import MAX_RECORD_BYTES, Headers
from tessera.kafka.connection import NO_SECURITY, Security

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000

MAX_KEY_BYTES = 16 * 1024
MAX_HEADERS_BYTES = 32 * 1024
"""A record that is refused for them may have a key or headers as large as a record can be."""

SIZES_BYTES = (MAX_RECORD_BYTES - MAX_KEY_BYTES - MAX_HEADERS_BYTES, 32 * 1024, 0)
"""How much of a value is produced: with the default settings the first always passes; the others are for
brokers that take less. The dead letter of a large event is as large as the event, many records' worth."""

TRUNCATED_HEADER = "tessera-truncated"
"""Says how many bytes the value has; ``tessera deadletter show`` has all of them."""

_REFUSED = (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    CorruptRecordException,
    InvalidTimestampError,
    PolicyViolationError,
)
"""What a broker answers for the sake of one record: another one may well be taken."""


class Letter(NamedTuple):
    """What is produced of a dead letter."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class DeadLetterProducer:
    """Produces with ``acks=all``; calls raise :class:`~tessera.errors.UnavailableError` to be repeated.

    A letter that the broker takes in no size is logged and left out of the topic: it stays in the store, and
    those after it must not wait for it.
    """

    def __init__(self, bootstrap: str, security: Security = NO_SECURITY) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Return when the broker has the record, whole or in part, or has refused it for good."""
        refusal: KafkaError | None = None
        for letter in forms(key, value, headers):
            try:
                await self._send(topic, letter)
            except _REFUSED as error:
                refusal = error
            else:
                return
        shown = dict(headers).get("tessera-deadletter-id", b"").decode(errors="backslashreplace")
        logger.error(
            "%s: refuses dead letter %s (%r): it is not in %s, see `tessera deadletter show %s`",
            self._bootstrap,
            shown,
            refusal,
            topic,
            shown,
        )

    async def _send(self, topic: str, letter: Letter) -> None:
        try:
            producer = await self._started()
            await producer.send_and_wait(topic, letter.value, letter.key, headers=list(letter.headers))
        except _REFUSED:
            raise
        except KafkaError as error:
            raise UnavailableError(
                f"{self._bootstrap}: did not take a dead letter into {topic} ({error!r}); it is sent again"
            ) from error

    async def close(self) -> None:
        """Stop the producer, if it was started."""
        if self._producer is not None:
            await self._producer.stop()

    async def _started(self) -> AIOKafkaProducer:
        # Several shards deliver at once: without the lock each would start a producer, and all but one leak.
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    bootstrap_servers=self._bootstrap,
                    acks="all",
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                    **self._security,
                )
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer


def forms(key: bytes | None, value: bytes | None, headers: Headers) -> Iterator[Letter]:
    """The letter in the forms to try in turn, each smaller than the one before."""
    kept = _bounded(headers)
    key = None if key is None else key[:MAX_KEY_BYTES]
    if value is None:
        # The client takes no record with neither: an empty value stands for none.
        yield Letter(key, b"" if key is None else None, kept)
        return
    for size in SIZES_BYTES:
        if len(value) <= size:
            yield Letter(key, value, kept)
        else:
            yield Letter(key, value[:size], (*kept, (TRUNCATED_HEADER, b"%d" % len(value))))


def _bounded(headers: Headers) -> Headers:
    """The last of the headers, among them those that describe the letter, up to the bound in all."""
    kept: list[tuple[str, bytes]] = []
    left = MAX_HEADERS_BYTES
    for name, value in reversed(headers):
        left -= len(name.encode(errors="replace")) + len(value)
        if left < 0:
            break
        kept.insert(0, (name, value))
    return tuple(kept)
