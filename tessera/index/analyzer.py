"""From text to terms."""

from __future__ import annotations

import re
import unicodedata

from tessera.errors import SettingsError

_words = re.compile(r"\w+").findall


class WordsAnalyzer:
    """Terms are the runs of ``\\w`` in the lower-cased text, exactly as ``re`` and ``str.lower`` see them.

    Their rules follow the interpreter's Unicode tables; the identity therefore names their version.
    """

    identity = f"words@1/unicode-{unicodedata.unidata_version}"

    def terms(self, text: str) -> list[str]:
        """The terms of ``text`` in order, repeated as often as they occur."""
        return _words(text.lower())


class RememberingAnalyzer(WordsAnalyzer):
    """Remembers what it analyzed: for one batch that several generations cut, many chunks alike."""

    def __init__(self) -> None:
        self._remembered: dict[str, list[str]] = {}

    def terms(self, text: str) -> list[str]:
        """As :meth:`WordsAnalyzer.terms`; equal texts are analyzed once. The list must not be changed."""
        terms = self._remembered.get(text)
        if terms is None:
            terms = self._remembered[text] = super().terms(text)
        return terms


def require_analyzer(identity: str, generation: str) -> WordsAnalyzer:
    """The analyzer that has this identity.

    Raises :class:`~tessera.errors.SettingsError` where this interpreter cannot analyze as the generation
    was analyzed: queries would silently miss terms, and its index would mix two sets of rules.
    """
    analyzer = WordsAnalyzer()
    if identity == analyzer.identity:
        return analyzer
    raise SettingsError(
        f"generation {generation!r} was analyzed with {identity!r}, but this Python analyzes with "
        f"{analyzer.identity!r}: run it with a Python whose unicodedata.unidata_version is the same, "
        "or create a new generation with this Python and cut over to it"
    )
