"""What evidence and borders look like: blocks, sections, scripts.

Documents are outlined as CommonMark, plain text too; a log is lines. Scripts are told by the names that
Unicode gives letters: no language is guessed.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tessera.ingestion import lf_lines, markdown_blocks, sentence_spans
from tessera.lab.corpus import Corpus, LabDocument, Question
from tessera.lab.stages import key_of
from tessera.policies.words import word_count

_KINDS: Final = {"fence": "code", "item": "list"}
_BY_LINES: Final = ("table", "code", "log")
"""Kinds whose lines stand for themselves: a border between two of them cuts no sentence."""

LENGTHS: Final = (10, 25, 50, 100, 200)
"""Upper bounds of the classes of evidence length, in tokens; the last class has none."""


@dataclass(frozen=True)
class Outline:
    """A document's blocks, as (start, end, kind), rising and disjoint."""

    document: LabDocument
    _found: dict[int, list[tuple[int, int]]] = field(default_factory=dict, repr=False)

    @cached_property
    def blocks(self) -> Sequence[tuple[int, int, str]]:
        """``heading``, ``paragraph``, ``code``, ``table``, ``list``, ``other``; a log is one ``log``."""
        if self.document.is_log:
            return [(0, len(self.document.text), "log")]
        blocks = markdown_blocks(lf_lines(self.document.text))
        return [(block.start, block.end, _KINDS.get(block.kind, block.kind)) for block in blocks]

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _, _ in self.blocks]

    @cached_property
    def _sections(self) -> list[int]:
        return [start for start, _, kind in self.blocks if kind == "heading"]

    def section(self, at: int) -> int:
        """The number of the section that holds this code point: headings that begin at or before it."""
        return bisect_right(self._sections, at)

    def kinds(self, start: int, end: int) -> str:
        """The kinds of blocks that share a character with the span, such as ``paragraph + list``."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        found: dict[str, None] = {}
        for block_start, block_end, kind in self.blocks[first:]:
            if block_start >= end:
                break
            if block_end > start:
                found[kind] = None
        return " + ".join(found) or "other"

    def place(self, at: int) -> str:
        """What a border at this code point cuts: ``between blocks``, or inside of what."""
        number = bisect_right(self._starts, at) - 1
        if number < 0:
            return "between blocks"
        start, end, kind = self.blocks[number]
        if not start < at < end:
            return "between blocks"
        if kind in _BY_LINES:
            text = self.document.text
            whole = text[at - 1] == "\n" or text[at] in "\r\n"
            return f"{kind}: between lines" if whole else f"{kind}: inside a line"
        spans = self._sentences(number)
        before = bisect_right(spans, (at - start, 0)) - 1
        inside = before >= 0 and spans[before][0] < at - start < spans[before][1]
        return f"{kind}: inside a sentence" if inside else f"{kind}: between sentences"

    def _sentences(self, number: int) -> list[tuple[int, int]]:
        """Spans of a block's sentences from its start; found once, for some blocks have thousands."""
        if number not in self._found:
            start, end, _ = self.blocks[number]
            self._found[number] = sentence_spans(self.document.text[start:end])
        return self._found[number]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a case's evidence looks like. ``begins`` and ``ends`` are places of its two borders."""

    tokens: int
    kinds: str
    script: str
    media_type: str
    cross_section: bool
    begins: str
    ends: str
    family: str

    @property
    def length(self) -> str:
        """Its class of length."""
        return length_class(self.tokens)

    def group(self, dimension: str) -> str:
        """The group that it counts with in a dimension of :data:`DIMENSIONS`."""
        if dimension == "cross_section":
            return "several sections" if self.cross_section else "one section"
        return str(getattr(self, dimension))


DIMENSIONS: Final = ("family", "kinds", "cross_section", "length", "script", "media_type")
"""What results are broken down by."""


def length_class(tokens: int) -> str:
    """``1-10``, ``11-25``, …, ``201+``."""
    least = 1
    for most in LENGTHS:
        if tokens <= most:
            return f"{least}-{most}"
        least = most + 1
    return f"{least}+"


def script_of(text: str) -> str:
    """The script of most letters, as the first word of their names in Unicode; ``none`` without a letter."""
    scripts = Counter(unicodedata.name(each, "unknown").split()[0] for each in text if each.isalpha())
    return scripts.most_common(1)[0][0].lower() if scripts else "none"


def outlines(corpus: Corpus) -> dict[str, Outline]:
    """An outline of every document, made when it is looked at."""
    return {key: Outline(document) for key, document in corpus.items()}


def shapes_of(questions: Sequence[Question], outlined: dict[str, Outline]) -> dict[str, Shape]:
    """The shape of every case by its id. A question whose evidence is in several sections makes all its
    cases cross-section ones."""
    found: dict[str, Shape] = {}
    for question in questions:
        sections = {
            (key_of(case), outlined[key_of(case)].section(at))
            for case in question.cases
            for at in (case.start, case.end - 1)
        }
        for case in question.cases:
            outline = outlined[key_of(case)]
            text = outline.document.text[case.start : case.end]
            found[case.id] = Shape(
                word_count(text),
                outline.kinds(case.start, case.end),
                script_of(text),
                outline.document.media_type,
                len(sections) > 1,
                outline.place(case.start),
                outline.place(case.end),
                case.group,
            )
    return found
