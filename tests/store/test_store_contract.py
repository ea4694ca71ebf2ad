"""What every store promises: reads, commits, refusals that write nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from backends import SHARD, Backend

from tessera.errors import CorruptionError, FencedError, SequenceError, ShardError, StagingError
from tessera.store.base import (
    Commit,
    GenerationDelta,
    Head,
    SegmentMeta,
    ShardId,
    ShardStore,
    Standing,
    Tombstone,
    deadletter_blob,
)

OTHER = ShardId("tessera.logs", 0)
EMPTY = GenerationDelta(expected_next_tombstone=0)
ALL_BYTES = bytes(range(256))
HARD_KEYS = ("handbook/straße/é.md", "w/\x00\n\r", "😀/🗎", 'a b/"q"\'', "s/*?[x]\\", "ключ/ключ")


def segment(name: str, watermark: int = 0) -> SegmentMeta:
    return SegmentMeta(name, watermark, chunks=7, size_bytes=2**40)


async def claimed(store: ShardStore, live: tuple[str, ...] = ("g1",)) -> Head:
    return await store.claim(SHARD, live)


def follow(head: Head, **changes: Any) -> Commit:
    """A commit on ``head`` that changes nothing but what is given."""
    return Commit(head.shard, head.fence, head.seq, **changes)


# --- heads ---------------------------------------------------------------------------------------------


async def test_a_shard_never_claimed_has_no_head_and_nothing_in_it(backend: Backend) -> None:
    store = backend.store
    assert await store.head(SHARD) is None
    assert await store.heads([SHARD, OTHER]) == [None, None]
    assert await store.manifest(SHARD, "g1") is None
    assert await store.documents(SHARD, ["a", "b"]) == [None, None]
    assert await store.scan_documents(SHARD) == []
    assert await store.counters(SHARD) == {}
    assert await store.outbox(SHARD) == []
    assert await store.deadletters(SHARD) == {}
    assert backend.dump().get("_shards") in (None, {})


async def test_the_first_claim_makes_a_head_with_sorted_generations(backend: Backend) -> None:
    head = await backend.store.claim(SHARD, ["g2", "g1", "g2"])
    complete = {"g1": Standing(complete=True), "g2": Standing(complete=True)}
    assert head == Head(
        SHARD, 1, 0, applied=-1, record_digest="", epoch=0, live=("g1", "g2"), standings=complete
    )
    assert await backend.store.head(SHARD) == head


async def test_a_later_claim_raises_the_fence_and_changes_nothing_else(backend: Backend) -> None:
    first = await claimed(backend.store)
    moved = await backend.store.commit(
        follow(first, applied=4, record_digest="ab", generations={"g1": EMPTY})
    )
    second = await backend.store.claim(SHARD, ["g9"])
    assert second == replace(moved, fence=2)


async def test_a_claim_takes_a_fence_of_at_least_the_floor(backend: Backend) -> None:
    assert (await backend.store.claim(SHARD, ["g1"], 40)).fence == 40
    assert (await backend.store.claim(SHARD, ["g1"], 7)).fence == 41
    assert (await backend.store.claim(SHARD, ["g1"], 1_800_000_000_000_000)).fence == 1_800_000_000_000_000
    with pytest.raises(ValueError, match="floor"):
        await backend.store.claim(SHARD, ["g1"], 2**53)


async def test_a_batch_that_does_not_follow_the_applied_offset_is_refused(backend: Backend) -> None:
    head = await claimed(backend.store)
    head = await backend.store.commit(follow(head, applied=7, after=-1, generations={"g1": EMPTY}))
    for after in (-1, 6, 8):
        with pytest.raises(SequenceError, match="follows"):
            await backend.store.commit(follow(head, applied=9, after=after, generations={"g1": EMPTY}))
    assert await backend.store.head(SHARD) == head
    moved = await backend.store.commit(follow(head, applied=9, after=7, generations={"g1": EMPTY}))
    assert moved.applied == 9


async def test_concurrent_claims_get_a_fence_each(backend: Backend) -> None:
    stores = [backend.another() for _ in range(4)]
    heads = await asyncio.gather(*(store.claim(SHARD, ["g1"]) for store in stores for _ in range(5)))
    assert sorted(head.fence for head in heads) == list(range(1, 21))


async def test_heads_come_in_the_order_asked_for(backend: Backend) -> None:
    shards = [ShardId(topic, partition) for topic in ("a.b", "c-d") for partition in range(8)]
    for index, shard in enumerate(shards[::2]):
        for _ in range(index + 1):
            await backend.store.claim(shard, ["g1"])
    heads = await backend.store.heads(shards)
    assert [head and head.fence for head in heads[::2]] == list(range(1, 9))
    assert heads[1::2] == [None] * 8
    assert [head.shard for head in heads if head] == shards[::2]


async def test_adopting_a_log_starts_offsets_again_and_keeps_documents(backend: Backend) -> None:
    store = backend.store
    head = await claimed(store)
    head = await store.commit(
        follow(head, applied=9, record_digest="cd", generations={"g1": EMPTY}, documents={"k": b"v"})
    )
    adopted = await store.adopt_log(SHARD)
    assert adopted == Head(SHARD, 2, head.seq + 1, -1, "", 1, ("g1",), head.standings)
    assert await store.head(SHARD) == adopted
    assert await store.documents(SHARD, ["k"]) == [b"v"]
    with pytest.raises(FencedError):
        await store.commit(follow(head, applied=10, generations={"g1": EMPTY}))
    assert (await store.commit(follow(adopted, applied=0, generations={"g1": EMPTY}))).applied == 0


async def test_adopting_a_log_of_an_unknown_shard_is_refused(backend: Backend) -> None:
    before = backend.dump()
    with pytest.raises(SequenceError, match=r"tessera\.documents/3: the store holds no such shard"):
        await backend.store.adopt_log(SHARD)
    assert backend.dump() == before


# --- commits -------------------------------------------------------------------------------------------


async def test_an_empty_commit_moves_the_sequence_only(backend: Backend) -> None:
    head = await claimed(backend.store)
    assert await backend.store.commit(follow(head)) == replace(head, seq=1)
    assert await backend.store.head(SHARD) == replace(head, seq=1)


async def test_a_commit_moves_applied_offset_and_digest_together(backend: Backend) -> None:
    head = await claimed(backend.store)
    moved = await backend.store.commit(
        follow(head, applied=2**53 - 1, record_digest="f" * 64, generations={"g1": EMPTY})
    )
    assert moved == replace(head, seq=1, applied=2**53 - 1, record_digest="f" * 64)
    assert await backend.store.commit(follow(moved)) == replace(moved, seq=2)


async def test_documents_and_parts_are_set_and_removed(backend: Backend) -> None:
    store = backend.store
    head = await claimed(store)
    table: dict[str, bytes | None] = {key: key.encode() + ALL_BYTES for key in HARD_KEYS}
    head = await store.commit(follow(head, documents=table, parts={"p": b"", "q": ALL_BYTES}))
    assert await store.documents(SHARD, [*HARD_KEYS, "none"]) == [*table.values(), None]
    assert await store.parts(SHARD, ["q", "none", "p"]) == [ALL_BYTES, None, b""]
    await store.commit(follow(head, documents={HARD_KEYS[0]: None, "none": None}, parts={"q": None}))
    assert await store.documents(SHARD, HARD_KEYS[:2]) == [None, table[HARD_KEYS[1]]]
    assert await store.parts(SHARD, ["p", "q"]) == [b"", None]
    assert await store.documents(SHARD, []) == []


async def test_a_scan_finds_exactly_the_keys_with_the_prefix_in_order(backend: Backend) -> None:
    store = backend.store
    keys = sorted([*HARD_KEYS, "s/*", "s/*a", "s/b", *(f"many/{n}" for n in range(3000))])
    await store.commit(follow(await claimed(store), documents={key: key.encode() for key in keys}))
    assert await store.scan_documents(SHARD) == [(key, key.encode()) for key in keys]
    for prefix in ("s/*", "s/", "many/29", "s/*?[x]\\", "é", "😀"):
        expected = [(key, key.encode()) for key in keys if key.startswith(prefix)]
        assert await store.scan_documents(SHARD, prefix) == expected


async def test_a_commit_of_thousands_of_items_is_applied_as_a_whole(backend: Backend) -> None:
    store = backend.store
    head = await claimed(store)
    names = [f"b/{n}" for n in range(2500)]
    await store.stage(SHARD, dict.fromkeys(names, b"x"))
    dead = tuple(Tombstone(f"s/{n}", n) for n in range(9000))
    added = tuple(segment(f"s{n}", watermark=9000) for n in range(2500))
    delta = GenerationDelta(0, add=added, tombstones=dead)
    documents: dict[str, bytes | None] = {f"s/{n}": b"%d" % n for n in range(9000)}
    letters = {f"d{n}": b"" for n in range(2500)}
    counters = {f"c{n}": n for n in range(2500)}
    head = await store.commit(
        follow(
            head,
            applied=1,
            generations={"g1": delta},
            documents=documents,
            keep=tuple(names),
            deadletters=letters,
            counters=counters,
        )
    )
    manifest = await store.manifest(SHARD, "g1")
    assert manifest is not None
    assert manifest.tombstones == dead
    assert manifest.segments == {meta.id: meta for meta in added}
    assert await store.documents(SHARD, list(documents)) == list(documents.values())
    assert await store.blobs(SHARD, names) == [b"x"] * 2500
    assert await store.outbox(SHARD) == list(letters)
    assert await store.counters(SHARD) == counters
    gone = GenerationDelta(9000, drop=tuple(meta.id for meta in added), trim_tombstones_below=9000)
    await store.commit(
        follow(head, generations={"g1": gone}, unlink=tuple(names), documents=dict.fromkeys(documents, None))
    )
    manifest = await store.manifest(SHARD, "g1")
    assert manifest is not None
    assert (manifest.segments, manifest.tombstones, manifest.tombstone_base) == ({}, (), 9000)
    assert await store.blobs(SHARD, names) == [None] * 2500
    assert await store.scan_documents(SHARD) == []


async def test_counters_are_added_to(backend: Backend) -> None:
    store = backend.store
    head = await store.commit(
        follow(await claimed(store), counters={"events": 5, "é": 2**53 - 1, "down": -3})
    )
    await store.commit(follow(head, counters={"events": 7, "é": -1, "new": 0}))
    assert await store.counters(SHARD) == {"events": 12, "é": 2**53 - 2, "down": -3, "new": 0}


async def test_shards_do_not_see_each_other(backend: Backend) -> None:
    store = backend.store
    await store.stage(SHARD, {"b": b"1"})
    head = await claimed(store)
    await store.commit(
        follow(head, documents={"k": b"v"}, keep=("b",), counters={"c": 1}, deadletters={"d": b""})
    )
    other = await store.claim(OTHER, ["g1"])
    assert (other.fence, other.seq) == (1, 0)
    assert await store.documents(OTHER, ["k"]) == [None]
    assert await store.blobs(OTHER, ["b"]) == [None]
    assert (await store.counters(OTHER), await store.outbox(OTHER)) == ({}, [])


# --- generations ---------------------------------------------------------------------------------------


async def test_a_generation_begins_with_an_empty_manifest(backend: Backend) -> None:
    head = await claimed(backend.store)
    manifest = await backend.store.manifest(SHARD, "g1", from_tombstone=5)
    assert manifest is not None
    assert (manifest.head, manifest.segments, manifest.tombstones) == (head, {}, ())
    assert (manifest.tombstone_base, manifest.next_tombstone) == (0, 0)
    assert await backend.store.manifest(SHARD, "g2") is None


async def test_segments_and_tombstones_of_all_generations_change_together(backend: Backend) -> None:
    store = backend.store
    head = await claimed(store, ("g1", "g2"))
    one = GenerationDelta(
        0, add=(segment("s1", 2),), tombstones=(Tombstone("a/é b", 0), Tombstone("c", 2**31))
    )
    two = GenerationDelta(0, add=(segment("s1"), segment("s2")))
    head = await store.commit(follow(head, applied=0, generations={"g1": one, "g2": two}))
    first, second = await store.manifest(SHARD, "g1"), await store.manifest(SHARD, "g2")
    assert first is not None
    assert second is not None
    assert first.head == second.head == head
    assert first.segments == {"s1": segment("s1", 2)}
    assert first.tombstones == one.tombstones
    assert set(second.segments) == {"s1", "s2"}
    assert second.tombstones == ()
    await store.commit(follow(head, generations={"g2": GenerationDelta(0, (segment("s3"),), ("s1", "s2"))}))
    first, second = await store.manifest(SHARD, "g1"), await store.manifest(SHARD, "g2")
    assert first is not None
    assert second is not None
    assert (set(first.segments), set(second.segments)) == ({"s1"}, {"s3"})


async def test_tombstones_are_numbered_on_after_a_trim(backend: Backend) -> None:
    store = backend.store
    dead = [Tombstone(f"k{n}", n) for n in range(8)]
    head = await store.commit(
        follow(await claimed(store), generations={"g1": GenerationDelta(0, tombstones=tuple(dead[:5]))})
    )
    trimmed = GenerationDelta(5, tombstones=(dead[5],), trim_tombstones_below=3)
    head = await store.commit(follow(head, generations={"g1": trimmed}))

    async def seen(start: int) -> tuple[int, list[Tombstone], int]:
        manifest = await store.manifest(SHARD, "g1", start)
        assert manifest is not None
        return manifest.tombstone_base, list(manifest.tombstones), manifest.next_tombstone

    assert await seen(0) == (3, dead[3:6], 6)
    assert await seen(4) == (4, dead[4:6], 6)
    assert await seen(6) == (6, [], 6)
    assert await seen(99) == (6, [], 6)
    head = await store.commit(follow(head, generations={"g1": GenerationDelta(6, trim_tombstones_below=2)}))
    assert await seen(0) == (3, dead[3:6], 6)
    everything = GenerationDelta(6, tombstones=(dead[6],), trim_tombstones_below=7)
    head = await store.commit(follow(head, generations={"g1": everything}))
    assert await seen(0) == (7, [], 7)
    await store.commit(follow(head, generations={"g1": GenerationDelta(7, tombstones=(dead[7],))}))
    assert await seen(0) == (7, [dead[7]], 8)


async def test_a_manifest_asked_from_a_negative_number_is_an_error(backend: Backend) -> None:
    await claimed(backend.store)
    with pytest.raises(ValueError, match="from_tombstone must not be negative"):
        await backend.store.manifest(SHARD, "g1", -1)


# --- blobs ---------------------------------------------------------------------------------------------


async def test_staged_blobs_expire_until_a_commit_keeps_them(backend: Backend) -> None:
    store = backend.store
    blobs = {"text/é": ALL_BYTES * 40_000, "seg/1": b"", "seg/2": b"x"}
    await store.stage(SHARD, blobs)
    assert all(backend.expires(SHARD, blob) for blob in blobs)
    await store.commit(follow(await claimed(store), keep=("text/é", "seg/1", "seg/1")))
    assert [backend.expires(SHARD, blob) for blob in blobs] == [False, False, True]
    assert await store.blobs(SHARD, [*blobs, "none"]) == [*blobs.values(), None]
    assert await store.blobs(SHARD, []) == []


async def test_a_writer_that_dies_before_its_commit_leaves_only_what_expires(backend: Backend) -> None:
    store = backend.store
    head = await claimed(store)
    before = backend.dump()
    await store.stage(SHARD, {"text/1": b"1", "seg/1": b"2"})
    assert all(backend.expires(SHARD, blob) for blob in ("text/1", "seg/1"))
    for blob in ("text/1", "seg/1"):
        backend.lose_blob(SHARD, blob)
    assert backend.dump() == before
    assert await store.head(SHARD) == head


async def test_replaced_blobs_get_a_grace_period_and_deleted_ones_go_at_once(backend: Backend) -> None:
    store = backend.store
    await store.stage(SHARD, {"old": b"1", "secret": b"2", "both": b"3"})
    head = await store.commit(follow(await claimed(store), keep=("old", "secret", "both")))
    await store.commit(follow(head, expire=("old", "both", "never"), unlink=("secret", "both", "never")))
    assert await store.blobs(SHARD, ["old", "secret", "both", "never"]) == [b"1", None, None, None]
    assert backend.expires(SHARD, "old")


async def test_staging_again_what_is_kept_does_not_make_it_expire(backend: Backend) -> None:
    store = backend.store
    await store.stage(SHARD, {"kept": b"1", "empty": b"", "staged": b"2"})
    await store.commit(follow(await claimed(store), keep=("kept", "empty")))
    await store.stage(SHARD, {"kept": b"1", "empty": b"", "staged": b"2", "new": b"3"})
    expiring = [backend.expires(SHARD, blob) for blob in ("kept", "empty", "staged", "new")]
    assert expiring == [False, False, True, True]


async def test_an_id_taken_by_other_bytes_is_refused_and_the_bytes_stay(backend: Backend) -> None:
    store = backend.store
    await store.stage(SHARD, {"staged": b"1", "kept": b"1"})
    await store.commit(follow(await claimed(store), keep=("kept",)))
    for blob in ("staged", "kept"):
        with pytest.raises(SequenceError, match=f"blob {blob} holds other bytes"):
            await store.stage(SHARD, {blob: b"2"})
    assert await store.blobs(SHARD, ["staged", "kept"]) == [b"1", b"1"]


async def test_a_blob_lost_before_its_commit_can_be_staged_again(backend: Backend) -> None:
    store = backend.store
    head = await claimed(store)
    await store.stage(SHARD, {"b": b"1"})
    backend.lose_blob(SHARD, "b")
    with pytest.raises(StagingError, match=r"tessera\.documents/3: staged blob b is gone"):
        await store.commit(follow(head, keep=("b",)))
    await store.stage(SHARD, {"b": b"1"})
    await store.commit(follow(head, keep=("b",)))
    assert not backend.expires(SHARD, "b")


# --- dead letters --------------------------------------------------------------------------------------


async def test_dead_letters_leave_the_outbox_when_delivered_and_stay_listed(backend: Backend) -> None:
    store = backend.store
    head = await store.commit(follow(await claimed(store), deadletters={"z": b"1", "a": ALL_BYTES}))
    head = await store.commit(follow(head, deadletters={"m": b"3", "z": b"again"}))
    assert await store.outbox(SHARD) == ["z", "a", "m"]
    await store.outbox_done(SHARD, ["z", "m", "none"])
    await store.outbox_done(SHARD, [])
    assert await store.outbox(SHARD) == ["a"]
    await store.commit(follow(head, deadletters={"z": b"third"}))
    assert await store.outbox(SHARD) == ["a"]
    assert await store.deadletters(SHARD) == {"z": b"third", "a": ALL_BYTES, "m": b"3"}


async def test_a_discarded_dead_letter_takes_its_bytes_with_it(backend: Backend) -> None:
    store = backend.store
    await store.stage(SHARD, {deadletter_blob("d1"): b"raw", deadletter_blob("d2"): b"raw"})
    kept = (deadletter_blob("d1"), deadletter_blob("d2"))
    await store.commit(follow(await claimed(store), deadletters={"d1": b"x", "d2": b"y"}, keep=kept))
    assert await store.discard_deadletter(SHARD, "d1")
    assert not await store.discard_deadletter(SHARD, "d1")
    assert await store.deadletters(SHARD) == {"d2": b"y"}
    assert await store.outbox(SHARD) == ["d2"]
    assert await store.blobs(SHARD, kept) == [None, b"raw"]


# --- what belongs to no shard --------------------------------------------------------------------------


async def test_the_first_recorded_partition_count_stays(backend: Backend) -> None:
    store = backend.store
    assert await store.topics() == {}
    assert await store.record_topic("tessera.logs", 4) == 4
    assert await store.record_topic("tessera.logs", 8) == 4
    assert await store.topics() == {"tessera.logs": 4}


async def test_a_store_answers_a_ping(backend: Backend) -> None:
    await backend.store.ping()


# --- refusals ------------------------------------------------------------------------------------------

STANDINGS = {"g1": Standing(complete=True), "g2": Standing(7, False, 1, "f" * 32, 9, "slow: é")}

FULL = Commit(
    SHARD,
    fence=2,
    seq=1,
    applied=11,
    record_digest="new",
    documents={"k": b"new", "gone": None},
    parts={"p": b"new"},
    generations={
        "g1": GenerationDelta(2, (segment("s3", 3),), ("s1",), (Tombstone("k", 0),), trim_tombstones_below=2),
        "g2": GenerationDelta(0, (segment("s3"),)),
    },
    keep=("new",),
    expire=("old",),
    unlink=("older",),
    deadletters={"d": b"new"},
    counters={"c": 1},
    standings=STANDINGS,
)
"""A commit that changes everything, on the shard that :func:`prepared` leaves."""


async def prepared(store: ShardStore) -> None:
    """A shard at fence 2, sequence 1, offset 10, with something of everything in it."""
    await store.claim(SHARD, ["g1", "g2"])
    head = await store.claim(SHARD, [])
    await store.stage(SHARD, {"old": b"1", "older": b"2"})
    one = GenerationDelta(0, (segment("s1", 1), segment("s2", 2)), (), (Tombstone("a", 0), Tombstone("b", 1)))
    await store.commit(
        follow(
            head,
            applied=10,
            record_digest="ten",
            documents={"k": b"1", "gone": b"2"},
            parts={"p": b"1"},
            generations={"g1": one, "g2": EMPTY},
            keep=("old", "older"),
            deadletters={"d0": b"1"},
            counters={"c": 1, "full": 2**53 - 1},
        )
    )
    await store.stage(SHARD, {"new": b"3"})


def second(**changes: Any) -> Commit:
    """:data:`FULL` with the standing of its second generation changed."""
    return replace(FULL, standings=STANDINGS | {"g2": replace(STANDINGS["g2"], **changes)})


EMPTIED = replace(FULL, applied=None, record_digest="", generations={})
"""A commit that may change the live generations."""


def first(**changes: Any) -> Commit:
    """:data:`FULL` with its first generation changed."""
    return replace(FULL, generations=FULL.generations | {"g1": replace(FULL.generations["g1"], **changes)})


REFUSED: dict[str, tuple[Commit, type[Exception], str]] = {
    "an older fence": (replace(FULL, fence=1), FencedError, "fence 1 was replaced by 2"),
    "a fence the store lost": (replace(FULL, fence=3), SequenceError, "holds fence 2, older than ours, 3"),
    "an older sequence": (replace(FULL, seq=0), SequenceError, "at sequence 1, the commit expects 0"),
    "a sequence the store lost": (replace(FULL, seq=2), SequenceError, "at sequence 1, the commit expects 2"),
    "the same offset": (replace(FULL, applied=10), SequenceError, "offset 10 is applied"),
    "an older offset": (replace(FULL, applied=0), SequenceError, "offset 10 is applied"),
    "a live generation left out": (
        replace(FULL, generations={"g1": FULL.generations["g1"]}),
        SequenceError,
        "generations g1, g2 are live, the commit writes g1;",
    ),
    "no generation": (replace(FULL, generations={}), SequenceError, r"the commit writes \(none\)"),
    "a generation not live": (
        replace(FULL, generations=FULL.generations | {"g3": EMPTY}),
        SequenceError,
        "the commit writes g1, g2, g3",
    ),
    "a merge in a generation not live": (
        replace(FULL, applied=None, record_digest="", generations={"g3": EMPTY}),
        SequenceError,
        "the commit writes g3",
    ),
    "fewer tombstones": (
        first(expected_next_tombstone=1, trim_tombstones_below=None, add=()),
        SequenceError,
        "generation g1: the next tombstone is 2, the commit expects 1",
    ),
    "more tombstones": (first(expected_next_tombstone=3), SequenceError, "is 2, the commit expects 3"),
    "a segment that is not there": (first(drop=("s1", "s9")), SequenceError, "no segment s9 to drop"),
    "a segment that is there": (first(add=(segment("s2"),)), SequenceError, "segment s2 is there already"),
    "a trim a segment needs": (first(drop=()), SequenceError, "segment s1 has a watermark below 2"),
    "a trim a new segment needs": (
        first(add=(segment("s3", 1),)),
        SequenceError,
        "segment s3 has a watermark",
    ),
    "a blob never staged": (replace(FULL, keep=("new", "never")), StagingError, "staged blob never is gone"),
    "a counter too great": (replace(FULL, counters={"full": 1}), CorruptionError, "counter full"),
    "another shard": (replace(FULL, shard=OTHER), SequenceError, "tessera.logs/0: the store holds no such"),
    "a fence that is no number": (replace(FULL, fence="2"), ValueError, "fence must be an integer"),  # type: ignore[arg-type]
    "a sequence that is a truth value": (replace(FULL, seq=True), ValueError, "seq must be an integer"),
    "a fraction": (replace(FULL, applied=11.5), ValueError, "applied must be an integer"),  # type: ignore[arg-type]
    "a negative offset": (replace(FULL, applied=-1), ValueError, "applied must be between 0 and"),
    "an offset beyond 2^53": (replace(FULL, applied=2**53), ValueError, "applied must be between 0 and"),
    "a digest of no offset": (
        replace(FULL, applied=None),
        ValueError,
        "record_digest is given, applied is not",
    ),
    "a record that is text": (replace(FULL, documents={"k": "v"}), ValueError, "is str, not bytes"),  # type: ignore[dict-item]
    "an empty key": (replace(FULL, documents={"": b"v"}), ValueError, "not empty"),
    "a key without a UTF-8 form": (replace(FULL, parts={"\ud800": b"v"}), ValueError, "has no UTF-8 form"),
    "a dead letter removed": (replace(FULL, deadletters={"d": None}), ValueError, "discard_deadletter"),  # type: ignore[dict-item]
    "a blob kept and unlinked": (
        replace(FULL, keep=("new", "old")),
        ValueError,
        "blob old is to be kept and",
    ),
    "a segment added twice": (first(add=(segment("s3", 3),) * 2), ValueError, "named twice"),
    "a segment added and dropped": (first(add=(segment("s1", 3),)), ValueError, "named twice"),
    "a watermark ahead": (first(add=(segment("s3", 4),)), ValueError, "watermark of segment s3 must be"),
    "a trim ahead": (first(trim_tombstones_below=4), ValueError, "trim_tombstones_below must be between"),
    "a tombstone below zero": (
        first(tombstones=(Tombstone("k", -1),)),
        ValueError,
        "from_ordinal of k must be between",
    ),
    "a counter that is no number": (replace(FULL, counters={"c": 1.5}), ValueError, "counter c must be"),  # type: ignore[dict-item]
    "a generation adopted with a batch": (
        replace(FULL, standings=STANDINGS | {"g3": Standing()}),
        ValueError,
        "changes the live generations from g1, g2 to g1, g2, g3: it must name no generations and no applied",
    ),
    "a generation given up with an offset": (
        replace(FULL, generations={}, standings={"g1": Standing()}),
        ValueError,
        "from g1, g2 to g1: it must",
    ),
    "a generation exchanged with a merge": (
        replace(FULL, applied=None, record_digest="", standings={"g1": Standing(), "g3": Standing()}),
        ValueError,
        "from g1, g2 to g1, g3: it must",
    ),
    "all generations given up with a batch": (replace(FULL, standings={}), ValueError, r"to \(none\)"),
    "an adoption with an older fence": (
        replace(EMPTIED, fence=1, standings={"g3": Standing()}),
        FencedError,
        "fence 1 was replaced by 2",
    ),
    "an adoption with an older sequence": (
        replace(EMPTIED, seq=0, standings={"g3": Standing()}),
        SequenceError,
        "at sequence 1",
    ),
    "an adoption with a blob never staged": (
        replace(EMPTIED, keep=("never",), standings={"g3": Standing()}),
        StagingError,
        "staged blob never is gone",
    ),
    "an adoption of a name that mixes counters": (
        replace(EMPTIED, standings={"g:3": Standing()}),
        ValueError,
        "must hold neither / nor :",
    ),
    "a standing adopted before any offset": (second(adopted_at=-2), ValueError, "g2: adopted_at must be"),
    "a standing adopted beyond 2^53": (second(adopted_at=2**53), ValueError, "g2: adopted_at must be"),
    "a negative count": (second(documents=-1), ValueError, "g2: documents must be between"),
    "a count beyond 2^53": (second(documents=2**53), ValueError, "g2: documents must be between"),
    "a count that is a fraction": (second(documents=1.0), ValueError, "g2: documents must be an integer"),
    "a time beyond 2^53": (second(started_at_ms=2**53), ValueError, "g2: started_at_ms must be between"),
    "a completeness that is a number": (second(complete=1), ValueError, "g2: complete must be true or false"),
    "a short fingerprint": (second(fingerprint="f" * 31), ValueError, "g2: fingerprint must be 32"),
    "a long fingerprint": (second(fingerprint="f" * 32 + "\n"), ValueError, "g2: fingerprint must be 32"),
    "a fingerprint in capitals": (second(fingerprint="F" * 32), ValueError, "g2: fingerprint must be 32"),
    "a fingerprint that is a number": (second(fingerprint=0), ValueError, "g2: fingerprint must be 32"),
    "a note that is no text": (second(note=None), ValueError, "g2: note must be a string"),
    "a note without a UTF-8 form": (second(note="\ud800"), ValueError, "g2: note: .* has no UTF-8 form"),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_refused_commit_says_why_and_writes_nothing(backend: Backend, why: str) -> None:
    commit, error, message = REFUSED[why]
    await prepared(backend.store)
    before = backend.dump()
    with pytest.raises(error, match=message) as caught:
        await backend.store.commit(commit)
    assert backend.dump() == before
    if isinstance(caught.value, ShardError):
        assert str(commit.shard) in str(caught.value)


async def test_the_commit_that_the_refused_ones_vary_is_applied(backend: Backend) -> None:
    store = backend.store
    await prepared(store)
    head = await store.commit(FULL)
    assert head == Head(SHARD, 2, 2, 11, "new", 0, ("g1", "g2"), STANDINGS)
    manifest = await store.manifest(SHARD, "g1")
    assert manifest is not None
    assert set(manifest.segments) == {"s2", "s3"}
    assert (manifest.tombstone_base, manifest.tombstones) == (2, (Tombstone("k", 0),))
    assert await store.documents(SHARD, ["k", "gone"]) == [b"new", None]
    assert await store.blobs(SHARD, ["new", "old", "older"]) == [b"3", b"1", None]
    assert [backend.expires(SHARD, blob) for blob in ("new", "old")] == [False, True]
    assert await store.outbox(SHARD) == ["d0", "d"]
    assert (await store.counters(SHARD))["c"] == 2


async def test_a_commit_sent_twice_is_applied_once(backend: Backend) -> None:
    await prepared(backend.store)
    await backend.store.commit(FULL)
    after = backend.dump()
    with pytest.raises(SequenceError, match="although its answer was lost"):
        await backend.store.commit(FULL)
    assert backend.dump() == after


async def test_of_two_writers_with_one_fence_one_commit_wins(backend: Backend) -> None:
    head = await claimed(backend.store)
    stores = [backend.another() for _ in range(5)]
    commits = [
        follow(head, applied=n, generations={"g1": EMPTY}, documents={"k": b"%d" % n}, counters={"c": 1})
        for n in range(5)
    ]
    done = await asyncio.gather(
        *(store.commit(commit) for store, commit in zip(stores, commits, strict=True)), return_exceptions=True
    )
    won = [n for n, result in enumerate(done) if isinstance(result, Head)]
    assert len(won) == 1
    assert all(isinstance(result, SequenceError) for n, result in enumerate(done) if n not in won)
    held = await backend.store.head(SHARD)
    assert held == replace(head, seq=1, applied=won[0])
    assert await backend.store.documents(SHARD, ["k"]) == [b"%d" % won[0]]
    assert await backend.store.counters(SHARD) == {"c": 1}


async def test_the_batch_of_a_writer_that_lost_its_partition_is_refused(backend: Backend) -> None:
    zombie, owner = backend.another(), backend.another()
    old = await zombie.claim(SHARD, ["g1"])
    new = await owner.claim(SHARD, ["g1"])
    with pytest.raises(FencedError):
        await zombie.commit(follow(old, documents={"k": b"late"}))
    await owner.commit(follow(new, documents={"k": b"right"}))
    with pytest.raises(FencedError):
        await zombie.commit(follow(old, documents={"k": b"late"}))
    assert await backend.store.documents(SHARD, ["k"]) == [b"right"]


@pytest.mark.parametrize("names", [[""], ["\ud800"], ["g/1"], ["g:1"]])
async def test_a_generation_without_a_proper_name_is_an_error(backend: Backend, names: list[str]) -> None:
    before = backend.dump()
    with pytest.raises(ValueError, match="generation"):
        await backend.store.claim(SHARD, names)
    assert backend.dump() == before
