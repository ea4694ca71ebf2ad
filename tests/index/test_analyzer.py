from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import SettingsError
from tessera.index.analyzer import (
    EnglishAnalyzer,
    RememberingAnalyzer,
    WordsAnalyzer,
    analyzer_named,
    require_analyzer,
)


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


def test_english_terms_are_stems_and_stop_words_are_indexed() -> None:
    analyzer = EnglishAnalyzer()
    assert analyzer.terms("The Renewals renew: renewing 2024 日本") == [
        "the",
        "renew",
        "renew",
        "renew",
        "2024",
        "日本",
    ]


@given(st.text(max_size=40))
def test_english_stems_each_word_by_itself(text: str) -> None:
    analyzer, words = EnglishAnalyzer(), WordsAnalyzer().terms(text)
    assert analyzer.terms(text) == [stem for word in words for stem in analyzer.terms(word)]


def test_a_question_is_asked_without_its_stop_words() -> None:
    analyzer = EnglishAnalyzer()
    assert analyzer.query_terms("What is the renewal term of it?") == ["renew", "term"]
    assert analyzer.query_terms("To be, or not to be") == analyzer.terms("To be, or not to be")
    assert WordsAnalyzer().query_terms("what is it") == ["what", "is", "it"]


def test_each_analyzer_is_found_by_its_identity_and_by_its_name() -> None:
    for name in ("words", "english"):
        analyzer = analyzer_named(name)
        assert type(require_analyzer(analyzer.identity, "g1")) is type(analyzer)
    with pytest.raises(SettingsError, match="no analyzer 'german'; there are words, english"):
        analyzer_named("german")


def test_remembered_terms_are_those_of_the_analyzer_it_remembers_for() -> None:
    remembering = RememberingAnalyzer(EnglishAnalyzer())
    assert remembering.identity == EnglishAnalyzer.identity
    assert remembering.terms("terms renewed") == remembering.terms("terms renewed") == ["term", "renew"]
    assert remembering.query_terms("the terms") == ["term"]
