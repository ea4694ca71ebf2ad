"""Documents and chunks for tests of segments."""

from __future__ import annotations

from hypothesis import strategies as st

from tessera.index.segment import ChunkEntry, DocumentEntry, Segment

Batch = list[tuple[DocumentEntry, list[ChunkEntry]]]

_words = st.sampled_from(["alpha", "Beta", "gamma", "the", "the", "ÉTÉ", "İ", "x_1", "日本", "-", "42"])
_small = st.integers(0, 60)
_texts = st.lists(_words, max_size=12).map(" ".join)


@st.composite
def _chunks(draw: st.DrawFn) -> list[ChunkEntry]:
    ordinals = draw(st.lists(_small, unique=True, max_size=5))
    return [
        ChunkEntry(
            ordinal,
            *(draw(st.one_of(_small, st.integers(0, 2**32 - 1))) for _ in range(8)),
            headings=draw(st.sampled_from([(), ("A",), ("A", "b ü"), ("\ud800",)])),
            indexed_text=draw(_texts),
        )
        for ordinal in ordinals
    ]


@st.composite
def _documents(draw: st.DrawFn) -> tuple[DocumentEntry, list[ChunkEntry]]:
    entry = DocumentEntry(
        draw(st.sampled_from(["a", "b", "Ω"])),
        draw(st.sampled_from(["one.md", "two/é.md", "one.md\n", "z"])),
        draw(st.integers(0, 2**63 - 1)),
        draw(st.sampled_from(["sha256:00", "sha256-64k:11"])),
        draw(st.sampled_from([(), ("*",), ("group:a", "group:b")])),
        "text/markdown",
        draw(st.sampled_from(["t1", "t2"])),
        draw(st.integers(0, 2**40)),
        draw(st.integers(0, 2**50)),
    )
    return entry, draw(_chunks())


batches: st.SearchStrategy[Batch] = st.lists(_documents(), max_size=6, unique_by=lambda item: item[0][:2])


def contents(segment: Segment) -> tuple[object, ...]:
    """All of a segment, comparable, element types included."""
    arrays = (segment.columns, segment.term_start, segment.posting_chunk, segment.posting_tf)
    return (
        segment.documents,
        segment.headings,
        segment.terms,
        *((array.dtype.str, array.shape, array.tolist()) for array in arrays),
    )
