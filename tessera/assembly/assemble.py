"""From hits to a context within a budget. All of it is pure.

``joined@1`` takes hits in their order until the next would pass the budget; chunks of one document that touch
or overlap, or have nothing but blank space between them, become one piece, and what they share counts once.

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

from tessera.assembly.assembly import Assembly
from tessera.assembly.passage import Context, Passage, Piece, Span
from tessera.ingestion import sentence_spans

Measure = Callable[[str], int]
Others = Mapping[str, Sequence[Span]]

_BLANK = " \t\r\n"


def assemble(
    assembly: Assembly,
    passages: Sequence[Passage],
    budget: int,
    measure: Measure,
    others: Others | None = None,
) -> Context:
    """The context made of ``passages``, the best first, that measures ``budget`` at most.

    ``measure`` says what a text takes of the budget: its tokens, or its characters. ``others`` are spans of
    further chunks of the passages' documents, which assembly by sentences needs to know who holds a sentence.
    ValueError where ``budget`` is less than 1.
    """
    if budget < 1:
        raise ValueError(f"a budget is 1 or more, not {budget}")
    hits = passages[: assembly.hits]
    if assembly.name == "joined":
        candidates = [_Candidate(hit.key, hit.start, hit.end, hit.score) for hit in hits]
    else:
        candidates = _sentences(hits, others or {})
    texts = _Texts(hits)
    taken = _taken(assembly, candidates, budget, measure, texts)
    pieces = _pieces(taken, hits, texts)
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
        self._hits: dict[str, list[Passage]] = defaultdict(list)
        self._reach: dict[str, list[int]] = defaultdict(list)
        """How far into the document each hit and those before it reach: where reading may begin."""
        self._blank: dict[tuple[str, int, int], bool] = {}
        for hit in sorted(hits, key=lambda hit: (hit.key, hit.start)):
            self._hits[hit.key].append(hit)
            reach = self._reach[hit.key]
            reach.append(max(reach[-1] if reach else 0, hit.start + len(hit.text) + len(hit.after)))

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
        hits = self._hits[key]
        for number in range(bisect_right(self._reach[key], start), len(hits)):
            hit = hits[number]
            held = hit.text + hit.after
            if hit.start + len(held) <= at:
                continue
            if hit.start >= end:
                break
            if hit.start > at:
                parts.append(missing)
                at = hit.start
            parts.append(held[at - hit.start : end - hit.start])
            at = min(hit.start + len(held), end)
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


def _taken(
    assembly: Assembly, candidates: Sequence[_Candidate], budget: int, measure: Measure, texts: _Texts
) -> dict[str, list[Span]]:
    """Spans of documents, joined and rising, taken until one is worth too little or does not fit."""
    taken: dict[str, list[Span]] = {}
    costs: dict[tuple[str, Span], int] = {}
    used = 0
    best = candidates[0].worth if candidates else 0.0
    for each in candidates:
        share = assembly.floor + (assembly.ceiling - assembly.floor) * used / budget
        if each.worth < share * best:
            break
        before = taken.get(each.key, [])
        joined = _joined([*before, (each.start, each.end)], each.key, texts)
        new, old = set(joined).difference(before), set(before).difference(joined)
        costs |= {(each.key, span): measure(texts.read(each.key, *span)) for span in new}
        after = used + sum(costs[each.key, span] for span in new) - sum(costs[each.key, span] for span in old)
        if after > budget:
            break
        taken[each.key], used = joined, after
    return taken


def _joined(spans: Iterable[Span], key: str, texts: _Texts) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and texts.joins(key, joined[-1][1], start):
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _pieces(taken: Mapping[str, Sequence[Span]], hits: Sequence[Passage], texts: _Texts) -> list[Piece]:
    """Documents by their best hit, each in the order of its text."""
    pieces = []
    for key in dict.fromkeys(hit.key for hit in hits if hit.key in taken):
        for start, end in taken[key]:
            held = [hit for hit in hits if hit.key == key and hit.start < end and start < hit.end]
            text = texts.read(key, start, end)
            pieces.append(Piece(key, start, end, text, tuple(hit.uid for hit in held), held[0].score))
    return pieces
