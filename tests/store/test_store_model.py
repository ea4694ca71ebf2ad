"""Random histories: a store in Redis answers exactly as the store in memory does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from backends import RedisBackend, redis_backend_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from servers import RedisServer

from tessera.errors import TesseraError
from tessera.store.base import (
    Commit,
    GenerationDelta,
    Head,
    Manifest,
    SegmentMeta,
    ShardId,
    ShardStore,
    Standing,
    Tombstone,
    deadletter_blob,
    segment_blob,
)
from tessera.store.memory import MemoryStore

SHARDS = (ShardId("a", 0), ShardId("a", 1))
LIVE = ("g1", "g2")
NAMES = (*LIVE, "g3")
KEYS = ("s/a", "s/ä", "s/\x00", "t/*", "😀")
LETTERS = ("d1", "d2", "d3")
BLOBS = (*"uvwxyz", deadletter_blob("d1"), segment_blob("g2", "s0"))

shards = st.sampled_from(SHARDS)
keys = st.sampled_from(KEYS)
values = st.binary(max_size=6)
changes = st.dictionaries(keys, st.none() | values, max_size=3)
letters = st.sampled_from(LETTERS)
counter_names = st.sampled_from(
    (*KEYS, *(f"{what}:{name}:s" for what in ("chunks", "uncovered") for name in NAMES))
)
standings = st.builds(
    Standing,
    st.integers(-1, 2**53 - 1),
    st.booleans(),
    st.integers(0, 2**53 - 1),
    st.sampled_from(["0" * 32, "0123456789abcdef" * 2]),
    st.integers(0, 2**53 - 1),
    st.text(max_size=3),
)
contents = {blob: blob.encode() * n for n, blob in enumerate(BLOBS)}

Fault = Callable[[Commit], Commit]


def in_g1(**parts: Any) -> Fault:
    """A fault in the change of the first generation."""

    def apply(commit: Commit) -> Commit:
        delta = commit.generations.get("g1", GenerationDelta(0))
        return replace(commit, generations={**commit.generations, "g1": replace(delta, **parts)})

    return apply


FAULTS: tuple[Fault, ...] = (
    lambda commit: replace(commit, fence=commit.fence + 1),
    lambda commit: replace(commit, fence=commit.fence - 1),
    lambda commit: replace(commit, seq=commit.seq + 1),
    lambda commit: replace(commit, applied=0),
    lambda commit: replace(commit, generations={"g2": GenerationDelta(0)}),
    lambda commit: replace(commit, generations={**commit.generations, "g3": GenerationDelta(0)}),
    lambda commit: replace(commit, keep=("never",)),
    lambda commit: replace(commit, counters={"s/a": 2**53 - 2}),
    lambda commit: replace(commit, unlink=commit.keep),
    in_g1(expected_next_tombstone=1),
    in_g1(drop=("s5",)),
    in_g1(add=(SegmentMeta("s5", 0, 1, 1),)),
    in_g1(trim_tombstones_below=1),
)


@st.composite
def deltas(draw: st.DrawFn, held: Manifest) -> GenerationDelta:
    """A change that the generation can take."""
    dead = draw(st.lists(st.builds(Tombstone, keys, st.integers(0, 2**40)), max_size=3))
    end = held.next_tombstone + len(dead)
    drop = draw(st.sets(st.sampled_from(sorted(held.segments)), max_size=2)) if held.segments else set()
    free = [f"s{n}" for n in range(8) if f"s{n}" not in held.segments]
    names = draw(st.lists(st.sampled_from(free), max_size=2, unique=True)) if free else []
    marks = st.integers(max(0, end - 3), end)
    add = tuple(SegmentMeta(name, draw(marks), draw(st.integers(0, 9)), 2**40) for name in names)
    staying = [meta for meta in held.segments.values() if meta.id not in drop]
    trim = draw(st.none() | st.integers(0, min([end, *(meta.watermark for meta in (*staying, *add))])))
    return GenerationDelta(held.next_tombstone, add, tuple(sorted(drop)), tuple(dead), trim)


@st.composite
def commits(draw: st.DrawFn, head: Head, held: dict[str, Manifest]) -> Commit:
    """A commit that the shard can take, or one with a fault in it."""
    moves = draw(st.booleans())
    named = head.live if moves else {name for name in head.live if draw(st.booleans())}
    moved = draw(st.permutations(BLOBS))
    first, second, third = sorted(draw(st.tuples(*[st.integers(0, 3)] * 3)))
    commit = Commit(
        head.shard,
        head.fence,
        head.seq,
        applied=head.applied + draw(st.integers(1, 3)) if moves else None,
        record_digest=draw(st.text(max_size=2)) if moves else "",
        documents=draw(changes),
        parts=draw(changes),
        generations={name: draw(deltas(held[name])) for name in sorted(named)},
        keep=tuple(moved[:first]),
        expire=tuple(moved[first:second]),
        unlink=tuple(moved[second:third]),
        deadletters=draw(st.dictionaries(letters, values, max_size=2)),
        counters=draw(st.dictionaries(counter_names, st.integers(-3, 3), max_size=2)),
        standings=draw(st.none() | st.fixed_dictionaries(dict.fromkeys(head.live, standings))),
    )
    fault = draw(st.sampled_from([None] * 20 + list(FAULTS)))
    return fault(commit) if fault else commit


class Histories(RuleBasedStateMachine):
    """Each step is taken on both stores; results, errors and all reads must be equal."""

    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = MemoryStore(clock=lambda: 0.0)
        self.backend: RedisBackend = redis_backend_of(self.server.url, (self.server,))

    def teardown(self) -> None:
        self.runner.run(self.backend.close())
        self.runner.close()

    def both(self, step: Callable[[ShardStore], Awaitable[Any]]) -> Any:
        async def outcome(store: ShardStore) -> Any:
            try:
                return await step(store)
            except (TesseraError, ValueError) as error:
                return type(error), str(error)

        expected = self.runner.run(outcome(self.model))
        assert self.runner.run(outcome(self.backend.store)) == expected
        return expected

    @initialize()
    def begin(self) -> None:
        self.both(lambda store: store.claim(SHARDS[0], LIVE))

    @rule(shard=shards)
    def claim(self, shard: ShardId) -> None:
        self.both(lambda store: store.claim(shard, LIVE))

    @rule(shard=shards)
    def adopt_log(self, shard: ShardId) -> None:
        self.both(lambda store: store.adopt_log(shard))

    @rule(shard=shards, blob=st.sampled_from(BLOBS))
    def stage(self, shard: ShardId, blob: str) -> None:
        self.both(lambda store: store.stage(shard, {blob: contents[blob]}))
        self.both(lambda store: store.stage(shard, {blob: b"other"}))

    @rule(shard=shards, data=st.data())
    def commit_staged(self, shard: ShardId, data: st.DataObject) -> None:
        head = self.runner.run(self.model.head(shard))
        if head is None:
            return
        held = {name: self.runner.run(self.model.manifest(shard, name)) for name in NAMES}
        commit = data.draw(commits(head, {name: manifest for name, manifest in held.items() if manifest}))
        staged = {blob: contents[blob] for blob in commit.keep if blob in contents}
        self.both(lambda store: store.stage(shard, staged))
        self.both(lambda store: store.commit(commit))

    @rule(shard=shards, data=st.data())
    def commit_more(self, shard: ShardId, data: st.DataObject) -> None:
        self.commit_staged(shard, data)

    @rule(shard=shards, names=st.sets(st.sampled_from(NAMES), min_size=1), data=st.data())
    def adopt_and_give_up(self, shard: ShardId, names: set[str], data: st.DataObject) -> None:
        head = self.runner.run(self.model.head(shard))
        if head is None:
            return
        given = data.draw(st.fixed_dictionaries(dict.fromkeys(names, standings)))
        faulty = data.draw(st.sampled_from([False] * 5 + [True]))
        generations = {"g1": GenerationDelta(0)} if faulty else {}
        commit = Commit(shard, head.fence, head.seq, generations=generations, standings=given)
        self.both(lambda store: store.commit(commit))

    @rule(
        shard=shards,
        name=st.sampled_from(NAMES),
        limit=st.integers(1, 2),
        behind=st.sampled_from((0, 0, 0, 1)),
    )
    def contract(self, shard: ShardId, name: str, limit: int, behind: int) -> None:
        head = self.runner.run(self.model.head(shard))
        fence = max(0, head.fence - behind) if head is not None else 1
        self.both(lambda store: store.contract_step(shard, fence, name, limit))

    @rule(shard=shards)
    def clear(self, shard: ShardId) -> None:
        self.both(lambda store: store.clear(shard))

    @rule(shard=shards, delivered=st.lists(letters, max_size=2), discarded=letters)
    def deliver_and_discard(self, shard: ShardId, delivered: list[str], discarded: str) -> None:
        self.both(lambda store: store.outbox_done(shard, delivered))
        self.both(lambda store: store.discard_deadletter(shard, discarded))

    @rule(expected=st.integers(0, 4), release=values, name=st.sampled_from(LIVE), count=st.integers(1, 9))
    def change_globals(self, expected: int, release: bytes, name: str, count: int) -> None:
        self.both(lambda store: store.put_control(expected, b"%d" % count, release))
        self.both(lambda store: store.record_topic(name, count))
        self.both(lambda store: store.announce(name, release, 60.0))

    @invariant()
    def all_reads_are_equal(self) -> None:
        async def everything(store: ShardStore) -> list[Any]:
            found: list[Any] = [await store.heads(SHARDS), await store.topics(), await store.control()]
            found += (await store.release(), await store.readers())
            for shard in SHARDS:
                found += (await store.scan_documents(shard), await store.parts(shard, KEYS))
                found += (await store.counters(shard), await store.outbox(shard))
                found += (await store.deadletters(shard), await store.blobs(shard, BLOBS))
                for name in NAMES:
                    found += [await store.manifest(shard, name, start) for start in (0, 2)]
            return found

        self.both(everything)

    @invariant()
    def the_same_blobs_expire(self) -> None:
        with self.server.client() as client:
            for shard in SHARDS:
                for name, blob in self.model._at(shard).blobs.items():
                    left = client.pttl(self.backend.keys.shard(shard).blob(name))
                    assert (left >= 0) == (blob.expires_at is not None), name


def test_a_store_in_redis_behaves_as_the_one_in_memory(redis_server_running: RedisServer) -> None:
    Histories.server = redis_server_running
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
