"""Random histories: a store in Redis answers exactly as the store in memory does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from backends import RedisBackend, redis_backend_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from servers import RedisServer

from tessera.errors import TesseraError
from tessera.store.base import (
    Commit,
    GenerationDelta,
    SegmentMeta,
    ShardId,
    ShardStore,
    Tombstone,
    deadletter_blob,
)
from tessera.store.memory import MemoryStore

SHARDS = (ShardId("a", 0), ShardId("a", 1))
LIVE = ("g1", "g2")

shards = st.sampled_from(SHARDS)
keys = st.sampled_from(["s/a", "s/ä", "s/\x00", "t/*", "😀"])
values = st.binary(max_size=6)
blob_ids = st.sampled_from([*"uvwxyz", deadletter_blob("d1")])
blob_values = st.sampled_from([b"", b"1", b"\xff\x00"])
drift = st.sampled_from([0] * 12 + [-1, 1])
"""What a writer believes is mostly right, so that histories get somewhere."""


@st.composite
def deltas(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "add": draw(st.lists(st.integers(0, 9), max_size=2, unique=True)),
        "drop": draw(st.lists(st.integers(0, 9), max_size=1)),
        "dead": draw(st.lists(st.builds(Tombstone, keys, st.integers(0, 2**40)), max_size=3)),
        "trim": draw(st.none() | st.integers(0, 4)),
        "drift": draw(drift),
    }


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
        with self.server.client() as client:
            client.flushall()

    def both(self, step: Callable[[ShardStore], Awaitable[Any]]) -> Any:
        async def outcome(store: ShardStore) -> Any:
            try:
                return await step(store)
            except (TesseraError, ValueError) as error:
                return type(error), str(error)

        expected = self.runner.run(outcome(self.model))
        assert self.runner.run(outcome(self.backend.store)) == expected
        return expected

    @rule(shard=shards)
    def claim(self, shard: ShardId) -> None:
        self.both(lambda store: store.claim(shard, LIVE))

    @rule(shard=shards)
    def adopt_log(self, shard: ShardId) -> None:
        self.both(lambda store: store.adopt_log(shard))

    @rule(shard=shards, blobs=st.dictionaries(blob_ids, blob_values, min_size=1, max_size=4))
    def stage(self, shard: ShardId, blobs: dict[str, bytes]) -> None:
        for name, content in blobs.items():
            self.both(lambda store, name=name, content=content: store.stage(shard, {name: content}))  # type: ignore[misc]

    @rule(
        shard=shards,
        drifts=st.tuples(drift, drift, drift),
        moves=st.booleans(),
        named=st.sampled_from([LIVE] * 6 + [("g1",), (), ("g3",)]),
        delta=st.fixed_dictionaries({"g1": deltas(), "g2": deltas(), "g3": deltas()}),
        documents=st.dictionaries(keys, st.none() | values, max_size=3),
        parts=st.dictionaries(keys, st.none() | values, max_size=2),
        moved=st.lists(st.lists(blob_ids, max_size=2), min_size=3, max_size=3),
        letters=st.dictionaries(st.sampled_from(["d1", "d2", "d3"]), values, max_size=2),
        counters=st.dictionaries(keys, st.integers(-3, 3) | st.just(2**53 - 2), max_size=2),
    )
    def commit(
        self, shard: ShardId, drifts: Any, moves: bool, named: Any, delta: Any, **changes: Any
    ) -> None:
        head = self.runner.run(self.model.head(shard))
        fence, seq, applied = (head.fence, head.seq, head.applied) if head else (0, 0, -1)
        generations = {name: self._delta(shard, name, delta[name]) for name in named}
        keep, expire, unlink = changes.pop("moved")
        commit = Commit(
            shard,
            fence + drifts[0],
            seq + drifts[1],
            applied=applied + 1 + drifts[2] if moves else None,
            generations=generations,
            documents=changes["documents"],
            parts=changes["parts"],
            keep=tuple(keep),
            expire=tuple(expire),
            unlink=tuple(unlink),
            deadletters=changes["letters"],
            counters=changes["counters"],
        )
        self.both(lambda store: store.commit(commit))

    def _delta(self, shard: ShardId, name: str, drawn: dict[str, Any]) -> GenerationDelta:
        manifest = self.runner.run(self.model.manifest(shard, name))
        start = manifest.next_tombstone if manifest else 0
        end = start + len(drawn["dead"])
        return GenerationDelta(
            start + drawn["drift"],
            tuple(SegmentMeta(f"s{n}", max(0, end - n // 4), n, n * 2**30) for n in drawn["add"]),
            tuple(f"s{n}" for n in drawn["drop"]),
            tuple(drawn["dead"]),
            None if drawn["trim"] is None else max(0, end - drawn["trim"]),
        )

    @rule(shard=shards, ids=st.lists(st.sampled_from(["d1", "d2", "d9"]), max_size=2))
    def deliver(self, shard: ShardId, ids: list[str]) -> None:
        self.both(lambda store: store.outbox_done(shard, ids))

    @rule(shard=shards, letter=st.sampled_from(["d1", "d2", "d9"]))
    def discard(self, shard: ShardId, letter: str) -> None:
        self.both(lambda store: store.discard_deadletter(shard, letter))

    @rule(expected=st.none() | blob_values, release=blob_values)
    def switch(self, expected: bytes | None, release: bytes) -> None:
        self.both(lambda store: store.set_release(expected, release))

    @rule(name=st.sampled_from(LIVE), description=values, partitions=st.integers(1, 9))
    def register(self, name: str, description: bytes, partitions: int) -> None:
        self.both(lambda store: store.register(name, description))
        self.both(lambda store: store.record_topic(name, partitions))

    @invariant()
    def all_reads_are_equal(self) -> None:
        async def everything(store: ShardStore) -> list[Any]:
            found: list[Any] = [await store.heads(SHARDS), await store.topics(), await store.registry()]
            found.append(await store.release())
            for shard in SHARDS:
                found += (await store.scan_documents(shard), await store.parts(shard, ["s/a", "s/ä", "😀"]))
                found += (await store.counters(shard), await store.outbox(shard))
                found += (
                    await store.deadletters(shard),
                    await store.blobs(shard, [*"uvwxyz", "deadletter/d1"]),
                )
                for name in (*LIVE, "g3"):
                    found += [await store.manifest(shard, name, start) for start in (0, 2)]
            return found

        self.both(everything)

    @invariant()
    def the_same_blobs_expire(self) -> None:
        for shard in SHARDS:
            with self.server.client() as client:
                for name, blob in self.model._at(shard).blobs.items():
                    left = client.pttl(self.backend.keys.shard(shard).blob(name))
                    assert (left >= 0) == (blob.expires_at is not None), name


def test_a_store_in_redis_behaves_as_the_one_in_memory(redis_server_running: RedisServer) -> None:
    Histories.server = redis_server_running
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
