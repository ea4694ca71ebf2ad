"""What each stage does to evidence: chunking, retrieval, packing, grounding. All of it is pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tessera.assembly.passage import MAX_BLANK, Context, Passage
from tessera.generations.cases import Case
from tessera.lab.corpus import Corpus, Question
from tessera.lab.cuts import PolicyCut
from tessera.lab.ranges import Ranges, length, shared, union
from tessera.lab.retrievers import Hit
from tessera.search.leads import section_starts

Fate = Literal["kept", "chunking", "retrieval", "packing", "grounding"]

FATES: Final[tuple[Fate, ...]] = ("kept", "chunking", "retrieval", "packing", "grounding")
"""Kept, or the first stage that lost it: each piece of evidence has exactly one fate in a context."""

_BLANK: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Packed:
    """A question's context, in characters of evidence (``wanted``) and of context (``got``)."""

    wanted: int
    got: int
    shared: int
    used_tokens: int
    budget: int

    @property
    def recall(self) -> float:
        """Share of the evidence that is in the context."""
        return self.shared / self.wanted

    @property
    def precision(self) -> float:
        """Share of the context that is evidence; 0 of an empty one."""
        return self.shared / self.got if self.got else 0.0

    @property
    def iou(self) -> float:
        """What both share of what either has."""
        return self.shared / (self.wanted + self.got - self.shared)


def key_of(case: Case) -> str:
    """``<source>/<doc_id>``."""
    return f"{case.source}/{case.doc_id}"


def evidence_of(question: Question) -> Ranges:
    """All characters of a question's evidence."""
    return union((key_of(case), case.start, case.end) for case in question.cases)


def characters_of(context: Context) -> Ranges:
    """All characters of a context."""
    return union((piece.key, piece.start, piece.end) for piece in context.pieces)


def packed(question: Question, context: Context) -> Packed:
    """How much of a question's evidence a context has, and of what else."""
    wanted, got = evidence_of(question), characters_of(context)
    return Packed(length(wanted), length(got), shared(wanted, got), context.used, context.budget)


def rank_of(case: Case, hits: Sequence[Hit], cut: PolicyCut) -> int | None:
    """The rank, from 1, of the best hit that holds the evidence whole."""
    for rank, hit in enumerate(hits, 1):
        if cut.chunks[hit.chunk].holds(key_of(case), case.start, case.end):
            return rank
    return None


def grounded(case: Case, evidence: str, context: Context) -> bool:
    """Whether one piece of the context has the evidence, verbatim, at its place."""
    return any(
        piece.key == key_of(case)
        and piece.start <= case.start
        and piece.text[case.start - piece.start : case.end - piece.start] == evidence
        for piece in context.pieces
    )


def covered(case: Case, text: str, got: Ranges) -> bool:
    """Whether every character of the evidence that is not blank is in ``got``; ``text`` is the document's."""
    at = case.start
    for start, end in got.get(key_of(case), ()):
        if text[at : max(at, min(start, case.end))].strip(_BLANK):
            return False
        at = max(at, end)
    return not text[at : max(at, case.end)].strip(_BLANK)


def fate_of(case: Case, *, represented: bool, rank: int | None, text: str, context: Context) -> Fate:
    """Where the evidence of a case is lost on its way into a context, if it is.

    What no chunk holds may still be kept: neighbours that are joined mend a cut.
    """
    if grounded(case, text[case.start : case.end], context):
        return "kept"
    if covered(case, text, characters_of(context)):
        return "grounding"
    if not represented:
        return "chunking"
    return "retrieval" if rank is None else "packing"


def passages(hits: Iterable[Hit], cut: PolicyCut, corpus: Corpus) -> list[Passage]:
    """Hits as assembly takes them."""
    return [_passage(hit.chunk, hit.score, cut, corpus) for hit in hits]


def leads(hits: Iterable[Hit], cut: PolicyCut, corpus: Corpus) -> dict[str, list[Passage]]:
    """By each hit's uid the first chunks of the sections that it is in, as a search in service has them."""
    by_document: dict[str, list[int]] = {}
    for hit in hits:
        by_document.setdefault(cut.chunks[hit.chunk].key, []).append(hit.chunk)
    found = {}
    for key, numbers in by_document.items():
        if len(numbers) > 1:
            paths = [chunk.entry.headings for chunk in cut.by_document[key]]
            for number in numbers:
                first = number - cut.chunks[number].entry.ordinal
                starts = section_starts(paths, number - first)
                found[str(number)] = [_passage(first + start, 0.0, cut, corpus) for start in starts]
    return found


def _passage(number: int, score: float, cut: PolicyCut, corpus: Corpus) -> Passage:
    chunk = cut.chunks[number]
    start, end = chunk.span
    text = corpus[chunk.key].text
    return Passage(chunk.key, str(number), start, end, score, text[start:end], _blank_after(text, end))


def _blank_after(text: str, at: int) -> str:
    """The blank space from there on; nothing where it is too long to join what is on both sides of it."""
    behind = text[at : at + MAX_BLANK + 1]
    blank = len(behind) - len(behind.lstrip(_BLANK))
    return behind[:blank] if blank <= MAX_BLANK else ""


def fates(found: Iterable[Fate]) -> Mapping[Fate, int]:
    """How many cases have each fate."""
    counts = dict.fromkeys(FATES, 0)
    for fate in found:
        counts[fate] += 1
    return counts
