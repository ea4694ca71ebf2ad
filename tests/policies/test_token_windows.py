from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.policies import token_windows
from tessera.policies.windows import windows_by_room

CASES = Path(__file__).parent.parent / "cases" / "token_windows.jsonl"


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in map(json.loads, CASES.read_text().splitlines())]
)
def test_acceptance_case(case: dict[str, object]) -> None:
    window = (case["n_tokens"], case["size"], case["overlap"])
    if case["expected"] == "ValueError":
        with pytest.raises(ValueError, match=r"^(size|overlap) is "):
            token_windows(*window)
    else:
        assert token_windows(*window) == [tuple(expected) for expected in case["expected"]]


@given(st.integers(0, 60), st.integers(1, 12), st.data())
def test_windows_cover_all_tokens_and_none_lies_inside_its_predecessor(
    n: int, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    windows = token_windows(n, size, overlap)
    assert {token for start, end in windows for token in range(start, end)} == set(range(n))
    assert all(0 < end - start <= size for start, end in windows)
    assert all(end - start == size for start, end in windows[:-1])
    for (_, end), (next_start, next_end) in pairwise(windows):
        assert end - next_start == overlap
        assert next_end > end


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ((1, 4, 3), [(0, 1)]),
        ((5, 4, 2), [(0, 4), (2, 5)]),
        ((4, 4, 3), [(0, 4)]),
        ((6, 4, 2), [(0, 4), (2, 6)]),
    ],
)
def test_short_and_exact_ends(window: tuple[int, int, int], expected: list[tuple[int, int]]) -> None:
    assert token_windows(*window) == expected


def test_a_negative_count_is_ill_formed() -> None:
    with pytest.raises(ValueError, match="n_tokens is -1"):
        token_windows(-1, 4, 0)


@given(st.integers(0, 60), st.integers(1, 12), st.data())
def test_windows_with_the_same_room_everywhere_are_token_windows(
    n: int, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    assert windows_by_room(n, size, overlap, lambda first: size) == token_windows(n, size, overlap)


@given(st.lists(st.integers(1, 12), max_size=60), st.integers(0, 11))
def test_windows_fill_their_room_and_reach_back_as_far_as_they_still_go_on(
    rooms: list[int], overlap: int
) -> None:
    windows = windows_by_room(len(rooms), 12, overlap, rooms.__getitem__)
    assert {token for start, end in windows for token in range(start, end)} == set(range(len(rooms)))
    assert all(end == min(start + rooms[start], len(rooms)) for start, end in windows)
    for (start, end), (next_start, next_end) in pairwise(windows):
        assert start < next_start
        assert end < next_end
        assert 0 <= end - next_start <= overlap * (end - start) / 12


def test_windows_of_half_the_size_repeat_no_token_more_often_than_whole_ones() -> None:
    windows = windows_by_room(10_000, 200, 99, lambda first: 100)
    assert len(windows) == 10_000 // (100 - 49)
