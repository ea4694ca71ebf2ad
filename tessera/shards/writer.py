"""The one writer of a shard. The order of a commit, which crash tests walk through step by step:

1. **decode**: each record becomes a change, a part, or poison; nothing here can fail for what it holds;
2. **load**: unfinished parts, document records, ends of logs are read from the store;
3. **build**: changes are applied to drafts, texts laid out, chunks cut, one segment built per generation;
4. **stage**: new blobs are written under their own ids, with an expiry;
5. **commit**: one atomic step checks fence, sequence, live generations and staged blobs, then keeps the
   blobs and writes documents, manifests, tombstones, dead letters, counters and the applied offset;
6. **acknowledge** (the stream layer): Kafka's offset is a hint, the applied offset is the truth;
7. **deliver**: dead letters in the outbox go to their topic, then leave the outbox.

A crash between any two steps loses nothing: before 5 the records are read again, and staged blobs expire;
after it they are dropped by their offsets. Every step names a failpoint (:mod:`tessera.failpoints`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from tessera.documents.draft import Stamp
from tessera.errors import EventError, SequenceError, StagingError, TesseraError, UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.digest import record_digest
from tessera.events.topics import DEADLETTER_TOPIC
from tessera.failpoints import failpoint
from tessera.generations.bootstrap import read_registry
from tessera.limits import Limits
from tessera.shards.building import (
    CutFigures,
    GenerationPlan,
    LiveGeneration,
    ParseFault,
    Plan,
    apply_changes,
    build_plan,
    plan_parts,
)
from tessera.shards.caretaker import Caretaker
from tessera.shards.deadletters import outgoing
from tessera.shards.generations import load_generations
from tessera.shards.loading import Assembled, Loaded, assemble, load_assemblies, load_drafts
from tessera.shards.merging import Merger
from tessera.shards.records import Decoder, PartArrival, Poison
from tessera.store.base import Commit, GenerationDelta, Head, ShardId, ShardStore, deadletter_blob

Produce = Callable[[str, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]], Awaitable[None]]
"""Produces (topic, key, value, headers) and returns once the broker has it."""

MERGES_A_ROUND = 8
"""Bounds how long one generation's merges keep the others and the heads' check waiting."""

STAGING_ATTEMPTS = 3
"""A staged blob lives for minutes: three losses in a row mean a clock or an eviction policy at fault."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch did. ``freshness_s``: seconds from each record's timestamp to the commit.

    ``commit_s`` is what staging and committing took of ``seconds``. ``cut`` has figures by generation.
    """

    records: int = 0
    duplicates: int = 0
    changes: int = 0
    stale: int = 0
    deadletters: int = 0
    chunks_added: int = 0
    seconds: float = 0.0
    freshness_s: tuple[float, ...] = ()
    reasons: tuple[str, ...] = ()
    commit_s: float = 0.0
    cut: Mapping[str, CutFigures] = field(default_factory=dict)
    parse_faults: Mapping[ParseFault, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SideWork:
    """What was done beside batches: merges, and by generation the documents backfilled and what was cut."""

    merges: int = 0
    backfilled: Mapping[str, int] = field(default_factory=dict)
    cut: Mapping[str, CutFigures] = field(default_factory=dict)


class PureWorkError(Exception):
    """Decoding, cutting or analyzing failed for a reason nobody foresaw; never an error of a server."""

    @property
    def cause_name(self) -> str:
        """The type of the error behind it."""
        return type(self.__cause__).__name__


@contextmanager
def pure_work() -> Iterator[None]:
    """Tell unforeseen errors of pure work, which belong to a record, from all others."""
    try:
        yield
    except (TesseraError, MemoryError):
        raise
    except Exception as error:
        raise PureWorkError(type(error).__name__) from error


class ShardWriter:
    """Applies batches of records to one shard. Not safe for two tasks at once, but for :meth:`tick`."""

    def __init__(
        self,
        store: ShardStore,
        shard: ShardId,
        *,
        partitions: int,
        catalog: SourceCatalog,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._shard = shard
        self.catalog = catalog
        self.limits = limits or Limits()
        self._decoder = Decoder(shard, partitions, catalog, self.limits)
        self._clock = clock
        self._lock = asyncio.Lock()
        self._head: Head | None = None
        self.generations: list[LiveGeneration] = []
        self._next_tombstone: dict[str, int] = {}
        self._in_doubt: Commit | None = None
        self.written_at = 0.0
        self._commit_s = 0.0
        self._merges = 0
        self.backfilled: Counter[str] = Counter()
        self.cut_aside: dict[str, CutFigures] = {}
        self._caretaker = Caretaker(store, self)
        self._merger = Merger(store, shard)

    @property
    def head(self) -> Head:
        """Where the writer believes the shard stands; only after :meth:`open`."""
        if self._head is None:
            raise RuntimeError("the writer is not open")
        return self._head

    async def open(self) -> Head:
        """Take the shard's fence and read what the writer needs to know of it."""
        async with self._lock:
            self._in_doubt = None
            registry = await read_registry(self._store)
            served = [registry.release.generation]
            self._head = await self._store.claim(self._shard, served, int(self._clock() * 1_000_000))
            self._caretaker.begin(registry)
            await self._load_generations()
            return self._head

    async def _load_generations(self) -> None:
        """Read what the writer needs to know of the head's live generations."""
        generations = await load_generations(self._store, self.head.live)
        following = {}
        for name in self.head.live:
            manifest = await self._store.manifest(self._shard, name)
            following[name] = manifest.next_tombstone if manifest else 0
        self.generations, self._next_tombstone = generations, following

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[Head]:
        """The head, with no other commit of this writer until the block ends."""
        async with self._lock:
            await self._catch_up()
            yield self.head

    async def _catch_up(self) -> None:
        """Settle what is in doubt; know the live generations as they are then. To be called under the lock.

        A commit that changes them may have been the one in doubt, or what follows it may have failed.
        """
        await self._settle_doubt()
        await self.know_generations()

    async def know_generations(self) -> None:
        """Read policies of the live generations where those changed; to be called in :meth:`exclusive`."""
        if tuple(generation.name for generation in self.generations) != self.head.live:
            await self._load_generations()

    def next_tombstone(self, generation: str) -> int:
        """The number that the generation's next tombstone will get."""
        return self._next_tombstone[generation]

    def now_ms(self) -> int:
        """The writer's time in Unix milliseconds."""
        return int(self._clock() * 1000)

    async def write(self, records: Sequence[Record]) -> BatchReport:
        """Apply records of this partition, offsets rising, in one commit; applied ones are dropped.

        Raises FencedError or SequenceError where the partition must be taken anew, UnavailableError where
        the same call may be repeated.
        """
        started = self._clock()
        async with self._lock:
            await self._catch_up()
            fresh = [record for record in records if record.offset > self.head.applied]
            duplicates = len(records) - len(fresh)
            if not fresh:
                await self._commit_counters(duplicates)
                return BatchReport(len(records), duplicates)
            self._commit_s = 0.0
            plans = await self._apply(fresh, duplicates)
            self.written_at = time.monotonic()
        committed = self._clock()
        return BatchReport(
            records=len(records),
            duplicates=duplicates,
            changes=sum(plan.changes for plan in plans),
            stale=sum(plan.stale for plan in plans),
            deadletters=sum(len(plan.poison) for plan in plans),
            chunks_added=sum(plan.chunks_added for plan in plans),
            seconds=committed - started,
            freshness_s=tuple(max(0.0, committed - record.timestamp_ms / 1000) for record in fresh),
            reasons=tuple(poison.reason for plan in plans for poison in plan.poison),
            commit_s=self._commit_s,
            cut=_merged_figures(plans),
            parse_faults=sum((plan.parse_faults for plan in plans), Counter[ParseFault]()),
        )

    async def _apply(self, records: Sequence[Record], duplicates: int) -> list[Plan]:
        """One commit; where pure work fails for an unknown reason, record by record to find the fault."""
        try:
            plan = await self._plan(records)
        except PureWorkError as fault:
            await self._require_current()
            if len(records) > 1:
                plans = []
                for index, record in enumerate(records):
                    plans += await self._apply([record], duplicates if index == 0 else 0)
                return plans
            plan = await self._plan_faulty(records[0], fault)
        await self._commit(plan, records, duplicates)
        return [plan]

    async def _plan_faulty(self, record: Record, first: PureWorkError) -> Plan:
        """Try the record once more; where it fails alike, the plan makes it a dead letter."""
        try:
            return await self._plan([record])
        except PureWorkError as again:
            if again.cause_name != first.cause_name:
                raise
        message = f"processing this record alone raised {first.cause_name} twice: report it with the record"
        stamp = Stamp(self.head.epoch, record.offset, record.timestamp_ms)
        poison = Poison.of(record, stamp, EventError("processing_failed", message))
        return Plan(poison=[poison], generations={name: GenerationPlan() for name in self.head.live})

    async def _plan(self, records: Sequence[Record]) -> Plan:
        with pure_work():
            decoded = self._decoder.decode(records, self.head.epoch)
        failpoint("batch.decoded")
        keys = list(dict.fromkeys(item.key for item in decoded if isinstance(item, PartArrival)))
        assemblies = await load_assemblies(self._store, self._shard, keys)
        with pure_work():
            assembled = assemble(decoded, assemblies, self._shard, self.catalog, self.limits)
        loaded = await load_drafts(self._store, self.head, assembled.arrivals, self.catalog, self.limits)
        failpoint("batch.loaded")
        plan = Plan(poison=assembled.poison)
        await asyncio.to_thread(self._build, plan, assembled, loaded, records)
        failpoint("batch.built")
        return plan

    def _build(self, plan: Plan, assembled: Assembled, loaded: Loaded, records: Sequence[Record]) -> None:
        # Not earlier than the records: a clock that jumped back must not have deletes forgotten too soon.
        now_ms = max(self.now_ms(), *(record.timestamp_ms for record in records))
        with pure_work():
            apply_changes(assembled.arrivals, loaded, plan)
            build_plan(plan, loaded, self.head, self.generations, records[-1].offset, now_ms)
            plan_parts(plan, assembled)

    async def _commit(self, plan: Plan, records: Sequence[Record], duplicates: int) -> None:
        began = time.perf_counter()
        commit, staged = self._compose(plan, records, duplicates)
        for attempt in range(1, STAGING_ATTEMPTS + 1):
            await self._store.stage(self._shard, staged)
            failpoint("batch.staged")
            try:
                await self.send(commit)
            except StagingError:
                if attempt == STAGING_ATTEMPTS:
                    raise
            else:
                break
        self._commit_s += time.perf_counter() - began
        failpoint("batch.committed")

    def _compose(
        self, plan: Plan, records: Sequence[Record], duplicates: int
    ) -> tuple[Commit, dict[str, bytes]]:
        """The commit of a plan, and the blobs to stage for it."""
        staged = dict(plan.blobs)
        deadletters = {}
        for poison in plan.poison:
            poison_id = poison.deadletter_id()
            deadletters[poison_id] = poison.describe()
            staged[deadletter_blob(poison_id)] = poison.value or b""
        commit = Commit(
            shard=self._shard,
            fence=self.head.fence,
            seq=self.head.seq,
            applied=records[-1].offset,
            after=self.head.applied,
            record_digest=record_digest(records[-1]),
            documents=plan.documents,
            parts=plan.parts,
            generations={name: self._delta(name, of) for name, of in plan.generations.items()},
            keep=tuple(staged),
            expire=tuple(plan.expire),
            unlink=tuple(plan.unlink),
            deadletters=deadletters,
            counters=self._counters(plan, len(records), duplicates),
            standings=plan.standings or None,
        )
        return commit, staged

    def _delta(self, name: str, plan: GenerationPlan) -> GenerationDelta:
        following = self._next_tombstone[name]
        added = () if plan.segment is None else (plan.segment,)
        watermark = following + len(plan.tombstones)
        return GenerationDelta(
            expected_next_tombstone=following,
            add=tuple(replace(segment, watermark=watermark) for segment in added),
            tombstones=plan.tombstones,
        )

    @staticmethod
    def _counters(plan: Plan, records: int, duplicates: int) -> Counter[str]:
        counters = Counter(plan.counters)
        counters.update({"records": records, "duplicates": duplicates, "changes": plan.changes})
        counters.update({"stale": plan.stale, "deadletters": len(plan.poison)})
        return Counter({name: amount for name, amount in counters.items() if amount})

    async def _commit_counters(self, duplicates: int) -> None:
        if duplicates:
            await self.send(
                Commit(self._shard, self.head.fence, self.head.seq, counters={"duplicates": duplicates})
            )

    async def send(self, commit: Commit) -> None:
        """Send a commit; where its answer is lost, remember it so that it is looked for before the next."""
        try:
            self._head = await self._store.commit(commit)
        except UnavailableError:
            self._in_doubt = commit
            raise
        except ValueError:
            # Made from documents that another writer was changing meanwhile, a commit can contradict itself.
            await self._require_current()
            raise
        for name, delta in commit.generations.items():
            self._next_tombstone[name] = delta.expected_next_tombstone + len(delta.tombstones)

    async def _settle_doubt(self) -> None:
        """Find out whether a commit whose answer was lost has been applied."""
        if self._in_doubt is None:
            return
        commit, head = self._in_doubt, await self._store.head(self._shard)
        if (
            head is None
            or head.fence != commit.fence
            or not (head.seq == commit.seq or _is_after(head, commit))
        ):
            raise moved_under_writer(self._shard, commit.seq, head)
        if head.seq == commit.seq + 1:
            for name, delta in commit.generations.items():
                self._next_tombstone[name] = delta.expected_next_tombstone + len(delta.tombstones)
            self._head = head
        self._in_doubt = None

    async def _require_current(self) -> None:
        """Raise SequenceError where the shard is not as this writer left it."""
        head = await self._store.head(self._shard)
        if head is None or (head.fence, head.seq) != (self.head.fence, self.head.seq):
            raise moved_under_writer(self._shard, self.head.seq, head)

    async def tick(self) -> None:
        """Check that the shard is still as its writer left it, and merge segments where that is due.

        Raises as :meth:`write` does. To be called every second or so, idle or busy.
        """
        async with self._lock:
            await self._catch_up()
            await self._require_current()
        await self._caretaker.follow_registry()
        for generation in self.generations:
            for _ in range(MERGES_A_ROUND):
                if not await self._merge(generation.name):
                    break

    async def backfill(self, lag: int, budget_s: float) -> bool:
        """Write documents into generations that do not hold them yet, for about ``budget_s`` seconds.

        ``lag`` (records not applied yet) above a bound makes it wait. True while there is more to do at once.
        """
        return await self._caretaker.backfill(lag, budget_s)

    def take_side_work(self) -> SideWork:
        """What was done beside batches since this was last called."""
        done = SideWork(self._merges, dict(self.backfilled), self.cut_aside)
        self._merges, self.backfilled, self.cut_aside = 0, Counter(), {}
        return done

    async def _merge(self, generation: str) -> bool:
        """Merge outside the lock, since batches must not wait; commit inside it. False where none is due."""
        merged = await self._merger.merge(generation, self.head.fence, self.head.seq)
        if merged is None:
            return False
        async with self._lock:
            await self._store.stage(self._shard, {merged.blob_id: merged.blob} if merged.segment else {})
            failpoint("merge.staged")
            delta = replace(merged.delta, expected_next_tombstone=self._next_tombstone[generation])
            await self.send(
                Commit(
                    self._shard,
                    self.head.fence,
                    self.head.seq,
                    generations={generation: delta},
                    keep=(merged.blob_id,) if merged.segment else (),
                    expire=merged.replaced,
                    counters={"merges": 1},
                )
            )
            self._merges += 1
        failpoint("merge.committed")
        return True

    async def deliver(self, produce: Produce) -> int:
        """Produce the dead letters of the outbox to their topic, oldest first; returns how many."""
        letters = await outgoing(self._store, self._shard)
        for letter in letters:
            await produce(DEADLETTER_TOPIC, letter.key, letter.value, letter.headers)
        failpoint("outbox.produced")
        if letters:
            await self._store.outbox_done(self._shard, [letter.id for letter in letters])
        return len(letters)


def _is_after(head: Head, commit: Commit) -> bool:
    """Whether the head is what this very commit leaves."""
    if head.seq != commit.seq + 1:
        return False
    return commit.applied is None or (head.applied, head.record_digest) == (
        commit.applied,
        commit.record_digest,
    )


def moved_under_writer(shard: ShardId, seq: int, head: Head | None) -> SequenceError:
    """Why a writer whose shard stands elsewhere than it left it must take the partition anew."""
    if head is None:
        return SequenceError(f"shard {shard} is gone from the store: claim it again and read from its log")
    return SequenceError(
        f"shard {shard} stands at sequence {head.seq} under fence {head.fence}, not at {seq} as its writer "
        "left it: claim it again and go on from its applied offset"
    )


def _merged_figures(plans: Sequence[Plan]) -> dict[str, CutFigures]:
    merged: dict[str, CutFigures] = {}
    for plan in plans:
        for name, figures in plan.cut.items():
            merged.setdefault(name, CutFigures()).merge(figures)
    return merged
