"""From several segments to one, without what is dead; and which segments to merge when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from tessera.errors import CorruptionError
from tessera.index.segment import COLUMNS, I64, U32, DocumentEntry, Segment
from tessera.store.base import SegmentMeta, Tombstone

Mask = npt.NDArray[np.bool_]

_DOCUMENT, _ORDINAL, _HEADING = (COLUMNS.index(name) for name in ("document", "ordinal", "heading"))
_ALIVE = np.int64(2**32)
"""Above every ordinal."""


def dead_chunks(segment: Segment, tombstones: Iterable[Tombstone]) -> Mask:
    """Which of the segment's chunks (C) these tombstones kill.

    Give only tombstones that apply: those of the segment's own shard and generation, numbered from its
    watermark on.
    """
    first_dead = np.full(len(segment.documents), _ALIVE)
    for key, from_ordinal in tombstones:
        source, _, doc_id = key.partition("/")
        row = segment.document_row(source, doc_id)
        if row is not None:
            first_dead[row] = min(first_dead[row], from_ordinal)
    dead: Mask = segment.column("ordinal") >= first_dead[segment.column("document")]
    return dead


def merge(parts: Sequence[tuple[Segment, Mask]]) -> Segment:
    """One segment of all chunks that are not dead, equal to one built from them afresh.

    Each part is a segment and its mask of dead chunks. A document with chunks in several segments keeps
    the entry with the greatest ``seq`` among them. Raises
    :class:`~tessera.errors.CorruptionError` where a chunk is alive twice.
    """
    return merge_traced(parts)[0]


def merge_traced(parts: Sequence[tuple[Segment, Mask]]) -> tuple[Segment, I64]:
    """Like :func:`merge`; also each resulting chunk's number among all chunks given, dead ones counted."""
    alive = [np.flatnonzero(~dead) for _, dead in parts]
    segments = [segment for segment, _ in parts]
    columns = _concatenate([segment.columns[rows] for segment, rows in zip(segments, alive, strict=True)])
    documents = _merge_documents(segments, alive, columns)
    headings = _merge_headings(segments, alive, columns)
    order = _chunk_order(documents, columns)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    bounds = np.cumsum([0, *map(len, alive)])
    numbers = [number[start:end] for start, end in pairwise(bounds)]
    terms, term_start, posting_chunk, posting_tf = _merge_postings(parts, numbers)
    offsets = np.cumsum([0, *(segment.chunks for segment in segments)])
    given = [rows + offset for rows, offset in zip(alive, offsets, strict=False)]
    merged = Segment(
        documents, headings, terms, columns[order].astype(np.uint32), term_start, posting_chunk, posting_tf
    )
    return merged, np.concatenate([np.empty(0, np.int64), *given])[order]


def _concatenate(columns: Sequence[U32]) -> I64:
    return np.concatenate([np.empty((0, len(COLUMNS)), np.int64), *columns])


def _merge_documents(
    segments: Sequence[Segment], alive: Sequence[I64], columns: I64
) -> tuple[DocumentEntry, ...]:
    """The entries of documents with a chunk alive; rewrites the document column to their rows."""
    entries: dict[tuple[str, str], DocumentEntry] = {}
    used: list[list[DocumentEntry]] = []
    position = 0
    for segment, rows in zip(segments, alive, strict=True):
        column = columns[position : position + len(rows), _DOCUMENT]
        distinct, column[:] = np.unique(column, return_inverse=True)
        used.append([segment.documents[row] for row in distinct.tolist()])
        for entry in used[-1]:
            held = entries.get(entry[:2])
            if held is None or held.seq < entry.seq:
                entries[entry[:2]] = entry
        position += len(rows)
    keys = sorted(entries)
    row_of = {key: row for row, key in enumerate(keys)}
    position = 0
    for names, rows in zip(used, alive, strict=True):
        column = columns[position : position + len(rows), _DOCUMENT]
        column[:] = np.array([row_of[entry[:2]] for entry in names], np.int64)[column]
        position += len(rows)
    return tuple(entries[key] for key in keys)


def _merge_headings(
    segments: Sequence[Segment], alive: Sequence[I64], columns: I64
) -> tuple[tuple[str, ...], ...]:
    """The heading paths in use, sorted; rewrites the heading column to their rows."""
    used: list[list[tuple[str, ...]]] = []
    position = 0
    for segment, rows in zip(segments, alive, strict=True):
        column = columns[position : position + len(rows), _HEADING]
        distinct, column[:] = np.unique(column, return_inverse=True)
        used.append([segment.headings[row] for row in distinct.tolist()])
        position += len(rows)
    headings = sorted(set(chain.from_iterable(used)))
    row_of = {path: row for row, path in enumerate(headings)}
    position = 0
    for paths, rows in zip(used, alive, strict=True):
        column = columns[position : position + len(rows), _HEADING]
        column[:] = np.array([row_of[path] for path in paths], np.int64)[column]
        position += len(rows)
    return tuple(headings)


def _chunk_order(documents: Sequence[DocumentEntry], columns: I64) -> I64:
    """The permutation that sorts chunks by (document, ordinal)."""
    keys = (columns[:, _DOCUMENT] << 32) | columns[:, _ORDINAL]
    order = np.argsort(keys)
    keys = keys[order]
    twice = np.flatnonzero(keys[1:] == keys[:-1])
    if len(twice):
        entry = documents[int(keys[twice[0]]) >> 32]
        raise CorruptionError(
            f"chunk {int(keys[twice[0]]) & 0xFFFFFFFF} of {entry.key} is alive in two segments: publish the "
            "document again, or rebuild the generation"
        )
    return order


def _merge_postings(
    parts: Sequence[tuple[Segment, Mask]], numbers: Sequence[I64]
) -> tuple[tuple[str, ...], I64, U32, U32]:
    """Terms with a posting alive and the postings, under the chunks' new ``numbers`` (of those alive)."""
    live = []
    for (segment, dead), number in zip(parts, numbers, strict=True):
        renumbered = np.full(segment.chunks, -1, np.int64)
        renumbered[~dead] = number
        chunk = renumbered[segment.posting_chunk]
        keep = chunk >= 0
        term = np.repeat(np.arange(len(segment.terms)), np.diff(segment.term_start))[keep]
        distinct, term = np.unique(term, return_inverse=True)
        live.append(
            ([segment.terms[row] for row in distinct.tolist()], term, chunk[keep], segment.posting_tf[keep])
        )
    terms = sorted(set(chain.from_iterable(names for names, *_ in live)))
    row_of = {term: row for row, term in enumerate(terms)}
    chunks = max(sum(map(len, numbers)), 1)
    keys, frequencies = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    for names, term, chunk, tf in live:
        rows = np.fromiter(map(row_of.__getitem__, names), np.int64, len(names))
        keys.append(rows[term] * chunks + chunk)
        frequencies.append(tf)
    key = np.concatenate(keys)
    order = np.argsort(key)
    key = key[order]
    term_start = np.searchsorted(key, np.arange(len(terms) + 1, dtype=np.int64) * chunks).astype(np.int64)
    return tuple(terms), term_start, (key % chunks).astype(np.uint32), np.concatenate(frequencies)[order]


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Which segments of one generation in one shard to merge next.

    Tiered: segments fall into tiers whose sizes differ by ``fan_out``; a tier that holds ``fan_out`` of
    them is merged into one of the next. So each chunk is rewritten about once per tier, and a shard keeps
    fewer than ``fan_out`` segments per tier. Measured with 20 % updates, 8 rewrites 3.7 times and keeps 11
    segments; 4 rewrites more, 16 keeps many more.

    ``floor_chunks``: segments below it are one tier; without it single-document commits would climb
    through many tiers. ``max_chunks`` bounds a segment: decoding it must fit a searcher's and a worker's
    memory (about 100 MB at 2^20 chunks), and a rewrite must not hold a shard up for long.
    ``max_tombstones`` bounds the tombstone log, which every searcher that starts must read and replay.
    """

    fan_out: int = 8
    floor_chunks: int = 256
    max_chunks: int = 2**20
    max_tombstones: int = 20_000

    def plan(
        self,
        segments: Mapping[str, SegmentMeta],
        next_tombstone: int,
        dead: Mapping[str, int] | None = None,
    ) -> list[str] | None:
        """Ids to merge into one segment (a single id: rewrite it), or None where nothing is due.

        ``next_tombstone`` is the manifest's; ``dead`` gives dead chunks per segment id, where known.
        Asked again after each merge it plans the next, until None.
        """
        metas = sorted(segments.values(), key=lambda meta: (meta.chunks, meta.id))
        return (
            self._full_tier(metas)
            or self._outdated(metas, next_tombstone)
            or self._mostly_dead(metas, dead or {})
        )

    def _full_tier(self, metas: Sequence[SegmentMeta]) -> list[str] | None:
        tiers: dict[int, list[SegmentMeta]] = {}
        for meta in metas:
            if meta.chunks * 2 <= self.max_chunks:
                tiers.setdefault(self._tier(meta.chunks), []).append(meta)
        for _, tier in sorted(tiers.items()):
            if len(tier) >= self.fan_out:
                return self._within_size(tier)
        return None

    def _outdated(self, metas: Sequence[SegmentMeta], next_tombstone: int) -> list[str] | None:
        """Segments that keep the tombstone log long: rewritten, at least half of the log can be trimmed."""
        oldest_first = sorted(metas, key=lambda meta: meta.watermark)
        if not oldest_first or next_tombstone - oldest_first[0].watermark <= self.max_tombstones:
            return None
        bound = next_tombstone - self.max_tombstones // 2
        return self._within_size([meta for meta in oldest_first if meta.watermark < bound])

    def _mostly_dead(self, metas: Sequence[SegmentMeta], dead: Mapping[str, int]) -> list[str] | None:
        rotten = [meta for meta in metas if dead.get(meta.id, 0) * 2 > meta.chunks]
        return self._within_size(rotten) if rotten else None

    def _within_size(self, metas: Sequence[SegmentMeta]) -> list[str]:
        """The first ``fan_out`` at most, within ``max_chunks`` together; the first one in any case."""
        chosen, chunks = [metas[0].id], metas[0].chunks
        for meta in metas[1 : self.fan_out]:
            chunks += meta.chunks
            if chunks > self.max_chunks:
                break
            chosen.append(meta.id)
        return chosen

    def _tier(self, chunks: int) -> int:
        tier, bound = 0, self.floor_chunks
        while chunks > bound:
            tier, bound = tier + 1, bound * self.fan_out
        return tier
