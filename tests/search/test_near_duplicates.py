from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.search.near_duplicates import MAX_HITS, near_duplicates

PAGE = "The supplier delivers within ten days. The buyer pays within thirty days of the invoice, in euro."


def test_copies_and_parts_of_a_better_hit_repeat_it() -> None:
    assert near_duplicates([PAGE, PAGE]) == 0.5
    assert near_duplicates([PAGE, PAGE.upper() + "!"]) == 0.5
    assert near_duplicates([PAGE, "The buyer pays within thirty days of the invoice"]) == 0.5
    assert near_duplicates([PAGE, PAGE + " Then " + PAGE, PAGE]) == 2 / 3
    assert near_duplicates(["Yes.", "yes", "No."]) == 1 / 3


def test_what_only_sounds_alike_repeats_nothing() -> None:
    other = "The supplier delivers within nine days. The buyer pays within forty days of the invoice, in yen."
    assert near_duplicates([PAGE, other]) == 0.0
    assert near_duplicates([PAGE]) == near_duplicates([]) == 0.0


@given(st.lists(st.text("ab ", max_size=30), max_size=30))
def test_it_is_a_share_that_the_worst_hit_cannot_lower(texts: list[str]) -> None:
    share = near_duplicates(texts)
    assert 0.0 <= share <= 1.0
    looked = texts[: MAX_HITS - 1]
    if looked:
        assert near_duplicates([*looked, looked[0]]) >= near_duplicates(looked)
