"""From chunks to a segment."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter

import numpy as np

from tessera.index.analyzer import Analyzer
from tessera.index.segment import COLUMNS, U32, ChunkEntry, DocumentEntry, Segment

Documents = Iterable[tuple[DocumentEntry, Sequence[ChunkEntry]]]


class _Vocabulary(dict[str, int]):
    """Numbers terms in the order in which they are first asked for."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


def build_segment(documents: Documents, analyzer: Analyzer) -> Segment:
    """The segment of these documents, given in any order; one without a chunk does not appear.

    Equal content gives equal segments, whatever the order it came in. Speed falls off beyond about 20,000
    chunks (caches). Raises ValueError where a document or one of its ordinals is given twice.
    """
    batch = sorted(((entry, chunks) for entry, chunks in documents if chunks), key=lambda item: item[0][:2])
    rows: list[tuple[int, ChunkEntry]] = []
    for row, (entry, chunks) in enumerate(batch):
        if row and batch[row - 1][0][:2] == entry[:2]:
            raise ValueError(f"document {entry.key} is given twice for one segment")
        rows.extend((row, chunk) for chunk in sorted(chunks, key=attrgetter("ordinal")))
    _require_distinct(rows)
    terms, lengths, term_of_token = _analyze(rows, analyzer)
    headings = tuple(sorted({chunk.headings for _, chunk in rows}))
    term_start, posting_chunk, posting_tf = _postings(len(terms), lengths, term_of_token)
    return Segment(
        documents=tuple(entry for entry, _ in batch),
        headings=headings,
        terms=terms,
        columns=_columns(rows, headings, lengths),
        term_start=term_start,
        posting_chunk=posting_chunk,
        posting_tf=posting_tf,
    )


def _require_distinct(rows: Sequence[tuple[int, ChunkEntry]]) -> None:
    for (document, chunk), (next_document, next_chunk) in pairwise(rows):
        if document == next_document and chunk.ordinal == next_chunk.ordinal:
            raise ValueError(f"chunk {chunk.ordinal} of one document is given twice for one segment")


def _analyze(
    rows: Sequence[tuple[int, ChunkEntry]], analyzer: Analyzer
) -> tuple[tuple[str, ...], list[int], U32]:
    """Sorted terms, terms per chunk, and each token's row in the sorted terms."""
    vocabulary = _Vocabulary()
    number_of = vocabulary.__getitem__
    numbers = array("I")
    lengths = []
    for _, chunk in rows:
        words = analyzer.terms(chunk.indexed_text)
        lengths.append(len(words))
        numbers.extend(map(number_of, words))
    terms = sorted(vocabulary)
    rank = np.empty(len(terms), np.uint32)
    rank[np.fromiter(map(number_of, terms), np.int64, len(terms))] = np.arange(len(terms), dtype=np.uint32)
    return tuple(terms), lengths, rank[np.frombuffer(numbers, np.uint32)]


def _postings(
    terms: int, lengths: Sequence[int], term_of_token: U32
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], U32, U32]:
    chunks = max(len(lengths), 1)
    chunk_of_token = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    keys, counts = np.unique(term_of_token * np.int64(chunks) + chunk_of_token, return_counts=True)
    term_start = np.searchsorted(keys, np.arange(terms + 1, dtype=np.int64) * chunks).astype(np.int64)
    return term_start, (keys % chunks).astype(np.uint32), counts.astype(np.uint32)


def _columns(
    rows: Sequence[tuple[int, ChunkEntry]], headings: Sequence[tuple[str, ...]], lengths: Sequence[int]
) -> U32:
    heading_row = {path: row for row, path in enumerate(headings)}
    values = [
        (document, *chunk[:9], heading_row[chunk.headings], length)
        for (document, chunk), length in zip(rows, lengths, strict=True)
    ]
    return np.array(values, np.uint32).reshape(len(rows), len(COLUMNS))
