from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from slow_parsers import split_lines
from texts import TEXT

from tessera.ingestion import Resume, UncoveredRange, chunk_text, lf_lines, uncovered_ranges


@settings(deadline=None)
@given(TEXT.map(lf_lines), st.data())
def test_uncovered_ranges_hold_just_the_lines_of_the_chunks_left_out(text: str, data: st.DataObject) -> None:
    chunks = chunk_text(text, "d")
    kept = [chunk for chunk in chunks if data.draw(st.booleans())]
    ranges = uncovered_ranges(text, reversed(kept))
    lines = split_lines(text)
    for found in ranges:
        assert found.start == lines[found.start_line - 1].start
        assert found.end == lines[found.end_line - 1].end
        assert not lines[found.start_line - 1].blank
        assert not lines[found.end_line - 1].blank
    uncovered = {
        line.number for line in lines for found in ranges if found.start_line <= line.number <= found.end_line
    }
    covered = {
        line.number for line in lines for chunk in kept if chunk.start_line <= line.number <= chunk.end_line
    }
    assert not uncovered & covered
    assert {line.number for line in lines if not line.blank} <= uncovered | covered
    holes = sum(
        1
        for chunk, after in zip([None, *chunks], [*chunks, None], strict=True)
        if after not in kept and chunk in [None, *kept]
    )
    assert len(ranges) == holes - (not chunks or chunks[-1] in kept)


def test_ranges_count_from_where_the_text_begins() -> None:
    begin = Resume.begin().after_gap(100, 11, 0, 0)
    assert uncovered_ranges("\n a\n\nb \r\n\n", [], begin) == [UncoveredRange(101, 107, 12, 14)]


def test_spans_within_lines_leave_their_rest_uncovered() -> None:
    text = "one two\nthree\n\nfour"
    spans = [UncoveredRange(4, 11, 1, 2), UncoveredRange(6, 9, 1, 2)]
    assert uncovered_ranges(text, spans) == [UncoveredRange(0, 4, 1, 1), UncoveredRange(11, 19, 2, 4)]


def test_a_text_of_blank_lines_has_no_uncovered_range() -> None:
    assert uncovered_ranges("\ufeff \n\n\t\r\n", []) == []
    assert uncovered_ranges("", []) == []
