from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.policies import words


@settings(deadline=None)
@given(st.text() | st.text("a1_ é²\u0301一\u200b𝐀'-\ud800"))
def test_tokens_are_the_maximal_runs_of_word_characters(text: str) -> None:
    expected = [match.start() for match in re.finditer(r"\w+", text)]
    assert words.word_starts(text).tolist() == expected


def test_every_code_point_is_taken_as_by_re() -> None:
    text = "".join(f" {chr(code_point)}" for code_point in range(0x11_0000))
    assert words.word_starts(text).tolist() == [match.start() for match in re.finditer(r"\w+", text)]


@settings(deadline=None)
@given(st.text("ab é  ", max_size=40))
def test_tokens_go_on_across_the_borders_of_blocks(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "BLOCK_SIZE", 3)
        blockwise = words.word_starts(text).tolist()
    assert blockwise == words.word_starts(text).tolist()
