from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import Batch, batches, contents

from tessera.errors import CorruptionError
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.builder import build_segment
from tessera.index.merge import MergePolicy, dead_chunks, merge, merge_traced
from tessera.index.segment import ChunkEntry, DocumentEntry
from tessera.store.base import SegmentMeta, Tombstone

ANALYZER = WordsAnalyzer()


@settings(max_examples=100, deadline=None)
@given(batches, st.data())
def test_merging_equals_building_afresh_from_what_is_alive(batch: Batch, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, 4))
    split: list[Batch] = [[] for _ in range(parts)]
    alive: Batch = []
    masks: list[dict[tuple[str, str, int], bool]] = [{} for _ in range(parts)]
    for entry, chunks in batch:
        owner = [data.draw(st.integers(0, parts - 1)) for _ in chunks]
        dead = [data.draw(st.booleans()) for _ in chunks]
        for part in range(parts):
            mine = [chunk for chunk, owned in zip(chunks, owner, strict=True) if owned == part]
            split[part].append((entry._replace(seq=part, text_id=f"t{part}"), mine))
        for chunk, owned, gone in zip(chunks, owner, dead, strict=True):
            masks[owned][entry.source, entry.doc_id, chunk.ordinal] = gone
        left = [(chunk, owned) for chunk, owned, gone in zip(chunks, owner, dead, strict=True) if not gone]
        newest = max((owned for _, owned in left), default=0)
        alive.append((entry._replace(seq=newest, text_id=f"t{newest}"), [chunk for chunk, _ in left]))
    given_parts = []
    for pieces, mask in zip(split, masks, strict=True):
        segment = build_segment(pieces, ANALYZER)
        names = [segment.documents[row][:2] for row in segment.column("document").tolist()]
        ordinals = segment.column("ordinal").tolist()
        dead_mask = [mask[(*name, ordinal)] for name, ordinal in zip(names, ordinals, strict=True)]
        given_parts.append((segment, np.array(dead_mask, np.bool_)))
    assert contents(merge(given_parts)) == contents(build_segment(alive, ANALYZER))


def test_the_trace_tells_where_each_chunk_came_from() -> None:
    first = build_segment([(_entry("b"), [_chunk(0), _chunk(1)])], ANALYZER)
    second = build_segment([(_entry("a"), [_chunk(0)]), (_entry("b"), [_chunk(2)])], ANALYZER)
    merged, trace = merge_traced([(first, np.array([False, True])), (second, np.array([False, False]))])
    assert [merged.documents[row].doc_id for row in merged.column("document")] == ["a", "b", "b"]
    assert trace.tolist() == [2, 0, 3]


def test_a_chunk_alive_in_two_segments_is_refused() -> None:
    segment = build_segment([(_entry("b"), [_chunk(7)])], ANALYZER)
    with pytest.raises(CorruptionError, match="chunk 7 of a/b is alive in two segments"):
        merge([(segment, np.zeros(1, np.bool_)), (segment, np.zeros(1, np.bool_))])


def test_nothing_merges_to_nothing() -> None:
    assert merge([]).chunks == 0
    assert merge([(build_segment([], ANALYZER), np.zeros(0, np.bool_))]).terms == ()


def test_a_tombstone_kills_its_documents_chunks_from_an_ordinal_on() -> None:
    segment = build_segment(
        [(_entry("b"), [_chunk(0), _chunk(4), _chunk(5)]), (_entry("b/c"), [_chunk(9)])], ANALYZER
    )

    def dead(*tombstones: Tombstone) -> list[bool]:
        return dead_chunks(segment, tombstones).tolist()

    assert dead() == [False] * 4
    assert dead(Tombstone("a/b", 4)) == [False, True, True, False]
    assert dead(Tombstone("a/b", 0), Tombstone("a/b", 5)) == [True, True, True, False]
    assert dead(Tombstone("a/b/c", 9)) == [False, False, False, True]
    assert dead(Tombstone("a", 0), Tombstone("z/b", 0)) == [False] * 4


def _entry(doc_id: str) -> DocumentEntry:
    return DocumentEntry("a", doc_id, 1, "sha256:0", (), "text/plain", "t", 9, 1)


def _chunk(ordinal: int) -> ChunkEntry:
    return ChunkEntry(ordinal, 0, 1, 0, 1, 1, 1, 0, 1, (), "x")


def _metas(*sizes: int, watermark: int = 0) -> dict[str, SegmentMeta]:
    return {f"s{n}": SegmentMeta(f"s{n}", watermark, size, size) for n, size in enumerate(sizes)}


def test_a_full_tier_is_merged_and_a_tier_that_is_not_full_is_left() -> None:
    policy = MergePolicy()
    assert policy.plan(_metas(*[200] * 7), 0) is None
    assert policy.plan(_metas(*[200] * 7, 5000), 0) is None
    assert policy.plan(_metas(*[200] * 8, 5000), 0) == [f"s{n}" for n in range(8)]


def test_merging_as_planned_keeps_segments_few_and_rewrites_few_times() -> None:
    policy, sizes, rewritten, total, most = MergePolicy(), {}, 0, 0, 0
    for number in range(3000):
        sizes[f"n{number}"] = 200
        total += 200
        while chosen := policy.plan({k: SegmentMeta(k, 0, size, 1) for k, size in sizes.items()}, 0):
            merged = sum(sizes.pop(name) for name in chosen)
            rewritten += merged
            sizes[f"m{number}-{merged}"] = merged
        most = max(most, len(sizes))
    assert most <= 7 * 5
    assert rewritten / total < 5


def test_a_merged_segment_stays_within_the_cap() -> None:
    policy = MergePolicy(max_chunks=1000, floor_chunks=100)
    assert policy.plan(_metas(*[400] * 8), 0) == ["s0", "s1"]
    assert policy.plan(_metas(*[501] * 20), 0) is None


def test_a_long_tombstone_log_has_the_oldest_segments_rewritten() -> None:
    policy = MergePolicy(max_tombstones=100)
    metas = {
        "old": SegmentMeta("old", 10, 5000, 1),
        "older": SegmentMeta("older", 3, 90_000, 1),
        "new": SegmentMeta("new", 100, 200, 1),
    }
    assert policy.plan(metas, 103) is None
    assert policy.plan(metas, 104) == ["older", "old"]


def test_a_segment_that_is_mostly_dead_is_rewritten() -> None:
    policy = MergePolicy()
    assert policy.plan(_metas(1000, 5000), 0, dead={"s1": 2500}) is None
    assert policy.plan(_metas(1000, 5000), 0, dead={"s1": 2501}) == ["s1"]
