"""Reports of shards on ``tessera.metrics``, for whoever wants to react to what happens in them.

They are hints, sent when they are due and never again: nothing waits for them, and a broker that does not
take them costs a worker nothing but a counter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping

from aiokafka import AIOKafkaProducer

from streams.ownership import OwnedShard, Ownership
from streams.tally import Tally
from tessera import metrics
from tessera.events.reports import SCHEMA, GenerationReport, ParseFailures, Reason, ShardReport, encode_report
from tessera.events.topics import METRICS
from tessera.kafka.connection import NO_SECURITY, Security
from tessera.store.base import Head, ShardId, ShardStore

logger = logging.getLogger(__name__)

ROUND_S = 0.5
"""How soon a failure is reported."""

SEND_S = 5.0
"""A report that the broker has not taken by then is given up."""

Highwater = Callable[[ShardId], int | None]
Send = Callable[[bytes, bytes], Awaitable[None]]


class Reports:
    """Makes and sends the reports of all owned shards, every ``interval_s`` seconds and after failures."""

    def __init__(
        self,
        ownership: Ownership,
        store: ShardStore,
        send: Send,
        highwater: Highwater,
        interval_s: float,
    ) -> None:
        self._ownership = ownership
        self._store = store
        self._send = send
        self._highwater = highwater
        self._interval_s = interval_s
        self._worker = f"{socket.gethostname()}:{os.getpid()}"
        self._told = ""

    async def run(self) -> None:
        """Report for ever, until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(ROUND_S)

    async def round(self) -> None:
        """Report what is due now, all of it at once: while a broker is away each waits its time."""
        due = [(owned, reason) for owned in self._ownership.owned if (reason := self._due(owned)) is not None]
        await asyncio.gather(*(self._report(owned, reason) for owned, reason in due))

    def _due(self, owned: OwnedShard) -> Reason | None:
        if not self._ownership.current(owned):
            return None
        if owned.tally.failed:
            return "failure"
        return "interval" if time.monotonic() - owned.tally.began >= self._interval_s else None

    async def _report(self, owned: OwnedShard, reason: Reason) -> None:
        done = owned.begin_tally()
        try:
            async with asyncio.timeout(SEND_S):
                counters = await self._store.counters(owned.shard)
                report = self._made(owned, done, reason, counters)
                await self._send(str(owned.shard).encode(), encode_report(report))
        except Exception as error:  # noqa: BLE001 - whatever it is, indexing goes on without a report
            metrics.REPORTS.labels("failed").inc()
            if repr(error) != self._told:
                self._told = repr(error)
                logger.warning("reports to %s are lost: %r", METRICS, error)
        else:
            metrics.REPORTS.labels("sent").inc()

    def _made(
        self, owned: OwnedShard, done: Tally, reason: Reason, counters: Mapping[str, int]
    ) -> ShardReport:
        head, end = owned.writer.head, self._highwater(owned.shard)
        return ShardReport(
            schema=SCHEMA,
            reason=reason,
            topic=owned.shard.topic,
            partition=owned.shard.partition,
            worker=self._worker,
            at_ms=round(time.time() * 1000),
            since_ms=done.since_ms,
            epoch=head.epoch,
            applied_offset=head.applied,
            lag=None if end is None else max(0, end - head.applied - 1),
            refused=owned.refusal is not None,
            batches=done.batches,
            records=done.records,
            duplicates=done.duplicates,
            stale=done.stale,
            chunks_added=done.chunks_added,
            batch_seconds=done.batch_s,
            commit_seconds=done.commit_s,
            freshness_seconds=done.freshness_s,
            dead_letters=dict(done.dead_letters),
            parse_failures=[ParseFailures(*fault, count) for fault, count in done.parse_faults.items()],
            generations=_generations(head, counters),
        )


def _generations(head: Head, counters: Mapping[str, int]) -> list[GenerationReport]:
    totals: dict[tuple[str, str], int] = {}
    for name, amount in counters.items():
        what, _, rest = name.partition(":")
        generation, colon, _ = rest.partition(":")
        if colon:
            totals[what, generation] = totals.get((what, generation), 0) + amount
    return [
        GenerationReport(
            name,
            standing.complete,
            standing.documents,
            totals.get(("chunks", name), 0),
            totals.get(("uncovered", name), 0),
            totals.get(("uncovered_lines", name), 0),
            totals.get(("uncovered_bytes", name), 0),
        )
        for name, standing in sorted(head.standings.items())
    ]


class ReportProducer:
    """Produces to :data:`~tessera.events.topics.METRICS` without waiting for replicas."""

    def __init__(self, bootstrap: str, security: Security = NO_SECURITY) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._producer: AIOKafkaProducer | None = None

    async def __call__(self, key: bytes, value: bytes) -> None:
        """Return when the broker's leader has it; an error of Kafka where it does not take it."""
        if self._producer is None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks=1,
                request_timeout_ms=round(SEND_S * 1000),
                **self._security,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            self._producer = producer
        await self._producer.send_and_wait(METRICS, value, key)

    async def close(self) -> None:
        """Stop the producer, if it was started."""
        if self._producer is not None:
            await self._producer.stop()
