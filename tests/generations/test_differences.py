from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tessera.generations.differences import document_difference, split_and_joined
from tessera.generations.inventory import FIELDS, HeldChunks
from tessera.index.segment import DocumentEntry

ENTRY = DocumentEntry("s", "d.md", 1, "", (), "text/markdown", "0-0", 0, 1)


def held(*spans: tuple[int, int]) -> HeldChunks | None:
    """Chunks with these spans; None where there is none, as an inventory has it."""
    if not spans:
        return None
    rows = np.zeros((len(spans), len(FIELDS)), np.int64)
    rows[:, 0] = np.arange(len(spans))
    rows[:, 1:3] = spans
    return HeldChunks(ENTRY, rows, ((),) * len(spans))


def test_ranges_that_one_side_covers_alone_are_named() -> None:
    text = "one\n\ntwo\n\nthree\n\nfour\n"
    found = document_difference("s/d.md", text, False, held((0, 3), (5, 8)), held((5, 8), (10, 15)))
    assert [range_[:] for range_ in found.only_baseline] == [(0, 3, 1, 1)]
    assert [range_[:] for range_ in found.only_candidate] == [(10, 15, 5, 5)]
    assert (found.source, found.doc_id, found.split, found.joined) == ("s", "d.md", (0,), ())


def test_blank_space_between_chunks_is_no_difference() -> None:
    found = document_difference("s/d.md", "one\n\ntwo\n", False, held((0, 3), (5, 8)), held((0, 8)))
    assert (found.only_baseline, found.only_candidate) == ((), ())
    assert (found.split, found.joined) == ((), (0,))


def test_a_document_with_cr_lines_is_seen_by_its_lines() -> None:
    found = document_difference("s/d.md", "one\r\rtwo\r", False, held((0, 3), (5, 8)), None)
    assert [range_[:] for range_ in found.only_baseline] == [(0, 8, 1, 3)]


RISING = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=8).map(
    lambda pairs: _rising(sorted(pairs))
)


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for start, length in pairs:
        end = start + length
        if not spans or (start > spans[-1][0] and end > spans[-1][1]):
            spans.append((start, end))
    return spans


@given(RISING, RISING)
def test_split_and_joined_equal_those_of_looking_at_every_pair(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    def inside(small: tuple[int, int], large: tuple[int, int]) -> bool:
        return large[0] <= small[0] and small[1] <= large[1]

    split = tuple(n for n, one in enumerate(ours) if not any(inside(one, other) for other in theirs))
    joined = tuple(n for n, other in enumerate(theirs) if sum(inside(one, other) for one in ours) > 1)
    assert split_and_joined(held(*ours), held(*theirs)) == (split, joined)
