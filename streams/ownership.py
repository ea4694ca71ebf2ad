"""The shards this worker owns: claimed after each assignment, written by one writer each, refused where
their log is not the one that was applied.

The order after an assignment is fixed: claim the fence, compare the log with what was applied, then seek
(:meth:`Ownership.position`) to the record after the applied one.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol, TypeVar

from streams.tally import Tally
from tessera import metrics
from tessera.errors import FencedError, SequenceError, TesseraError
from tessera.events.change import Record
from tessera.failpoints import failpoint
from tessera.kafka.probe import LogState
from tessera.logs import on
from tessera.shards.writer import BatchReport, Produce, SideWork
from tessera.store.base import Head, ShardId

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_FIRST_S = 0.1
RETRY_LAST_S = 5.0
RETRY_STEP_S = 0.05
"""Waits between attempts double from the first to the last, so that a server that is back is used within
five seconds and one that is gone is not hammered."""


_RACES = (FencedError, SequenceError)
"""Two workers can claim a shard at once while the group settles; the later assignment decides."""


class Writer(Protocol):
    """What the stream layer needs of :class:`tessera.shards.writer.ShardWriter`."""

    @property
    def head(self) -> Head:
        """Where the shard stands; once open."""
        ...

    async def open(self) -> Head:
        """Claim the shard."""
        ...

    async def write(self, records: Sequence[Record]) -> BatchReport:
        """Apply records in one commit."""
        ...

    async def tick(self) -> None:
        """Check the head and merge where due; may run while a batch is written."""
        ...

    async def backfill(self, lag: int, budget_s: float) -> bool:
        """Fill generations for about ``budget_s``; True while there is more to do at once."""
        ...

    def take_side_work(self) -> SideWork:
        """What was done beside batches since this was last called."""
        ...

    async def deliver(self, produce: Produce) -> int:
        """Hand the outbox's dead letters to ``produce``; return how many."""
        ...


class Group(Protocol):
    """This worker's membership in the consumer group."""

    @property
    def stopping(self) -> bool:
        """Whether the worker is about to end."""
        ...

    @property
    def rebalancing(self) -> bool:
        """Whether partitions are being revoked or assigned."""
        ...

    @property
    def term(self) -> int:
        """Rises with every rebalance."""
        ...

    async def rejoin(self) -> None:
        """Ask for a new assignment: every owned shard is claimed, compared and read again."""
        ...

    async def seek(self, shard: ShardId, offset: int) -> None:
        """Read the shard's log from ``offset`` on."""
        ...


Fatal = Callable[[BaseException], NoReturn]
Prepare = Callable[[], Awaitable[None]]
MakeWriter = Callable[[ShardId], Writer]
CheckLogs = Callable[[Mapping[ShardId, Head]], Awaitable[Mapping[ShardId, LogState]]]


class Admission(enum.Enum):
    """What to do with a record, by its offset alone."""

    APPLY = "apply"
    DROP = "drop"
    REREAD = "reread"
    REJOIN = "rejoin"


@dataclass(slots=True, eq=False)
class OwnedShard:
    """One assigned shard, from one assignment to the next.

    ``refusal`` is set where the log is another than the applied one; nothing is written then. ``halted`` is
    set by a refused batch: what follows it in the queue belongs to the past.
    """

    shard: ShardId
    writer: Writer
    next_offset: int
    refusal: LogState | None = None
    halted: bool = False
    tally: Tally = field(default_factory=Tally)
    _misplaced: int | None = None

    def begin_tally(self) -> Tally:
        """What was done since the last time, and count anew."""
        done, self.tally = self.tally, Tally()
        return done

    def admit(self, offset: int) -> Admission:
        """Whether ``offset`` is the one that must come next.

        Another one is either a fault of the way here or a hole in the log (a transaction's marker, say). So
        the log is read again from where it was left: what comes a second time in the same place is really
        there. One before that place means that the log itself has changed.
        """
        if offset == self.next_offset:
            self._misplaced = None
            self.next_offset += 1
            return Admission.APPLY
        if self._misplaced is None or offset < self._misplaced:
            self._misplaced = offset
            return Admission.REREAD
        if offset != self._misplaced:
            return Admission.DROP
        self._misplaced = None
        if offset < self.next_offset:
            return Admission.REJOIN
        self.next_offset = offset + 1
        return Admission.APPLY


class Ownership:
    """Claims, holds and gives up shards."""

    def __init__(
        self,
        group: Group,
        prepare: Prepare,
        make_writer: MakeWriter,
        check_logs: CheckLogs,
        fatal: Fatal,
    ) -> None:
        self.group = group
        self._prepare = prepare
        self.fatal = fatal
        self._make_writer = make_writer
        self._check_logs = check_logs
        self._owned: dict[ShardId, OwnedShard] = {}

    def __getitem__(self, shard: ShardId) -> OwnedShard | None:
        return self._owned.get(shard)

    @property
    def owned(self) -> tuple[OwnedShard, ...]:
        """All shards of the current assignment, refused ones included."""
        return tuple(self._owned.values())

    def current(self, owned: OwnedShard) -> bool:
        """Whether this worker may still write the shard as far as it knows."""
        group = self.group
        return not (group.stopping or group.rebalancing) and self._owned.get(owned.shard) is owned

    async def take(self, shards: Collection[ShardId]) -> None:
        """Replace all that is owned by ``shards``: claim each, compare each log.

        Waits for servers as long as it takes, and gives up when another rebalance begins.
        """
        term = self.group.term
        self._forget()

        def wanted() -> bool:
            return not self.group.stopping and self.group.term == term

        try:
            # Each time: a store that lost its data has lost the first generation and release with it.
            await self.persist("prepare", None, wanted, self._prepare)
            writers = {shard: self._make_writer(shard) for shard in sorted(shards)}
            heads: dict[ShardId, Head] = {}
            for shard, writer in writers.items():
                head = await self.persist("claim", shard, wanted, writer.open, _RACES)
                if head is None:
                    return
                failpoint("shard.claimed")
                heads[shard] = head
            states = await self.persist("check_log", None, wanted, lambda: self._check_logs(heads))
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must see the process end
            self.fatal(error)
        if states is None:
            return
        self._owned = {
            shard: _judged(shard, writer, heads[shard], states[shard]) for shard, writer in writers.items()
        }
        self._show()

    def position(self, shard: ShardId) -> int | None:
        """The offset to read next, or None where the shard is not owned."""
        owned = self._owned.get(shard)
        return None if owned is None else owned.next_offset

    async def halt(self, owned: OwnedShard, why: object) -> None:
        """Write no more to the shard and ask for a new assignment, once per assignment."""
        if owned.halted or not self.current(owned):
            return
        owned.halted = True
        metrics.REJOINS.inc()
        logger.warning("%s: %s; asking for a new assignment", owned.shard, why, extra=on(owned.shard))
        await self.group.rejoin()

    async def persist(
        self,
        operation: str,
        shard: ShardId | None,
        wanted: Callable[[], bool],
        call: Callable[[], Awaitable[T]],
        repeat: tuple[type[TesseraError], ...] = (),
    ) -> T | None:
        """``call()``'s result; repeated while servers are unavailable and it is ``wanted``, else None.

        ``repeat`` names errors that are repeated like those that say they are retriable.
        """
        wait_s = RETRY_FIRST_S
        while wanted():
            try:
                return await call()
            except TesseraError as error:
                if not error.retriable and not isinstance(error, repeat):
                    raise
                metrics.RETRIES.labels(operation).inc()
                place = f"{shard}: " if shard else ""
                logger.warning(
                    "%s%s waits: %s", place, operation, error, extra=on(shard, operation=operation)
                )
            for _ in range(round(wait_s / RETRY_STEP_S)):
                if wanted():
                    await asyncio.sleep(RETRY_STEP_S)
            wait_s = min(2 * wait_s, RETRY_LAST_S)
        return None

    def _forget(self) -> None:
        for owned in self._owned.values():
            for gauge in (metrics.APPLIED_OFFSET, metrics.LAG, metrics.SHARD_REFUSED):
                gauge.remove(*map(str, owned.shard))
        self._owned = {}

    def _show(self) -> None:
        metrics.OWNED.set(len(self._owned))
        metrics.REFUSED.set(sum(owned.refusal is not None for owned in self._owned.values()))
        for owned in self._owned.values():
            metrics.SHARD_REFUSED.labels(*owned.shard).set(owned.refusal is not None)
            metrics.APPLIED_OFFSET.labels(*owned.shard).set(owned.writer.head.applied)


def _judged(shard: ShardId, writer: Writer, head: Head, state: LogState) -> OwnedShard:
    following = head.applied + 1
    if state.verdict == "foreign":
        logger.error(
            "%s: refused: the log is not the one that was applied up to offset %d (%s). Nothing of it is "
            "indexed. If it is meant to go on from this log, run: tessera shard adopt-log %s",
            shard,
            head.applied,
            state.explanation,
            shard,
            extra=on(shard, offset=head.applied),
        )
        return OwnedShard(shard, writer, next_offset=state.end, refusal=state)
    if state.verdict == "gap":
        metrics.LOG_GAPS.labels(*shard).inc()
        logger.error(
            "%s: the log begins at offset %d; the records from %d to %d are gone and are not in the index",
            shard,
            state.start,
            following,
            state.start - 1,
            extra=on(shard, offset=state.start),
        )
    return OwnedShard(shard, writer, next_offset=max(following, state.start))
