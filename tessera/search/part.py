"""Parts: what a searcher holds in memory of one or more segments, ready to be scored.

A part is a value. What changes it (tombstones, segments that left the manifest, newer document entries)
gives a new part that shares the arrays that did not change, so a query that holds the old one is not
disturbed. Live document frequencies are kept exact with every change, through a forward index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tessera.index.merge import Mask, merge_traced
from tessera.index.segment import I64, U32, DocumentEntry, Segment
from tessera.releases import Scorer
from tessera.store.base import ShardId, Tombstone

F64 = npt.NDArray[np.float64]

MAX_CACHED_FILTERS = 16
"""Filters kept per part; each costs a byte per chunk, and callers' principals are not ours to bound."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The stored segment that chunks of a part came from."""

    shard: ShardId
    segment: str


class PartIndex:
    """What is derived from a part's segment once, and shared by all later versions of the part.

    Each posting has a *code*, the number of its distinct pair (term frequency, chunk length): the part of
    the score that depends on the document is computed once per pair and average length, not per posting.
    """

    def __init__(self, segment: Segment) -> None:
        self.rows = dict(zip(segment.terms, range(len(segment.terms)), strict=True))
        self.bounds = segment.term_start.tolist()
        self.chunks = segment.posting_chunk
        self.document = segment.column("document").astype(np.int64)
        self.document_starts = segment.document_starts()
        self.length = segment.column("length").astype(np.int64)
        length = self.length[segment.posting_chunk]
        tf = segment.posting_tf.astype(np.int64)
        pairs, codes = np.unique((tf << 32) | length, return_inverse=True)
        self.codes = codes.astype(np.uint16 if len(pairs) <= 1 << 16 else np.uint32)
        self.pair_tf = (pairs >> 32).astype(np.float64)
        self.pair_length = (pairs & 0xFFFFFFFF).astype(np.float64)
        starts = segment.term_start[:-1]
        self.most_tf = np.maximum.reduceat(tf, starts) if len(starts) else tf
        self.least_length = np.minimum.reduceat(length, starts) if len(starts) else length
        self.frequencies = np.diff(segment.term_start)
        self._segment = segment
        self._impacts: tuple[tuple[Scorer, float], F64] | None = None
        self._scratch: list[F64] = []

    @cached_property
    def forward(self) -> tuple[I64, U32]:
        """C + 1 offsets, and the term rows of each chunk between them."""
        segment = self._segment
        term = np.repeat(np.arange(len(segment.terms), dtype=np.uint32), self.frequencies)
        order = np.argsort(segment.posting_chunk, kind="stable")
        counts = np.bincount(segment.posting_chunk, minlength=segment.chunks)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), term[order]

    def prepare(self) -> None:
        """Make the forward index now, off the event loop, and not with the first deletion."""
        _ = self.forward

    def impacts(self, scorer: Scorer, average: float) -> F64:
        """The tf part of the score per code, for this average chunk length."""
        key = (scorer, average)
        cached = self._impacts
        if cached is None or cached[0] != key:
            cached = (key, tf_part(self.pair_tf, self.pair_length, scorer, average))
            self._impacts = cached
        return cached[1]

    def borrow_scratch(self) -> F64:
        """C zeros; give them back as zeros with :meth:`return_scratch`."""
        return self._scratch.pop() if self._scratch else np.zeros(len(self.length))

    def return_scratch(self, scratch: F64) -> None:
        """Take back what :meth:`borrow_scratch` gave."""
        self._scratch.append(scratch)

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays, about: strings are estimated."""
        segment = self._segment
        arrays = [segment.columns, segment.posting_chunk, segment.posting_tf, self.codes, self.document]
        texts = 160 * len(self.rows) + 600 * len(segment.documents)
        return sum(int(array.nbytes) for array in arrays) + 4 * len(self.chunks) + texts


def tf_part(tf: F64, length: F64, scorer: Scorer, average: float) -> F64:
    """``tf·(k1 + 1) / (tf + k1·(1 - b + b·length/average))``, Robertson and Zaragoza's BM25, elementwise."""
    k1, b = scorer.k1, scorer.b
    part: F64 = tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average))
    return part


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Chunks of one or more segments and which of them are alive.

    ``origins[origin[c]]`` is the stored segment of chunk c; ``frequencies`` are the live document
    frequencies of the segment's terms; ``access[d]`` numbers document d's access in ``access_sets``.
    ``segment.documents`` holds the current entries, also where a newer one came with another part.
    """

    segment: Segment
    index: PartIndex
    origins: tuple[Origin, ...]
    origin: U32
    alive: Mask
    frequencies: I64
    live_chunks: int
    live_length: int
    access_sets: tuple[tuple[str, ...], ...]
    access: U32
    filters: dict[tuple[frozenset[str] | None, str | None], Mask | None] = field(default_factory=dict)

    def killed(self, dead: Mask) -> Part:
        """Without the chunks in ``dead``; the part itself where all of them are dead already."""
        chunks = np.flatnonzero(dead & self.alive)
        if not len(chunks):
            return self
        starts, terms = self.index.forward
        counts = starts[chunks + 1] - starts[chunks]
        ends = np.cumsum(counts)
        positions = np.repeat(starts[chunks] - ends + counts, counts) + np.arange(counts.sum())
        frequencies = self.frequencies.copy()
        np.subtract.at(frequencies, terms[positions], 1)
        return replace(
            self,
            alive=self.alive & ~dead,
            frequencies=frequencies,
            live_chunks=self.live_chunks - len(chunks),
            live_length=self.live_length - int(self.index.length[chunks].sum()),
            filters={},
        )

    def after_tombstones(self, shard: ShardId, tombstones: Sequence[Tombstone]) -> Part:
        """With tombstones of the shard applied that are newer than all of its segments held here."""
        mine = np.array([origin.shard == shard for origin in self.origins])
        dead: Mask | None = None
        ordinals = self.segment.column("ordinal")
        for key, from_ordinal in tombstones:
            source, _, doc_id = key.partition("/")
            row = self.segment.document_row(source, doc_id)
            if row is not None:
                dead = np.zeros(self.segment.chunks, np.bool_) if dead is None else dead
                chunks = self._chunks_of(row)
                dead[chunks] |= mine[self.origin[chunks]] & (ordinals[chunks] >= from_ordinal)
        return self if dead is None else self.killed(dead)

    def without_segments(self, shard: ShardId, segments: Collection[str]) -> Part:
        """Without the chunks that came from these segments of the shard."""
        gone = [origin.shard == shard and origin.segment in segments for origin in self.origins]
        return self.killed(np.array(gone)[self.origin]) if any(gone) else self

    def with_entries(self, entries: Iterable[DocumentEntry]) -> Part:
        """With each entry that is newer than the one held for a document that is alive here."""
        newer: dict[int, DocumentEntry] = {}
        for entry in entries:
            row = self.segment.document_row(entry.source, entry.doc_id)
            if row is not None and self.segment.documents[row].seq < entry.seq and self.has_live(row):
                newer[row] = entry
        if not newer:
            return self
        documents = list(self.segment.documents)
        access, sets = self.access.copy(), list(self.access_sets)
        for row, entry in newer.items():
            documents[row] = entry
            if entry.access not in sets:
                sets.append(entry.access)
            access[row] = sets.index(entry.access)
        segment = replace(self.segment, documents=tuple(documents))
        return replace(self, segment=segment, access=access, access_sets=tuple(sets), filters={})

    def live_entries(self) -> list[DocumentEntry]:
        """The entries of documents with a chunk alive."""
        rows = np.unique(self.index.document[self.alive]).tolist()
        return [self.segment.documents[row] for row in rows]

    def entries_for(self, others: Iterable[DocumentEntry]) -> list[DocumentEntry]:
        """The entries held here of those documents among ``others`` that are alive here."""
        rows = (self.segment.document_row(entry.source, entry.doc_id) for entry in others)
        return [self.segment.documents[row] for row in rows if row is not None and self.has_live(row)]

    def has_live(self, row: int) -> bool:
        """Whether the document in this row has a chunk alive."""
        return bool(self.alive[self._chunks_of(row)].any())

    def live_chunks_of(self, row: int) -> list[int]:
        """Numbers of the document's chunks that are alive, by ordinal."""
        chunks = self._chunks_of(row)
        numbers: list[int] = (np.flatnonzero(self.alive[chunks]) + chunks.start).tolist()
        return numbers

    def eligible(self, principals: frozenset[str] | None, source: str | None) -> Mask | None:
        """Which chunks are alive, of the source, and visible to the principals; None means all are."""
        key = (principals, source)
        if key not in self.filters:
            if len(self.filters) >= MAX_CACHED_FILTERS:
                self.filters.clear()
            self.filters[key] = self._eligible(principals, source)
        return self.filters[key]

    def _eligible(self, principals: frozenset[str] | None, source: str | None) -> Mask | None:
        if principals is None and source is None:
            return None if self.live_chunks == self.segment.chunks else self.alive
        shown = np.ones(len(self.segment.documents), np.bool_)
        if principals is not None:
            allowed = np.array([is_visible(access, principals) for access in self.access_sets], np.bool_)
            shown &= allowed[self.access]
        if source is not None:
            shown &= np.array([entry.source == source for entry in self.segment.documents], np.bool_)
        return self.alive & shown[self.index.document]

    def _chunks_of(self, row: int) -> slice:
        return slice(int(self.index.document_starts[row]), int(self.index.document_starts[row + 1]))


Change = Callable[[Part], Part]


def is_visible(access: Iterable[str], principals: frozenset[str] | None) -> bool:
    """Whether a document with this access is visible; None is the operator, who sees everything."""
    return principals is None or any(name == "*" or name in principals for name in access)


def part_of(sources: Sequence[tuple[Segment, Mask, Sequence[Origin], U32]]) -> Part:
    """One part of all chunks that are not dead: each source a segment, its mask of dead chunks, the stored
    segments they came from, and which of these each chunk came from."""
    segment, trace = merge_traced([(segment, dead) for segment, dead, _, _ in sources])
    origins: list[Origin] = []
    numbers = [np.empty(0, np.uint32)]
    for _, _, sources_origins, origin in sources:
        numbers.append((origin + len(origins)).astype(np.uint32))
        origins.extend(sources_origins)
    used, origin_of_chunk = np.unique(np.concatenate(numbers)[trace], return_inverse=True)
    index = PartIndex(segment)
    sets = sorted({entry.access for entry in segment.documents})
    number_of = {access: number for number, access in enumerate(sets)}
    return Part(
        segment=segment,
        index=index,
        origins=tuple(origins[number] for number in used.tolist()),
        origin=origin_of_chunk.astype(np.uint32),
        alive=np.ones(segment.chunks, np.bool_),
        frequencies=index.frequencies,
        live_chunks=segment.chunks,
        live_length=int(index.length.sum()),
        access_sets=tuple(sets),
        access=np.array([number_of[entry.access] for entry in segment.documents], np.uint32),
    )


def consolidated(parts: Sequence[Part]) -> Part:
    """One part of all that is alive in these, with its forward index (this runs off the event loop)."""
    part = part_of([(part.segment, ~part.alive, part.origins, part.origin) for part in parts])
    part.index.prepare()
    return part
