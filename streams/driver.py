"""The whole path of a record without a broker: bytes in, commits out.

Records go through the real agents into any :class:`~tessera.store.base.ShardStore`, with the topics,
partitions and offsets they are given. What Kafka does is played by the driver: it keeps each partition's
log, delivers from where the owner's position is, and assigns again when the worker asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, NoReturn

from faust.types import TP, ConsumerMessage

from streams.app import build_app
from streams.ownership import CheckLogs, MakeWriter, Ownership
from streams.upkeep import Upkeep
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.parts import Headers
from tessera.events.topics import CHANGE_TOPICS
from tessera.generations.bootstrap import bootstrap
from tessera.kafka.probe import LogState
from tessera.limits import Limits
from tessera.shards.writer import ShardWriter
from tessera.store.base import Head, ShardId, ShardStore

DEADLINE_S = 30.0


class Driver:
    """Use as ``async with Driver(store) as driver: await driver.feed(records)``.

    ``produced`` holds the dead letters handed to the broker: (topic, key, value, headers).
    """

    def __init__(
        self,
        store: ShardStore,
        *,
        catalog: SourceCatalog | None = None,
        limits: Limits | None = None,
        partitions: int = 4,
        make_writer: MakeWriter | None = None,
        check_logs: CheckLogs | None = None,
    ) -> None:
        self.store = store
        self.partitions = partitions
        self.limits = limits or Limits(batch_linger_s=0.0)
        self.produced: list[tuple[str, bytes | None, bytes | None, Headers]] = []
        self.logs: dict[ShardId, list[Record]] = {
            ShardId(topic, partition): [] for topic in CHANGE_TOPICS for partition in range(partitions)
        }
        self._catalog = catalog or SourceCatalog()
        self._make_writer = make_writer or self._shard_writer
        self._check_logs = check_logs or self._logs_continue
        self._agents: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Driver:
        self.app = build_app(
            "driver.invalid:9092",
            "driver",
            embedded=True,
            limits=self.limits,
            prepare=self._prepare,
            make_writer=self._make_writer,
            check_logs=self._check_logs,
            fatal=self._fatal,
        )
        self.app.consumer = self._membership = _Membership(self)
        self.app.flow_control.resume()
        self._streams = {}
        for agent in self.app.agents.values():
            stream = agent.channel.stream()
            self._streams[agent.channel.get_topic_name()] = stream
            self._agents.append(asyncio.ensure_future(agent.fun(stream)))
        self._upkeep = Upkeep(self.ownership, self.store, self._check_logs, self._produce, lambda shard: None)
        await self.rebalance()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._agents:
            task.cancel()
        for task in self._agents:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def ownership(self) -> Ownership:
        """The shards as the agents see them."""
        return self.app.ownership

    async def feed(self, records: Iterable[Record]) -> None:
        """Append records, in order, to their partitions' logs; return when all that is there was handled."""
        for record in records:
            self.logs[ShardId(record.topic, record.partition)].append(record)
            self.deliver(record)
        await self.settle()

    async def settle(self) -> None:
        """Wait until every delivered record was handled; raises what ended the worker, if anything did."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DEADLINE_S
        while self._membership.busy:
            if self._failure is not None:
                raise self._failure
            if loop.time() > deadline:
                raise TimeoutError(f"records were not handled within {DEADLINE_S:.0f} s")
            await asyncio.sleep(0)
        if self._failure is not None:
            raise self._failure

    async def upkeep(self) -> None:
        """One round of upkeep (heads checked, merges, dead letters produced) and all that follows from it."""
        await self._upkeep.round()
        await self.settle()

    async def rebalance(self) -> None:
        """Assign every partition anew, and read on from the applied offsets."""
        app = self.app
        app.rebalancing = True
        app.rebalancing_count += 1
        app.consumer_generation_id += 1
        app.flow_control.clear()
        await app.on_rebalance_complete.send()
        app.rebalancing = False
        for shard in self.logs:
            self.seek(shard, self.ownership.position(shard) or 0)

    def seek(self, shard: ShardId, offset: int) -> None:
        """Deliver the shard's log from ``offset`` on."""
        for record in self.logs[shard]:
            if record.offset >= offset:
                self.deliver(record)

    def deliver(self, record: Record, generation: int | None = None) -> None:
        """Hand one record to its agent, as fetched in this generation of the group (default: the current)."""
        message = ConsumerMessage(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            0,
            list(record.headers),
            record.key,
            record.value,
            None,
            tp=TP(record.topic, record.partition),
            generation_id=self.app.consumer_generation_id if generation is None else generation,
        )
        message.incref()
        self._membership.pending.add(message)
        event = self.app.create_event(record.key, record.value, [], message)
        self._streams[record.topic].channel.queue.put_nowait(event)

    async def _prepare(self) -> None:
        await bootstrap(self.store, dict.fromkeys(CHANGE_TOPICS, self.partitions))

    def _shard_writer(self, shard: ShardId) -> ShardWriter:
        return ShardWriter(
            self.store, shard, partitions=self.partitions, catalog=self._catalog, limits=self.limits
        )

    async def _logs_continue(self, heads: Mapping[ShardId, Head]) -> Mapping[ShardId, LogState]:
        return {shard: LogState("continues", 0, head.applied + 1, None, "") for shard, head in heads.items()}

    async def _produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        self.produced.append((topic, key, value, headers))

    def _fatal(self, error: BaseException) -> NoReturn:
        self._failure = error
        raise asyncio.CancelledError


class _Membership:
    """Stands where the app's consumer does."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._rejoining: asyncio.Task[None] | None = None
        self.pending: set[Any] = set()

    @property
    def busy(self) -> bool:
        return bool(self.pending) or not (self._rejoining is None or self._rejoining.done())

    def assignment(self) -> set[TP]:
        return {TP(*shard) for shard in self._driver.logs}

    def track_message(self, message: Any) -> None:
        self.pending.add(message)

    def ack(self, message: Any) -> bool:
        message.acked = True
        self.pending.discard(message)
        return True

    async def request_rejoin(self) -> None:
        self._rejoining = asyncio.ensure_future(self._rejoin())

    async def seek_shard(self, shard: ShardId, offset: int) -> None:
        self._driver.seek(shard, offset)

    async def _rejoin(self) -> None:
        # As in Faust, what is in hand is finished before the partitions are assigned again.
        self._driver.app.rebalancing = True
        for stream in self._driver._streams.values():
            while not stream.channel.queue.empty():
                self.pending.discard(stream.channel.queue.get_nowait().message)
        while self.pending:  # noqa: ASYNC110 - a few passes of the loop at most
            await asyncio.sleep(0)
        await self._driver.rebalance()
