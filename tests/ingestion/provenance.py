"""What must hold of the chunks of any text."""

from __future__ import annotations

from itertools import pairwise

from slow_parsers import split_lines

from tessera.ingestion import Chunk, lf_lines, uncovered_ranges


def spans(chunks: list[Chunk]) -> list[tuple[int, int, int, int, tuple[str, ...]]]:
    return [(c.start, c.end, c.start_line, c.end_line, c.headings) for c in chunks]


def check_provenance(text: str, chunks: list[Chunk], cr_rule: bool = True) -> None:
    """Verbatim, disjoint, rising, whole lines, each line with content in exactly one chunk."""
    assert [chunk.id for chunk in chunks] == [f"d:chunk{n}" for n in range(len(chunks))]
    lines = split_lines(text, cr_rule)
    holders = dict.fromkeys((line.number for line in lines if not line.blank), 0)
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.start == lines[chunk.start_line - 1].start
        assert chunk.end == lines[chunk.end_line - 1].end
        assert not lines[chunk.start_line - 1].blank
        assert not lines[chunk.end_line - 1].blank
        for number in range(chunk.start_line, chunk.end_line + 1):
            if number in holders:
                holders[number] += 1
    assert set(holders.values()) <= {1}
    for before, after in pairwise(chunks):
        assert before.end < after.start
        assert before.end_line < after.start_line
    if not cr_rule or lf_lines(text) == text:
        assert uncovered_ranges(text, chunks) == []
