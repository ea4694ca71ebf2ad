from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.errors import CorruptionError
from tessera.search.shardstate import OVERLAP, ShardState, first_state, next_state
from tessera.store.base import Head, Manifest, SegmentMeta, ShardId, Tombstone

HEAD = Head(ShardId("t", 0), fence=3, seq=10, applied=9, record_digest="d", epoch=0, live=("g1",))
LOG = tuple(Tombstone(f"a/{number}", 0) for number in range(10))


def segments(**watermarks: int) -> dict[str, SegmentMeta]:
    return {name: SegmentMeta(name, watermark, 5, 50) for name, watermark in watermarks.items()}


def known() -> ShardState:
    return first_state(Manifest(HEAD, segments(s=0), 0, LOG)).state


def later(**changes: object) -> Head:
    return replace(HEAD, **{"seq": 11, "applied": 10, "record_digest": "e", **changes})  # type: ignore[arg-type]


def test_a_commit_brings_its_segments_and_its_tombstones_only() -> None:
    new = Tombstone("b/1", 2)
    manifest = Manifest(later(), segments(s=0, u=11), 0, (*LOG, new))
    change = next_state(known(), manifest)
    assert change is not None
    assert (change.gone, change.added, change.tombstones) == (frozenset(), (manifest.segments["u"],), (new,))
    assert change.state.tombstones_from(9) == (LOG[9], new)


@pytest.mark.parametrize("at", range(10))
def test_a_known_tombstone_that_reads_differently_is_not_continued(at: int) -> None:
    rewritten = (*LOG[:at], Tombstone("b/1", 0), *LOG[at + 1 :], Tombstone("b/2", 0))
    assert next_state(known(), Manifest(later(), segments(s=0), 0, rewritten)) is None


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest(later(seq=9), segments(s=0), 0, LOG),
        Manifest(replace(HEAD, record_digest="x"), segments(s=0), 0, LOG),
        Manifest(later(), segments(s=0), 0, LOG[:9]),
        Manifest(later(), {"s": SegmentMeta("s", 0, 6, 50)}, 0, LOG),
        Manifest(later(fence=4), segments(s=0), 9, LOG[9:]),
    ],
    ids=[
        "sequence fell",
        "same sequence, other head",
        "tombstones fell",
        "segment differs",
        "not all compared",
    ],
)
def test_what_contradicts_the_known_state_is_not_continued(manifest: Manifest) -> None:
    assert next_state(known(), manifest) is None


def test_another_writer_is_followed_where_all_tombstones_agree() -> None:
    state = known()
    assert state.ask_from(later(fence=4)) == 0
    assert next_state(state, Manifest(later(fence=4, epoch=1), segments(s=0), 0, LOG)) is not None


def test_tombstones_trimmed_past_what_is_known_are_not_missed() -> None:
    manifest = Manifest(later(seq=90), segments(m=40), 40, (Tombstone("b/1", 0),))
    change = next_state(known(), manifest)
    assert change is not None
    assert change.gone == {"s"}
    assert change.tombstones == (Tombstone("b/1", 0),)


def test_the_log_is_kept_as_far_as_a_segment_or_the_comparison_needs_it() -> None:
    log = tuple(Tombstone(f"a/{number}", 0) for number in range(500))
    for watermark, base in ((100, 100), (490, 500 - OVERLAP)):
        state = first_state(Manifest(HEAD, segments(s=watermark), 0, log)).state.trimmed()
        assert (state.log_base, state.next_tombstone) == (base, 500)
        assert state.ask_from(HEAD) == 500 - OVERLAP


def test_tombstones_that_are_missing_are_an_error() -> None:
    with pytest.raises(CorruptionError, match="segment s needs tombstones from 3, but they begin at 5"):
        first_state(Manifest(HEAD, segments(s=3), 5, LOG))
