"""What every store promises of generations: adopted, given up, removed in steps, emptied with their shard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from backends import SHARD, Backend, RedisBackend

from tessera.errors import FencedError, SequenceError
from tessera.store.base import (
    GENERATION_COUNTERS,
    Commit,
    GenerationDelta,
    Head,
    SegmentMeta,
    ShardId,
    ShardStore,
    Standing,
    Tombstone,
    deadletter_blob,
    segment_blob,
)
from tessera.store.redis import RedisStore

OTHER = ShardId("tessera.logs", 0)
DONE = Standing(complete=True)
BEGUN = Standing(5, False, 0, started_at_ms=1_700_000_000_000, note="waits: server is slow, é")
SEGMENTS = tuple(f"s{n}" for n in range(7))


def follow(head: Head, **changes: Any) -> Commit:
    """A commit on ``head`` that changes nothing but what is given."""
    return Commit(head.shard, head.fence, head.seq, **changes)


async def filled(store: ShardStore, shard: ShardId = SHARD) -> Head:
    """A shard with generations g1 and g2, each with segments, tombstones (two trimmed) and counters."""
    head = await store.claim(shard, ["g1", "g2"])
    blobs = {segment_blob(g, name): f"{g}{name}".encode() for g in ("g1", "g2") for name in SEGMENTS}
    blobs |= {deadletter_blob("d"): b"raw", "text/1": b"text"}
    await store.stage(shard, blobs)
    dead = (Tombstone("a", 0), Tombstone("b", 1), Tombstone("c", 2))
    delta = GenerationDelta(0, tuple(SegmentMeta(name, 3, 1, 4) for name in SEGMENTS), (), dead, 2)
    counters = {f"{what}:{g}:src:x": 4 for what in GENERATION_COUNTERS for g in ("g1", "g2", "g22")}
    return await store.commit(
        follow(
            head,
            applied=9,
            record_digest="d9",
            documents={"src/k": b"record"},
            parts={"src/p": b"part"},
            generations={"g1": delta, "g2": delta},
            keep=tuple(blobs),
            deadletters={"d": b"letter"},
            counters=counters | {"records": 3, "chunks:g2": 1},
            standings={"g1": replace(DONE, documents=1, fingerprint="a" * 32), "g2": BEGUN},
        )
    )


async def given_up(store: ShardStore) -> Head:
    """The shard of :func:`filled` after it gave up g2."""
    head = await filled(store)
    return await store.commit(follow(head, standings={"g1": head.standings["g1"]}))


async def segments_of(store: ShardStore, generation: str) -> list[bytes]:
    found = await store.blobs(SHARD, [segment_blob(generation, name) for name in SEGMENTS])
    return [content for content in found if content is not None]


# --- standings -----------------------------------------------------------------------------------------


async def test_generations_of_a_new_shard_are_complete_without_documents(backend: Backend) -> None:
    head = await backend.store.claim(SHARD, ["g2", "g1"])
    assert head.standings == {"g1": Standing(-1, True, 0, "0" * 32, 0, ""), "g2": DONE}
    assert (await backend.store.claim(SHARD, ["g3"])).standings == head.standings


async def test_standings_come_back_as_they_were_given(backend: Backend) -> None:
    store = backend.store
    head = await store.claim(SHARD, ["g1", "g2"])
    most = Standing(2**53 - 1, True, 2**53 - 1, "0123456789abcdef" * 2, 2**53 - 1, 'x"\n\x00é😀' * 50)
    standings = {"g2": most, "g1": Standing(-1, False)}
    moved = await store.commit(follow(head, standings=standings))
    assert moved == replace(head, seq=1, standings=standings)
    assert await store.head(SHARD) == moved
    assert (await store.heads([OTHER, SHARD]))[1] == moved
    manifest = await store.manifest(SHARD, "g1")
    assert manifest is not None
    assert manifest.head == moved


async def test_a_commit_without_standings_leaves_them(backend: Backend) -> None:
    head = await filled(backend.store)
    delta = GenerationDelta(3)
    moved = await backend.store.commit(follow(head, applied=10, generations={"g1": delta, "g2": delta}))
    assert moved.standings == head.standings
    assert (await backend.store.adopt_log(SHARD)).standings == head.standings


# --- adopting and giving up ----------------------------------------------------------------------------


async def test_an_adopted_generation_is_live_at_once_and_empty(backend: Backend) -> None:
    store = backend.store
    head = await store.claim(SHARD, ["g1"])
    adopted = await store.commit(follow(head, standings={"g1": DONE, "g0": BEGUN}))
    assert adopted == replace(head, seq=1, live=("g0", "g1"), standings={"g0": BEGUN, "g1": DONE})
    manifest = await store.manifest(SHARD, "g0")
    assert manifest is not None
    assert (manifest.segments, manifest.tombstones, manifest.next_tombstone) == ({}, (), 0)
    with pytest.raises(SequenceError, match="generations g0, g1 are live, the commit writes g1;"):
        await store.commit(follow(adopted, applied=0, generations={"g1": GenerationDelta(0)}))
    both = {"g0": GenerationDelta(0), "g1": GenerationDelta(0)}
    assert (await store.commit(follow(adopted, applied=0, generations=both))).applied == 0


async def test_an_adoption_may_bring_documents_and_counters(backend: Backend) -> None:
    store = backend.store
    head = await store.claim(SHARD, ["g1"])
    standings = {"g1": DONE, "g2": BEGUN}
    await store.commit(follow(head, standings=standings, documents={"k": b"v"}, counters={"adopted": 1}))
    assert await store.documents(SHARD, ["k"]) == [b"v"]
    assert await store.counters(SHARD) == {"adopted": 1}


async def test_a_generation_given_up_is_no_longer_live_and_keeps_its_segments(backend: Backend) -> None:
    store = backend.store
    head = await given_up(store)
    assert (head.live, set(head.standings)) == (("g1",), {"g1"})
    assert await store.manifest(SHARD, "g2") is None
    assert len(await segments_of(store, "g2")) == len(SEGMENTS)
    assert (await store.counters(SHARD))["chunks:g2:src:x"] == 4
    with pytest.raises(SequenceError, match="generations g1 are live, the commit writes g2"):
        await store.commit(follow(head, generations={"g2": GenerationDelta(3)}))


async def test_what_was_given_up_is_never_adopted_again(backend: Backend) -> None:
    store = backend.store
    head = await given_up(store)
    again = follow(head, standings={"g1": DONE, "g2": DONE})
    before = backend.dump()
    with pytest.raises(SequenceError, match="generation g2: it was given up and is not removed yet"):
        await store.commit(again)
    assert backend.dump() == before
    assert await store.contract_step(SHARD, head.fence, "g2", 100) == 0
    before = backend.dump()
    with pytest.raises(SequenceError, match="generation g2: it was removed"):
        await store.commit(again)
    assert backend.dump() == before


async def test_trimmed_tombstones_alone_keep_a_name_from_being_adopted_again(backend: Backend) -> None:
    store = backend.store
    head = await store.claim(SHARD, ["g1", "g2"])
    trimmed = GenerationDelta(0, tombstones=(Tombstone("a", 0),), trim_tombstones_below=1)
    head = await store.commit(follow(head, generations={"g2": trimmed}))
    head = await store.commit(follow(head, standings={"g1": DONE}))
    with pytest.raises(SequenceError, match="not removed yet"):
        await store.commit(follow(head, standings={"g1": DONE, "g2": DONE}))


# --- contraction ---------------------------------------------------------------------------------------


async def test_contraction_goes_in_steps_of_the_limit(backend: Backend) -> None:
    store = backend.store
    head = await given_up(store)
    left = [await store.contract_step(SHARD, head.fence, "g2", 3)]
    assert len(await segments_of(store, "g2")) == 4
    assert (await store.counters(SHARD))["chunks:g2:src:x"] == 4
    left += [await store.contract_step(SHARD, head.fence, "g2", 3) for _ in range(3)]
    assert left == [4, 1, 0, 0]
    assert await segments_of(store, "g2") == []


async def test_a_contracted_generation_leaves_nothing_and_others_stay_whole(backend: Backend) -> None:
    store = backend.store
    head = await given_up(store)
    whole = await store.manifest(SHARD, "g1")
    before = await store.counters(SHARD)
    assert await store.contract_step(SHARD, head.fence, "g2", 7) == 0
    assert await store.manifest(SHARD, "g1") == whole
    assert len(await segments_of(store, "g1")) == len(SEGMENTS)
    assert await store.head(SHARD) == head
    gone = {f"{what}:g2:src:x" for what in GENERATION_COUNTERS}
    assert await store.counters(SHARD) == {name: n for name, n in before.items() if name not in gone}
    assert await store.documents(SHARD, ["src/k"]) == [b"record"]
    assert await store.blobs(SHARD, ["text/1"]) == [b"text"]


async def test_contraction_leaves_no_key_of_the_generation(redis_backend: RedisBackend) -> None:
    store, keys = redis_backend.store, redis_backend.keys.shard(SHARD)
    head = await given_up(store)
    while await store.contract_step(SHARD, head.fence, "g2", 2):
        pass
    assert [key for key in redis_backend.dump() if key.endswith(":g2") or "/g2/" in key] == []
    fields = redis_backend.node_of(SHARD).hkeys(keys.head)
    assert b"trimmed:g1" in fields
    assert b"trimmed:g2" not in fields


async def test_a_segment_whose_blob_is_gone_is_contracted_too(backend: Backend) -> None:
    store = backend.store
    head = await given_up(store)
    backend.lose_blob(SHARD, segment_blob("g2", "s3"))
    assert await store.contract_step(SHARD, head.fence, "g2", 9) == 0


async def test_contracting_what_the_shard_never_had_keeps_it_from_being_adopted(backend: Backend) -> None:
    head = await filled(backend.store)
    for _ in range(2):
        assert await backend.store.contract_step(SHARD, head.fence, "g9", 1) == 0
    with pytest.raises(SequenceError, match="generation g9: it was removed"):
        await backend.store.commit(follow(head, standings={**head.standings, "g9": DONE}))
    assert await backend.store.head(SHARD) == head
    cleared = await backend.store.clear(SHARD)
    with pytest.raises(SequenceError, match="generation g9: it was removed"):
        await backend.store.commit(follow(cleared, standings={**cleared.standings, "g9": DONE}))


@pytest.mark.parametrize(
    ("shard", "fence", "generation", "limit", "error", "message"),
    [
        (SHARD, 1, "g1", 1, SequenceError, "generation g1: it is live"),
        (SHARD, 0, "g2", 1, FencedError, "fence 0 was replaced by 1"),
        (SHARD, 2, "g2", 1, SequenceError, "holds fence 1, older than ours, 2"),
        (OTHER, 1, "g2", 1, SequenceError, "tessera.logs/0: the store holds no such shard"),
        (SHARD, 1, "g2", 0, ValueError, "limit must be between 1 and"),
        (SHARD, 1, "g2", 1.5, ValueError, "limit must be an integer"),
        (SHARD, 1, "g2/s0", 1, ValueError, "must hold neither / nor :"),
        (SHARD, 2**53, "g2", 1, ValueError, "fence must be between"),
    ],
)
async def test_a_refused_contraction_removes_nothing(
    backend: Backend,
    shard: ShardId,
    fence: int,
    generation: str,
    limit: int,
    error: type[Exception],
    message: str,
) -> None:
    await given_up(backend.store)
    before = backend.dump()
    with pytest.raises(error, match=message):
        await backend.store.contract_step(shard, fence, generation, limit)
    assert backend.dump() == before


async def test_a_writer_that_lost_the_shard_contracts_nothing_more(backend: Backend) -> None:
    head = await given_up(backend.store)
    assert await backend.store.contract_step(SHARD, head.fence, "g2", 2) == 5
    new = await backend.another().claim(SHARD, [])
    with pytest.raises(FencedError):
        await backend.store.contract_step(SHARD, head.fence, "g2", 2)
    assert await backend.store.contract_step(SHARD, new.fence, "g2", 5) == 0


# --- clearing ------------------------------------------------------------------------------------------


async def test_a_cleared_shard_is_as_new_but_for_dead_letters(backend: Backend) -> None:
    store = backend.store
    head = await filled(store)
    await store.stage(SHARD, {"text/staged": b"1"})
    cleared = await store.clear(SHARD)
    complete = {"g1": DONE, "g2": DONE}
    assert cleared == Head(SHARD, head.fence + 1, head.seq + 1, -1, "", 1, ("g1", "g2"), complete)
    assert await store.head(SHARD) == cleared
    assert await store.scan_documents(SHARD) == []
    assert await store.parts(SHARD, ["src/p"]) == [None]
    assert await store.counters(SHARD) == {}
    assert await store.blobs(SHARD, ["text/1", "text/staged", deadletter_blob("d")]) == [None, None, b"raw"]
    assert await segments_of(store, "g1") == await segments_of(store, "g2") == []
    assert (await store.deadletters(SHARD), await store.outbox(SHARD)) == ({"d": b"letter"}, ["d"])


async def test_tombstones_of_a_cleared_shard_are_numbered_on(backend: Backend) -> None:
    store = backend.store
    await filled(store)
    cleared = await store.clear(SHARD)
    manifest = await store.manifest(SHARD, "g1")
    assert manifest is not None
    assert (manifest.segments, manifest.tombstones) == ({}, ())
    assert (manifest.tombstone_base, manifest.next_tombstone) == (3, 3)
    delta = GenerationDelta(3, (SegmentMeta("s0", 3, 1, 1),))
    again = await store.commit(follow(cleared, applied=0, generations={"g1": delta, "g2": delta}))
    assert again.applied == 0


async def test_clearing_removes_what_is_left_of_generations_given_up(backend: Backend) -> None:
    store = backend.store
    await given_up(store)
    cleared = await store.clear(SHARD)
    assert cleared.live == ("g1",)
    assert await segments_of(store, "g2") == []
    await store.commit(follow(cleared, standings={"g1": DONE, "g2": BEGUN}))
    manifest = await store.manifest(SHARD, "g2")
    assert manifest is not None
    assert manifest.next_tombstone == 0


async def test_clearing_twice_begins_another_log_each_time(backend: Backend) -> None:
    await filled(backend.store)
    first, second = await backend.store.clear(SHARD), await backend.store.clear(SHARD)
    assert (first.epoch, second.epoch) == (1, 2)
    assert second.fence > first.fence
    assert second.seq > first.seq


async def test_a_writer_of_a_cleared_shard_is_fenced(backend: Backend) -> None:
    head = await filled(backend.store)
    await backend.another().clear(SHARD)
    before = backend.dump()
    with pytest.raises(FencedError):
        await backend.store.commit(follow(head, documents={"k": b"late"}))
    assert backend.dump() == before


async def test_clearing_leaves_other_shards_alone(backend: Backend) -> None:
    store = backend.store
    neighbours = (OTHER, ShardId(SHARD.topic, SHARD.partition * 10 + 1), ShardId(f"{SHARD.topic}[x]*", 0))
    heads = [await filled(store, shard) for shard in neighbours]
    manifests = [await store.manifest(shard, "g1") for shard in neighbours]
    await filled(store)
    await store.clear(SHARD)
    assert await store.heads(neighbours) == heads
    assert [await store.manifest(shard, "g1") for shard in neighbours] == manifests
    assert [await store.blobs(shard, ["text/1"]) for shard in neighbours] == [[b"text"]] * 3
    await store.clear(neighbours[2])
    assert await store.blobs(neighbours[2], ["text/1"]) == [None]
    assert await store.heads(neighbours[:2]) == heads[:2]


async def test_clearing_an_unknown_shard_is_refused(backend: Backend) -> None:
    before = backend.dump()
    with pytest.raises(SequenceError, match="the store holds no such shard"):
        await backend.store.clear(SHARD)
    assert backend.dump() == before


class Contended(RedisStore):
    """A store whose shard another worker claims each time that its keys have been listed."""

    claims = 0
    most = 0

    async def _clearable(self, keys: Any) -> tuple[list[str], list[str]]:
        found = await super()._clearable(keys)
        if self.claims < self.most:
            self.claims += 1
            await self.claim(SHARD, [])
        return found


async def test_a_shard_claimed_while_it_is_listed_is_listed_again(redis_backend: RedisBackend) -> None:
    head = await filled(redis_backend.store)
    redis_backend.store.__class__ = Contended
    redis_backend.store.most = 2  # type: ignore[attr-defined]
    cleared = await redis_backend.store.clear(SHARD)
    assert (cleared.fence, cleared.applied) == (head.fence + 5, -1)
    assert await segments_of(redis_backend.store, "g1") == []


async def test_a_shard_claimed_again_and_again_is_not_cleared(redis_backend: RedisBackend) -> None:
    head = await filled(redis_backend.store)
    before = redis_backend.dump()
    redis_backend.store.__class__ = Contended
    redis_backend.store.most = 99  # type: ignore[attr-defined]
    with pytest.raises(FencedError, match="a worker claimed it while it was to be cleared"):
        await redis_backend.store.clear(SHARD)
    key = redis_backend.keys.shard(SHARD).head
    after = redis_backend.dump()
    assert {name: held for name, held in after.items() if name != key} == {
        name: held for name, held in before.items() if name != key
    }
    held = await redis_backend.store.head(SHARD)
    assert held == replace(head, fence=head.fence + 6)


async def test_what_a_clearing_that_died_has_left_goes_with_the_next(redis_backend: RedisBackend) -> None:
    store = redis_backend.store
    await filled(store)
    names = [redis_backend.keys.shard(SHARD).blob(name) for name in ("text/1", segment_blob("g1", "s0"))]
    await store.clear(SHARD)
    client = redis_backend.node_of(SHARD)
    for name in names:
        client.set(name, "orphan")
    await store.clear(SHARD)
    assert client.exists(*names) == 0
