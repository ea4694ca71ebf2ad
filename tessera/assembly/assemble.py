"""From hits to a context within a budget. All of it is pure.

``joined@1`` takes hits in their order and leaves out those that would pass the budget; chunks of one document
that touch or overlap, or have nothing but blank space between them, become one piece, and what they share
counts once.

``sections@1`` does the same, and then adds what leads a section: its first chunk, as long as it fits, where
two pieces or more come from that section. Sections go by their best piece, inner ones before outer ones.

``sentences@1`` takes sentences. One is worth the mean score of all chunks that hold it, those that are no
hits counting nothing: overlapping chunks vote, and a sentence amid what answers stands above one at its edge.
The best are taken first, ties in the order of the text, while they are worth enough of the best one (the
more of the budget is used, the more) and until the next would pass the budget; neighbours become one piece.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tessera.assembly.assembly import Assembly
from tessera.assembly.passage import Context, Passage, Piece, Span
from tessera.ingestion import sentence_spans

Measure = Callable[[str], int]
"""What a text takes of the budget: what its two parts do together, unless it is cut within a word."""

Others = Mapping[str, Sequence[Span]]
Leads = Mapping[str, Sequence[Passage]]

_BLANK = " \t\r\n"


def assemble(
    assembly: Assembly,
    passages: Sequence[Passage],
    budget: int,
    measure: Measure,
    others: Others | None = None,
    leads: Leads | None = None,
) -> Context:
    """The context made of ``passages``, the best first, that measures ``budget`` at most.

    ``measure`` says what a text takes of the budget: its words, or its characters. ``others`` are spans of
    further chunks of the passages' documents, which assembly by sentences needs to know who holds a sentence.
    ``leads`` are by a passage's uid the first chunks of the sections that it is in, for assembly by sections.
    ValueError where ``budget`` is less than 1.
    """
    if budget < 1:
        raise ValueError(f"a budget is 1 or more, not {budget}")
    hits = passages[: assembly.hits]
    if assembly.name == "sentences":
        candidates = _sentences(hits, others or {})
    else:
        candidates = [_Candidate(hit.key, hit.start, hit.end, hit.score) for hit in hits]
    leads = leads if assembly.parents and leads is not None else {}
    known = {hit.uid for hit in hits}
    more = {each.uid: each for found in leads.values() for each in found if each.uid not in known}
    packing = _Packing(budget, measure, _Texts([*hits, *more.values()]))
    _take(assembly, candidates, packing)
    leading = _take_leads(assembly, hits, leads, packing)
    pieces = _pieces(packing, [*hits, *(each for each in leading if each.uid in more)])
    if assembly.order == "score":
        pieces.sort(key=lambda piece: (-piece.score, piece.key, piece.start))
    inside = {uid for piece in pieces for uid in piece.uids}
    return Context(
        tuple(pieces),
        sum(measure(piece.text) for piece in pieces),
        budget,
        tuple(hit.uid for hit in hits if hit.uid not in inside),
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A span of a document that may go into the context, and what it is worth."""

    key: str
    start: int
    end: int
    worth: float


class _Texts:
    """The texts of documents, as far as hits hold them."""

    def __init__(self, hits: Iterable[Passage]) -> None:
        self._held: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._reach: dict[str, list[int]] = defaultdict(list)
        """How far into the document each hit and those before it reach: where reading may begin."""
        self._blank: dict[tuple[str, int, int], bool] = {}
        for hit in sorted(hits, key=lambda hit: (hit.key, hit.start)):
            held = hit.text + hit.after
            self._held[hit.key].append((hit.start, held))
            reach = self._reach[hit.key]
            reach.append(max(reach[-1] if reach else 0, hit.start + len(held)))

    def joins(self, key: str, before: int, after: int) -> bool:
        """Whether only blank space, known from some hit, is between two offsets; True where they touch."""
        if before >= after:
            return True
        gap = (key, before, after)
        if gap not in self._blank:
            self._blank[gap] = self.read(key, before, after, "x").strip(_BLANK) == ""
        return self._blank[gap]

    def read(self, key: str, start: int, end: int, missing: str = "") -> str:
        """The text from ``start`` to ``end``; ``missing`` stands for each stretch that no hit holds."""
        parts, at = [], start
        for begin, held in islice(self._held[key], bisect_right(self._reach[key], start), None):
            if begin + len(held) <= at:
                continue
            if begin >= end:
                break
            if begin > at:
                parts.append(missing)
                at = begin
            parts.append(held[at - begin : end - begin])
            at = min(begin + len(held), end)
        if at < end:
            parts.append(missing)
        return "".join(parts)


def _sentences(hits: Sequence[Passage], others: Others) -> list[_Candidate]:
    """The sentences of the hits, best first; ties by their document's best hit, then in its order."""
    votes: dict[tuple[str, int, int], float] = defaultdict(float)
    for hit in hits:
        for start, end in sentence_spans(hit.text):
            votes[hit.key, hit.start + start, hit.start + end] += hit.score
    spans: dict[str, list[Span]] = {key: list(found) for key, found in others.items()}
    for hit in hits:
        spans.setdefault(hit.key, []).append((hit.start, hit.end))
    rank = {key: number for number, key in enumerate(dict.fromkeys(hit.key for hit in hits))}
    candidates = [
        _Candidate(key, start, end, score / _holders(spans[key], start, end))
        for (key, start, end), score in votes.items()
    ]
    return sorted(candidates, key=lambda each: (-each.worth, rank[each.key], each.start))


def _holders(spans: Iterable[Span], start: int, end: int) -> int:
    return sum(first <= start and end <= last for first, last in set(spans))


class _Packing:
    """What has been taken: spans of documents, disjoint and rising, with what each measures."""

    def __init__(self, budget: int, measure: Measure, texts: _Texts) -> None:
        self.texts = texts
        self.taken: dict[str, list[Span]] = {}
        self.used = 0
        self.budget = budget
        self._measure = measure
        self._costs: dict[tuple[str, Span], int] = {}

    def take(self, key: str, span: Span) -> bool:
        """Take the span as well, unless that would pass the budget; whether it was taken."""
        taken = self.taken.setdefault(key, [])
        first, after, whole = self._joined(key, taken, span)
        old = taken[first:after]
        cost = self._cost(key, whole, old)
        used = self.used + cost - sum(self._costs[key, each] for each in old)
        if used > self.budget:
            return False
        taken[first:after] = [whole]
        self._costs[key, whole], self.used = cost, used
        return True

    def _joined(self, key: str, taken: Sequence[Span], span: Span) -> tuple[int, int, Span]:
        """Which of the taken spans the new one joins, from the first to before the second, and all as one."""
        start, end = span
        first = after = bisect_right(taken, span)
        while first and self.texts.joins(key, taken[first - 1][1], start):
            first -= 1
            start, end = min(start, taken[first][0]), max(end, taken[first][1])
        while after < len(taken) and self.texts.joins(key, end, taken[after][0]):
            end = max(end, taken[after][1])
            after += 1
        return first, after, (start, end)

    def _cost(self, key: str, whole: Span, old: Sequence[Span]) -> int:
        """What the whole measures: only what is new of it is read, else a long piece is read ever again."""
        borders = [at for span in old for at in span if whole[0] < at < whole[1]]
        if any(self._within_word(key, at) for at in borders):
            return self._measure(self.texts.read(key, *whole))
        ends = [whole[0], *(span[1] for span in old)]
        starts = [*(span[0] for span in old), whole[1]]
        new = [self.texts.read(key, *gap) for gap in zip(ends, starts, strict=True) if gap[0] < gap[1]]
        return sum(map(self._measure, new)) + sum(self._costs[key, each] for each in old)

    def _within_word(self, key: str, at: int) -> bool:
        around = self.texts.read(key, at - 1, at + 1)
        return all(each == "_" or each.isalnum() for each in around)


def _take(assembly: Assembly, candidates: Sequence[_Candidate], packing: _Packing) -> None:
    """Take candidates until one is worth too little.

    A hit that does not fit is left out; a sentence that does not ends it: those behind are worth less.
    """
    best = candidates[0].worth if candidates else 0.0
    for each in candidates:
        share = assembly.floor + (assembly.ceiling - assembly.floor) * packing.used / packing.budget
        if each.worth < share * best:
            break
        if not packing.take(each.key, (each.start, each.end)) and assembly.name == "sentences":
            break


def _take_leads(
    assembly: Assembly, hits: Sequence[Passage], leads: Leads, packing: _Packing
) -> list[Passage]:
    """Take the first chunks of sections that enough pieces come from, each that fits; those taken."""
    pieces: dict[str, int] = defaultdict(int)
    best: dict[str, float] = defaultdict(float)
    known: dict[str, Passage] = {}
    for key, spans in packing.taken.items():
        for span in spans:
            inside = [hit for hit in hits if hit.key == key and hit.start < span[1] and span[0] < hit.end]
            of_piece = {lead.uid: lead for hit in inside for lead in leads.get(hit.uid, ())}
            known |= of_piece
            for uid in of_piece:
                pieces[uid] += 1
                best[uid] = max(best[uid], inside[0].score)
    paying = [known[uid] for uid, number in pieces.items() if number >= assembly.parents]
    paying.sort(key=lambda each: (-best[each.uid], each.key, -each.start))
    return [lead for lead in paying if packing.take(lead.key, (lead.start, lead.end))]


def _pieces(packing: _Packing, hits: Sequence[Passage]) -> list[Piece]:
    """Documents by their best hit, each in the order of its text."""
    pieces = []
    for key in dict.fromkeys(hit.key for hit in hits if hit.key in packing.taken):
        for start, end in packing.taken[key]:
            held = [hit for hit in hits if hit.key == key and hit.start < end and start < hit.end]
            text = packing.texts.read(key, start, end)
            pieces.append(Piece(key, start, end, text, tuple(hit.uid for hit in held), held[0].score))
    return pieces
