"""Faust's Kafka transport, with the store's applied offset in the place of Kafka's committed one.

Faust seeks once after each assignment, in :meth:`Consumer.seek_to_committed`. Everything here hangs on that
one call: a seek made anywhere else is undone by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage, Message

from streams.batches import value_bytes
from tessera.kafka.parsing import read_all_records
from tessera.store.base import ShardId

logger = logging.getLogger(__name__)

POLL_TIMEOUT_S = 1.0

LARGE_BYTES = 16 * 1024
BUFFER_BYTES = 32 * 1024 * 1024
ROOM_STEP_S = 0.005
"""A large record waits until its topic's buffer holds less than the bound: two batches' worth. Smaller ones
are bounded by their number, 1,024 of them to 16 MiB; so a topic's buffer stays below 50 MiB, where 1,024
records of 900 KB would be 1 GB. Only large ones look, since to look is to add up the whole buffer."""

HINT_TIMEOUT_S = 3.0
"""A commit to a broker that is away would otherwise hold up a rebalance or the end of the process."""


class ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's thread around the client, with the app's own bound on how long a fetch may wait."""

    logger = logging.getLogger("faust.consumer")

    async def on_thread_stop(self) -> None:
        """Leave the group and disconnect."""
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            # The client cancels its fetches when it closes; one that waits to repeat lets that through.
            logger.info("a fetch was under way when the client closed")

    def _create_worker_consumer(self, transport: Any) -> Any:
        read_all_records()
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes 1.5 s, and the embedded broker looks for new records only at half of it.
        consumer._fetch_max_wait_ms = self.app.fetch_wait_ms
        return consumer


class Consumer(driver.Consumer):  # type: ignore[misc]
    """Reads from the applied offset on, commits it to Kafka as a hint, and drains fetched records fast."""

    logger = logging.getLogger("faust.consumer")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hinted: dict[TP, int] = {}

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek every owned partition to the record after its applied one; return those positions."""
        ownership = self.app.ownership
        positions: dict[TP, int] = {}
        for tp in self.assignment():
            position = ownership.position(ShardId(tp.topic, tp.partition))
            if position is not None:
                positions[tp] = position
        await self.seek_wait(positions)
        return positions

    async def seek_shard(self, shard: ShardId, offset: int) -> None:
        """Read one assigned partition from ``offset`` on."""
        await self.seek_wait({TP(*shard): offset})

    async def request_rejoin(self) -> None:
        """Take the standard path to a new assignment, as if the broker had asked for it."""
        await self._thread.call_thread(self._thread._ensure_consumer()._coordinator.request_rejoin)

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit the applied offsets that moved since, as a hint for dashboards that show Kafka's lag."""
        assigned = self.assignment()
        hints: dict[TP, int] = {}
        for owned in self.app.ownership.owned:
            tp, offset = TP(*owned.shard), owned.writer.head.applied + 1
            if tp in assigned and offset > 0 and self._hinted.get(tp) != offset:
                hints[tp] = offset
        if hints:
            await self._thread.call_thread(self._hint, hints)
        return True

    async def _hint(self, hints: Mapping[TP, int]) -> None:
        offsets = {TopicPartition(*tp): OffsetAndMetadata(offset, "") for tp, offset in hints.items()}
        try:
            await asyncio.wait_for(self._thread._ensure_consumer().commit(offsets), HINT_TIMEOUT_S)
        except (KafkaError, TimeoutError) as error:
            logger.info("the broker did not take the offsets to show as committed: %r", error)
        else:
            self._hinted.update(hints)

    def ack(self, message: Message) -> bool:
        """Note that a message is done with. What was applied is in the store, so no offset is kept here."""
        if message.acked:
            return False
        message.acked = True
        self._unacked_messages.discard(message)
        waiting = self._waiting_for_ack
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        return True

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Nothing: Faust's check for stalled streams counts acknowledged offsets, which stand still here."""

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self.should_stop or fetcher.should_stop):
                await self._drain_once()
        except (*self.consumer_stopped_errors, asyncio.CancelledError):
            if not self.transport.app.should_stop:
                raise

    async def _drain_once(self) -> None:
        # Faust's own drain makes two tasks for every message, to stop waiting for a full queue when the flow
        # is suspended. Here only a message that meets a full queue pays for that.
        records, _ = await self._wait_next_records(POLL_TIMEOUT_S)
        await asyncio.sleep(0)
        if not records or self.should_stop:
            return
        generation = self.app.consumer_generation_id
        for tp, record in self.scheduler.iterate(records):
            if len(record.value or b"") >= LARGE_BYTES:
                await self._wait_for_room(tp)
            if not self.flow_active or self.app.consumer_generation_id != generation:
                # The rest was fetched and will not be delivered: it must be fetched again.
                await self._seek_again()
                return
            await self._deliver(self._to_message(tp, record))

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        message = super()._to_message(tp, record)
        # Faust divides by 1000, and a float of seconds does not give every millisecond back: with it, the
        # digest by which a record is known again would be another one.
        message.timestamp = record.timestamp
        return message

    async def _deliver(self, message: ConsumerMessage) -> None:
        channels = self.app.topics._tp_index.get(message.tp, ())
        if any(channel.queue.full() for channel in channels):
            await self.wait_first(self.callback(message), self.suspend_flow.wait())
        else:
            await self.callback(message)

    async def _wait_for_room(self, tp: TP) -> None:
        """Wait while the buffer that the partition feeds is full of bytes and the flow is not suspended."""
        while self.flow_active and not self.should_stop:
            queues = [channel.queue for channel in self.app.topics._tp_index.get(tp, ())]
            if all(sum(map(value_bytes, queue._queue)) < BUFFER_BYTES for queue in queues):
                return
            await asyncio.sleep(ROOM_STEP_S)

    async def _seek_again(self) -> None:
        try:
            await self.perform_seek()
        except (KafkaError, TimeoutError) as error:
            logger.info("could not seek while the group rebalances: %r", error)


class Transport(driver.Transport):  # type: ignore[misc]
    """The aiokafka transport with this consumer."""

    Consumer = Consumer
