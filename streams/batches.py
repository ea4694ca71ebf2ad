"""From a stream's queue to commits: the body of both agents.

Events are drained into micro-batches, grouped by shard, applied, and acknowledged whatever came of them:
Kafka's offset is a hint, the applied offset in the store is the truth. An event that is never acknowledged
would hold the next rebalance for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from faust.types import AppT, EventT, StreamT

from streams.observed import observe_cut
from streams.ownership import Admission, OwnedShard, Ownership
from tessera import metrics, tracing
from tessera.errors import FencedError, SequenceError
from tessera.events.change import Record
from tessera.failpoints import failpoint
from tessera.kafka.reader import record_of
from tessera.limits import Limits
from tessera.logs import on
from tessera.shards.writer import BatchReport
from tessera.store.base import ShardId

logger = logging.getLogger(__name__)

LINGER_STEP_S = 0.005
"""How often an empty queue is looked at while a batch lingers: adds at most this to an event's freshness."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Events taken from a queue; ``ended`` says that the stream is being stopped."""

    events: Sequence[EventT[Any]]
    ended: bool


async def consume(stream: StreamT[Any], app: AppT[Any], ownership: Ownership, limits: Limits) -> None:
    """Drain the stream until it is stopped. No exception but a cancellation leaves this function."""
    queue = stream.channel.queue
    ended = False
    while not ended:
        drained = await drain(queue, limits)
        ended = drained.ended
        for event in drained.events:
            app.consumer.track_message(event.message)
        try:
            await apply(drained.events, app.consumer_generation_id, ownership)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must see the process end
            ownership.fatal(error)
        finally:
            for event in drained.events:
                event.ack()
        failpoint("batch.acked")


async def drain(queue: asyncio.Queue[EventT[Any]], limits: Limits) -> Drained:
    """Wait for one event, then take what comes while the batch lingers, until one of its bounds is met.

    The last event may go beyond the bound in bytes.
    """
    clock = asyncio.get_running_loop().time
    events: list[EventT[Any]] = []
    try:
        events.append(await queue.get())
        size_bytes = value_bytes(events[0])
        deadline = clock() + limits.batch_linger_s
        while len(events) < limits.batch_records and size_bytes < limits.batch_bytes:
            try:
                events.append(queue.get_nowait())
                size_bytes += value_bytes(events[-1])
            except asyncio.QueueEmpty:
                left_s = deadline - clock()
                if left_s <= 0:
                    break
                await asyncio.sleep(min(left_s, LINGER_STEP_S))
    except StopAsyncIteration:
        return Drained(events, ended=True)
    return Drained(events, ended=False)


def value_bytes(event: EventT[Any]) -> int:
    """The size of the value of an event's record."""
    return len(event.message.value or b"")


async def apply(events: Iterable[EventT[Any]], generation: int, ownership: Ownership) -> None:
    """Apply events of this ``generation`` of the consumer group, one commit per shard.

    Events of an older one are dropped: their shards have been claimed and sought anew since.
    """
    batches: dict[ShardId, list[Record]] = {}
    for event in events:
        message = event.message
        if message.generation_id == generation:
            shard = ShardId(message.topic, message.partition)
            batches.setdefault(shard, []).append(record_of(message))
    await asyncio.gather(*(_apply_shard(ownership, shard, records) for shard, records in batches.items()))


async def _apply_shard(ownership: Ownership, shard: ShardId, records: Sequence[Record]) -> None:
    owned = ownership[shard]
    if owned is None or owned.refusal is not None or owned.halted:
        return
    admitted: list[Record] = []
    verdict = Admission.APPLY
    for record in records:
        expected = owned.next_offset
        verdict = owned.admit(record.offset)
        if verdict is Admission.APPLY:
            admitted.append(record)
            if record.offset != expected:
                _report_hole(shard, expected, record.offset)
        elif verdict in (Admission.REREAD, Admission.REJOIN):
            break
    if admitted:
        await _write(ownership, owned, admitted)
    if verdict is Admission.REREAD and ownership.current(owned):
        metrics.REREADS.labels(*shard).inc()
        logger.warning(
            "%s: offset %d came out of turn; reading again",
            shard,
            owned.next_offset,
            extra=on(shard, offset=owned.next_offset),
        )
        await ownership.group.seek(shard, owned.next_offset)
    elif verdict is Admission.REJOIN:
        await ownership.halt(owned, "the log began again before what was read last")


async def _write(ownership: Ownership, owned: OwnedShard, records: Sequence[Record]) -> None:
    failpoint("batch.received")
    try:
        with tracing.indexing(*owned.shard, records):
            report = await ownership.persist(
                "write", owned.shard, lambda: ownership.current(owned), lambda: owned.writer.write(records)
            )
    except (FencedError, SequenceError) as error:
        await ownership.halt(owned, error)
        return
    if report is not None:
        _count(owned, report)
        _tell_deadletters(owned, records, report)


def _tell_deadletters(owned: OwnedShard, records: Sequence[Record], report: BatchReport) -> None:
    """One line per batch: what a record holds is not told, and its key is in the dead letter."""
    if report.reasons:
        logger.warning(
            "%s: %d records up to offset %d became dead letters (%s): see `tessera deadletter list`",
            owned.shard,
            len(report.reasons),
            records[-1].offset,
            ", ".join(sorted(set(report.reasons))),
            extra=on(owned.shard, offset=records[-1].offset, reasons=sorted(set(report.reasons))),
        )


def _report_hole(shard: ShardId, expected: int, offset: int) -> None:
    metrics.LOG_GAPS.labels(*shard).inc()
    logger.error(
        "%s: the log has no records from offset %d to %d; going on",
        shard,
        expected,
        offset - 1,
        extra=on(shard, offset=offset),
    )


def _count(owned: OwnedShard, report: BatchReport) -> None:
    topic = owned.shard.topic
    owned.tally.add(report)
    metrics.RECORDS.labels(topic).inc(report.records - report.duplicates)
    metrics.DUPLICATES.labels(topic).inc(report.duplicates)
    metrics.STALE.labels(topic).inc(report.stale)
    for reason in report.reasons:
        metrics.DEADLETTERS.labels(topic, reason).inc()
    metrics.CHUNKS_ADDED.labels(topic).inc(report.chunks_added)
    metrics.BATCH_SECONDS.labels(topic).observe(report.seconds)
    metrics.BATCH_RECORDS.labels(topic).observe(report.records)
    metrics.COMMIT_SECONDS.labels(topic).observe(report.commit_s)
    for fault, count in report.parse_faults.items():
        metrics.PARSE_FAILURES.labels(*fault).inc(count)
    observe_cut(report.cut)
    metrics.observe_all(metrics.FRESHNESS_SECONDS.labels(topic), report.freshness_s)
    metrics.APPLIED_OFFSET.labels(*owned.shard).set(owned.writer.head.applied)
