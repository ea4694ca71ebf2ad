"""How two generations hold one document, and whether one holds it as its policy cuts it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tessera.generations.inventory import FIELDS, NOTHING, HeldChunks
from tessera.index.analyzer import Analyzer
from tessera.index.segment import ChunkEntry
from tessera.ingestion import UncoveredRange, covered_by_one, lf_lines

SHOWN: Final = 20
"""Ranges and chunks named per document: a report about a document cut quite otherwise must stay readable."""

_BORDERS: Final = FIELDS[:-1]


class _Span(NamedTuple):
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DocumentDifference:
    """How a document is held in two generations.

    ``only_baseline`` and ``only_candidate`` are content ranges that just one of them covers. ``split`` are
    ordinals of baseline chunks that no candidate chunk holds whole, ``joined`` those of candidate chunks that
    hold two or more baseline chunks whole. Of each the first :data:`SHOWN`.
    """

    source: str
    doc_id: str
    only_baseline: tuple[UncoveredRange, ...] = ()
    only_candidate: tuple[UncoveredRange, ...] = ()
    split: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()


def document_difference(
    key: str, text: str, is_log: bool, baseline: HeldChunks | None, candidate: HeldChunks | None
) -> DocumentDifference:
    """The difference between what two generations hold of ``text``; log's lines end at LF only."""
    lines = text if is_log else lf_lines(text)
    ours, theirs = _spans(baseline), _spans(candidate)
    source, _, doc_id = key.partition("/")
    split, joined = split_and_joined(baseline, candidate)
    return DocumentDifference(
        source,
        doc_id,
        only_baseline=tuple(covered_by_one(lines, ours, theirs)[:SHOWN]),
        only_candidate=tuple(covered_by_one(lines, theirs, ours)[:SHOWN]),
        split=split[:SHOWN],
        joined=joined[:SHOWN],
    )


def split_and_joined(
    baseline: HeldChunks | None, candidate: HeldChunks | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ordinals of split baseline chunks and of joined candidate chunks, see :class:`DocumentDifference`.

    Starts and ends of a document's chunks rise, so a chunk can only be inside the last that starts before it.
    """
    starts, ends = _column(baseline, "start"), _column(baseline, "end")
    other_starts, other_ends = _column(candidate, "start"), _column(candidate, "end")
    before = np.searchsorted(other_starts, starts, "right") - 1
    reach = np.concatenate([other_ends, [-1]])[before]
    split = np.flatnonzero(reach < ends)
    inside = np.searchsorted(ends, other_ends, "right") - np.searchsorted(starts, other_starts, "left")
    joined = np.flatnonzero(inside >= 2)
    return tuple(split.tolist()), tuple(joined.tolist())


def cut_fault(held: HeldChunks | None, cut: Sequence[ChunkEntry], data: bytes, analyzer: Analyzer) -> str:
    """What is wrong with the chunks held of ``data``, given how its policy cuts it; empty for nothing."""
    rows = (held.rows if held else NOTHING).tolist()
    if len(rows) != len(cut):
        return f"it holds {len(rows)} chunks, the policy cuts {len(cut)}"
    headings = held.headings if held else ()
    text = data.decode()
    for row, path, entry in zip(rows, headings, cut, strict=True):
        chunk = dict(zip(FIELDS, row, strict=True))
        for name in _BORDERS:
            if chunk[name] != getattr(entry, name):
                return (
                    f"chunk {entry.ordinal}: {name} is {chunk[name]}, the policy cuts {getattr(entry, name)}"
                )
        if path != entry.headings:
            return f"chunk {entry.ordinal}: headings are {path}, the policy gives {entry.headings}"
        if data[chunk["start_byte"] : chunk["end_byte"]] != text[chunk["start"] : chunk["end"]].encode():
            return f"chunk {entry.ordinal}: its bytes are not its characters"
        if chunk["length"] != len(analyzer.terms(entry.indexed_text)):
            return f"chunk {entry.ordinal}: it was analyzed to {chunk['length']} terms, its text gives others"
    return ""


def _spans(held: HeldChunks | None) -> list[_Span]:
    pairs = zip(_column(held, "start").tolist(), _column(held, "end").tolist(), strict=True)
    return [_Span(*pair) for pair in pairs]


def _column(held: HeldChunks | None, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (held.rows if held else NOTHING)[:, FIELDS.index(name)]
