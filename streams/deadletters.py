"""Where dead letters leave for the broker: a producer that is started when the first one is there."""

from __future__ import annotations

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tessera.errors import UnavailableError
from tessera.events.parts import Headers

REQUEST_TIMEOUT_MS = 10_000
MAX_REQUEST_BYTES = 8 * 2**20
"""A dead letter carries the bytes of one record, which the broker accepted once before, and its headers."""


class DeadLetterProducer:
    """Produces with ``acks=all``; calls raise :class:`~tessera.errors.UnavailableError` to be repeated."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: AIOKafkaProducer | None = None

    async def __call__(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Return when the broker has the record."""
        try:
            producer = await self._started()
            await producer.send_and_wait(topic, value, key, headers=list(headers))
        except KafkaError as error:
            raise UnavailableError(
                f"{self._bootstrap}: did not take a dead letter into {topic} ({error!r}); it is sent again"
            ) from error

    async def close(self) -> None:
        """Stop the producer, if it was started."""
        if self._producer is not None:
            await self._producer.stop()

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                max_request_size=MAX_REQUEST_BYTES,
            )
            try:
                await producer.start()
            except KafkaError:
                await producer.stop()
                raise
            self._producer = producer
        return self._producer
