from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import Batch, batches, contents

from tessera.index.analyzer import WordsAnalyzer
from tessera.index.builder import build_segment
from tessera.index.segment import COLUMNS, ChunkEntry, DocumentEntry

ANALYZER = WordsAnalyzer()


@settings(max_examples=60, deadline=None)
@given(batches)
def test_a_segment_holds_exactly_what_it_was_built_from(batch: Batch) -> None:
    segment = build_segment(batch, ANALYZER)
    wanted = sorted(
        ((entry, chunk) for entry, chunks in batch for chunk in chunks), key=lambda x: (x[0][:2], x[1][0])
    )
    assert segment.chunks == len(wanted)
    postings = {}
    for row, term in enumerate(segment.terms):
        for at in range(segment.term_start[row], segment.term_start[row + 1]):
            postings[term, int(segment.posting_chunk[at])] = int(segment.posting_tf[at])
    assert len(postings) == len(segment.posting_tf)
    for number, (entry, chunk) in enumerate(wanted):
        row = dict(zip(COLUMNS, segment.columns[number].tolist(), strict=True))
        counts = Counter(ANALYZER.terms(chunk.indexed_text))
        assert segment.documents[row["document"]] == entry
        assert segment.headings[row["heading"]] == chunk.headings
        assert tuple(row[name] for name in COLUMNS[1:10]) == chunk[:9]
        assert row["length"] == counts.total()
        assert {
            term: postings[term, number] for term in segment.terms if (term, number) in postings
        } == counts


@settings(max_examples=60, deadline=None)
@given(batches)
def test_documents_terms_and_postings_are_sorted(batch: Batch) -> None:
    segment = build_segment(batch, ANALYZER)
    keys = [entry[:2] for entry in segment.documents]
    assert keys == sorted(set(keys))
    assert list(segment.terms) == sorted(set(segment.terms))
    for start, end in zip(segment.term_start, segment.term_start[1:], strict=False):
        chunks = segment.posting_chunk[start:end].tolist()
        assert chunks == sorted(set(chunks))
        assert chunks
    for entry in segment.documents:
        row = segment.document_row(entry.source, entry.doc_id)
        assert row is not None
        start, end = segment.document_starts()[row : row + 2]
        assert set(segment.column("document")[start:end].tolist()) == {row}
    assert segment.document_row("a", "nowhere") is None


@settings(max_examples=40, deadline=None)
@given(batches, st.randoms())
def test_the_order_of_arrival_changes_nothing(batch: Batch, random: object) -> None:
    shuffled = [(entry, list(chunks)) for entry, chunks in batch]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for _, chunks in shuffled:
        random.shuffle(chunks)  # type: ignore[attr-defined]
    assert contents(build_segment(shuffled, ANALYZER)) == contents(build_segment(batch, ANALYZER))


def _entry(doc_id: str) -> DocumentEntry:
    return DocumentEntry("a", doc_id, 1, "sha256:0", (), "text/plain", "t", 9, 1)


def _chunk(ordinal: int) -> ChunkEntry:
    return ChunkEntry(ordinal, 0, 1, 0, 1, 1, 1, 0, 1, (), "x")


def test_a_document_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"document a/x\.md is given twice"):
        build_segment([(_entry("x.md"), [_chunk(0)]), (_entry("x.md"), [_chunk(1)])], ANALYZER)


def test_an_ordinal_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk 3 of one document is given twice"):
        build_segment([(_entry("x.md"), [_chunk(3), _chunk(3)])], ANALYZER)
