"""Which records may be applied, by their offsets alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.ownership import Admission, OwnedShard
from tessera.store.base import ShardId


def owned(next_offset: int = 0) -> OwnedShard:
    writer: Any = SimpleNamespace()
    return OwnedShard(ShardId("tessera.documents", 0), writer, next_offset)


def test_the_next_offset_is_applied() -> None:
    shard = owned(7)
    assert [shard.admit(offset) for offset in (7, 8, 9)] == [Admission.APPLY] * 3
    assert shard.next_offset == 10


def test_an_offset_out_of_turn_asks_for_the_log_again_and_what_follows_it_is_dropped() -> None:
    shard = owned(3)
    assert shard.admit(5) is Admission.REREAD
    assert shard.admit(6) is Admission.DROP
    assert shard.next_offset == 3
    assert [shard.admit(offset) for offset in (3, 4, 5, 6)] == [Admission.APPLY] * 4


def test_an_offset_that_comes_again_in_the_same_place_stands_after_a_real_hole() -> None:
    shard = owned(3)
    assert shard.admit(5) is Admission.REREAD
    assert shard.admit(5) is Admission.APPLY
    assert shard.next_offset == 6


def test_a_log_that_begins_again_before_what_was_read_asks_for_a_new_assignment() -> None:
    shard = owned(3)
    assert shard.admit(0) is Admission.REREAD
    assert shard.admit(0) is Admission.REJOIN


@settings(max_examples=200, deadline=None)
@given(
    offsets=st.sets(st.integers(0, 40), min_size=1).map(sorted),
    lost=st.sets(st.integers(0, 40)),
    buffered=st.integers(1, 8),
)
def test_whatever_is_lost_on_the_way_every_record_of_the_log_is_applied_once_and_in_order(
    offsets: list[int], lost: set[int], buffered: int
) -> None:
    """A log with holes is read through a buffer that loses records once; a seek leaves it as it is."""
    shard = owned()
    applied: list[int] = []
    queue: list[int] = []
    position = 0
    for _ in range(10_000):
        while len(queue) < buffered and (rest := [offset for offset in offsets if offset >= position]):
            position = rest[0] + 1
            # The last record of a log must come through: a loss shows only in what follows it.
            if rest[0] not in lost or rest[0] == offsets[-1]:
                queue.append(rest[0])
            lost.discard(rest[0])
        if not queue:
            break
        offset = queue.pop(0)
        verdict = shard.admit(offset)
        assert verdict is not Admission.REJOIN
        if verdict is Admission.APPLY:
            applied.append(offset)
        elif verdict is Admission.REREAD:
            position = shard.next_offset
    assert applied == offsets
