from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import SettingsError
from tessera.index.analyzer import WordsAnalyzer, require_analyzer


@given(st.text(max_size=40))
def test_terms_are_the_words_of_the_lower_cased_text(text: str) -> None:
    assert WordsAnalyzer().terms(text) == re.findall(r"\w+", text.lower())


def test_case_is_lowered_before_words_are_cut() -> None:
    # A dotted capital I lowers to two code points, of which the second is not a word character.
    assert WordsAnalyzer().terms("İx ΟΔΟΣ") == ["i", "x", "οδος"]


def test_the_identity_names_the_unicode_version() -> None:
    assert WordsAnalyzer.identity == f"words@1/unicode-{unicodedata.unidata_version}"
    assert require_analyzer(WordsAnalyzer.identity, "g1").identity == WordsAnalyzer.identity


def test_another_identity_is_refused_with_both_named() -> None:
    with pytest.raises(SettingsError, match=r"'g7'.*words@1/unicode-3\.0.*unicodedata\.unidata_version"):
        require_analyzer("words@1/unicode-3.0", "g7")
