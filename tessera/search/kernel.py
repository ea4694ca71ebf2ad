"""The best chunks of one part, exactly.

Terms come rarest first. While a chunk not seen yet could still reach the k-th best score, a term's postings
are added up whole; from then on the remaining, common terms are looked up for the surviving candidates only
(MaxScore: Turtle and Flood 1995). Either way each chunk's score is the sum of the same numbers in the same
order, so it is the same to the last bit as in a plain scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessera.index.merge import Mask
from tessera.index.segment import I64, U32
from tessera.releases import Scorer
from tessera.search.part import F64, Part

SLACK = 1 + 1e-9
"""Bounds are sums in another order than scores; without slack one unit in the last place could lose a tie."""

_DENSE_SHARE = 16
"""Candidates are looked up one by one below 1/16 of a list's length; above, spreading the list is cheaper."""


@dataclass(frozen=True, slots=True)
class _List:
    """The postings of one query term in one part, what they add, and the most they can add."""

    chunks: U32
    codes: U32
    impacts: F64
    weight: float
    bound: float

    def values(self) -> F64:
        if len(self.codes) < len(self.impacts):
            return self.impacts[self.codes] * self.weight
        return (self.impacts * self.weight)[self.codes]


def best_chunks(
    part: Part,
    weights: Sequence[tuple[str, float]],
    scorer: Scorer,
    average: float,
    k: int,
    eligible: Mask | None,
    floor: float,
) -> tuple[F64, I64]:
    """Scores and numbers of the part's best ``k`` chunks, by falling score, then by number.

    ``weights``: terms in canonical order, with their weights. ``eligible``: chunks that may be returned,
    None for all. Chunks that score below ``floor`` may be left out.
    """
    lists = _lists(part, weights, scorer, average)
    rest = [0.0]
    for entry in reversed(lists):
        rest.append(rest[-1] + entry.bound)
    rest = [bound * SLACK for bound in reversed(rest)]
    if not lists or rest[0] < floor:
        return np.empty(0), np.empty(0, np.int64)
    scratch = part.index.borrow_scratch()
    added, floor = _add_up(lists, rest, scratch, k, eligible, floor)
    scores, chunks = _candidates(
        [entry.chunks for entry in lists[:added]], scratch, eligible, floor, rest[added]
    )
    for entry in lists[:added]:
        scratch[entry.chunks] = 0.0
    scores, chunks = _look_up(lists, rest, added, scratch, k, scores, chunks, floor)
    part.index.return_scratch(scratch)
    return _first(scores, chunks, k)


def _lists(part: Part, weights: Sequence[tuple[str, float]], scorer: Scorer, average: float) -> list[_List]:
    index = part.index
    impacts = index.impacts(scorer, average)
    lists = []
    for term, weight in weights:
        row = index.rows.get(term)
        if row is not None and part.frequencies[row]:
            start, end = index.bounds[row], index.bounds[row + 1]
            tf, length = float(index.most_tf[row]), float(index.least_length[row])
            most = tf * (scorer.k1 + 1) / (tf + scorer.k1 * (1 - scorer.b + scorer.b * length / average))
            lists.append(
                _List(index.chunks[start:end], index.codes[start:end], impacts, weight, weight * most)
            )
    return lists


def _add_up(
    lists: Sequence[_List], rest: Sequence[float], scratch: F64, k: int, eligible: Mask | None, floor: float
) -> tuple[int, float]:
    """Add up whole lists until no unseen chunk can reach ``floor``; how many, and the new floor."""
    for number, entry in enumerate(lists):
        if rest[number] < floor:
            return number, floor
        chunks = entry.chunks.astype(np.int64)
        sums = scratch[chunks] + entry.values()
        scratch[chunks] = sums
        if len(sums) >= k:
            floor = _raised(sums if eligible is None else sums[eligible[chunks]], k, floor)
    return len(lists), floor


def _raised(scores: F64, k: int, floor: float) -> float:
    """The k-th greatest of the scores where that is above ``floor``."""
    scores = scores[scores > floor]
    if len(scores) < k:
        return floor
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def _candidates(
    lists: Sequence[U32], scratch: F64, eligible: Mask | None, floor: float, rest: float
) -> tuple[F64, I64]:
    """Scores so far and numbers, rising, of the seen chunks that can still reach ``floor``."""
    chunks = (lists[0] if len(lists) == 1 else np.concatenate(lists)).astype(np.int64)
    scores = scratch[chunks]
    keep = scores * SLACK + rest >= floor
    if eligible is not None:
        keep &= eligible[chunks]
    chunks = chunks[keep]
    if len(lists) > 1:
        chunks.sort()
        chunks = chunks[np.diff(chunks, prepend=-1) > 0]
    return scratch[chunks], chunks


def _look_up(
    lists: Sequence[_List],
    rest: Sequence[float],
    added: int,
    scratch: F64,
    k: int,
    scores: F64,
    chunks: I64,
    floor: float,
) -> tuple[F64, I64]:
    """Add the remaining lists to the candidates, dropping those that cannot reach ``floor`` any more."""
    for number in range(added, len(lists)):
        floor = _raised(scores, k, floor)
        keep = scores * SLACK + rest[number] >= floor
        scores, chunks = scores[keep], chunks[keep]
        entry = lists[number]
        if len(chunks) * _DENSE_SHARE > len(entry.chunks):
            scratch[entry.chunks] = entry.values()
            scores = scores + scratch[chunks]
            scratch[entry.chunks] = 0.0
        else:
            wanted = chunks.astype(np.uint32)
            at = np.minimum(np.searchsorted(entry.chunks, wanted), len(entry.chunks) - 1)
            found = entry.chunks[at] == wanted
            scores[found] += entry.impacts[entry.codes[at[found]]] * entry.weight
    return scores, chunks


def _first(scores: F64, chunks: I64, k: int) -> tuple[F64, I64]:
    """The greatest ``k`` scores; ``chunks`` rises, and the lower number goes first among equals."""
    if len(scores) > k:
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        above = np.flatnonzero(scores > kth)
        ties = np.flatnonzero(scores == kth)[: k - len(above)]
        keep = np.sort(np.concatenate([above, ties]))
        scores, chunks = scores[keep], chunks[keep]
    order = np.argsort(-scores, kind="stable")
    return scores[order], chunks[order]
