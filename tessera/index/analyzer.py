"""From text to terms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final, Protocol

import Stemmer

from tessera.errors import SettingsError

_words = re.compile(r"\w+").findall

_STOP_WORDS: Final = frozenset(
    _words(
        """
        a an the this that these those there
        i my me we us our you your he him his she her it its they them their
        who whom whose what which when where why how
        am is are was were be been being has have had do does did
        can could will would shall should may might must
        about as at by for from in into of on onto over than then to with and but if or so not no
        """
    )
)
"""Words that a question holds and its answer need not. Left in, they pull up chunks that share only them."""


class Analyzer(Protocol):
    """Turns texts and queries into terms. An index can only be asked with the analyzer that made it."""

    @property
    def identity(self) -> str:
        """Its name, revision, and the version of everything its terms depend on."""

    def terms(self, text: str) -> list[str]:
        """The terms of a chunk in order, repeated as often as they occur."""

    def query_terms(self, query: str) -> list[str]:
        """The terms to look for, in order, repeated as often as they are asked for."""


class WordsAnalyzer:
    """Terms are the runs of ``\\w`` in the lower-cased text, exactly as ``re`` and ``str.lower`` see them.

    Their rules follow the interpreter's Unicode tables; the identity therefore names their version.
    """

    identity = f"words@1/unicode-{unicodedata.unidata_version}"

    def terms(self, text: str) -> list[str]:
        """The terms of ``text`` in order, repeated as often as they occur."""
        return _words(text.lower())

    def query_terms(self, query: str) -> list[str]:
        """As :meth:`terms`."""
        return self.terms(query)


class EnglishAnalyzer:
    """Words as :class:`WordsAnalyzer` has them, reduced to their stems by Snowball's English stemmer.

    Stop words are indexed, and left out of a query where other words remain: what nobody asked for by itself
    decides no rank, and ``to be or not to be`` is still found. An instance belongs to one thread at a time.
    Stemmer: M. Porter, "Snowball: a language for stemming algorithms", 2001.
    """

    identity = f"english@1/snowball-{Stemmer.version()}/unicode-{unicodedata.unidata_version}"

    def __init__(self) -> None:
        self._stem = Stemmer.Stemmer("english").stemWords

    def terms(self, text: str) -> list[str]:
        """The stems of the words of ``text`` in order, repeated as often as they occur."""
        stems: list[str] = self._stem(_words(text.lower()))
        return stems

    def query_terms(self, query: str) -> list[str]:
        """The stems of the query's words; of all its words where it holds nothing but stop words."""
        words = _words(query.lower())
        stems: list[str] = self._stem([word for word in words if word not in _STOP_WORDS] or words)
        return stems


class RememberingAnalyzer:
    """Remembers what it analyzed: for one batch that several generations cut, many chunks alike."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.identity = analyzer.identity
        self._analyzer = analyzer
        self._remembered: dict[str, list[str]] = {}

    def terms(self, text: str) -> list[str]:
        """As the analyzer's; equal texts are analyzed once. The list must not be changed."""
        terms = self._remembered.get(text)
        if terms is None:
            terms = self._remembered[text] = self._analyzer.terms(text)
        return terms

    def query_terms(self, query: str) -> list[str]:
        """As the analyzer's."""
        return self._analyzer.query_terms(query)


DEFAULT_ANALYZER: Final = "words"

ANALYZERS: Final[Mapping[str, type[WordsAnalyzer] | type[EnglishAnalyzer]]] = {
    "words": WordsAnalyzer,
    "english": EnglishAnalyzer,
}
"""Analyzers by the names that people give."""


def analyzer_named(name: str) -> Analyzer:
    """The analyzer of this name; :class:`~tessera.errors.SettingsError` where there is none."""
    if name not in ANALYZERS:
        raise SettingsError(f"there is no analyzer {name[:50]!r}; there are {', '.join(ANALYZERS)}")
    return ANALYZERS[name]()


def require_analyzer(identity: str, generation: str) -> Analyzer:
    """The analyzer that has this identity.

    Raises :class:`~tessera.errors.SettingsError` where this installation cannot analyze as the generation
    was analyzed: queries would silently miss terms, and its index would mix two sets of rules.
    """
    for analyzer in ANALYZERS.values():
        if analyzer.identity == identity:
            return analyzer()
    known = ", ".join(repr(analyzer.identity) for analyzer in ANALYZERS.values())
    raise SettingsError(
        f"generation {generation!r} was analyzed with {identity!r}, but this installation analyzes with "
        f"{known}: run it with a Python whose unicodedata.unidata_version is the same, and a PyStemmer of "
        "the same version, or create a new generation with this installation and cut over to it"
    )
