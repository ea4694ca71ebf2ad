from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from texts import LOG, STAMP, TEXT, real_logs

from tessera.errors import CorruptionError
from tessera.ingestion import Chunk, Resume
from tessera.policies import load_policy

POLICY = load_policy("paragraph")
MEDIA_TYPES = ("text/x-run-log", "text/x-ci-log")


def whole_lines(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n")[:-1]]


def cut_by_appends(lines: list[str], cuts: list[int], media_type: str) -> list[Chunk]:
    """Cut after each append, keeping only the text from the open place on, its state through JSON."""
    chunks: list[Chunk] = []
    resume, held = Resume.begin(), ""
    for first, last in pairwise([0, *sorted(cuts), len(lines)]):
        held += "".join(lines[first:last])
        cut = POLICY.cut(held, "d", media_type, resume)
        chunks[resume.ordinal :] = cut.chunks
        held = held[cut.open.start - resume.start :]
        resume = Resume.from_json(json.loads(json.dumps(cut.open.to_json())))
        assert resume == cut.open
        assert cut.end.ordinal == len(chunks)
    return chunks


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@settings(max_examples=200, deadline=None)
@given(text=LOG | TEXT, data=st.data())
def test_chunks_of_any_appends_equal_those_of_the_whole_log(
    media_type: str, text: str, data: st.DataObject
) -> None:
    lines = whole_lines(text)
    cuts = data.draw(st.lists(st.integers(0, len(lines)), max_size=6))
    assert cut_by_appends(lines, cuts, media_type) == POLICY.chunk("".join(lines), "d", media_type)


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@settings(max_examples=60, deadline=None)
@given(text=LOG | TEXT)
@example("\ufeff\n\n# A\n\n\n## B\n\nx\ny\n\n\n")
@example(f"{STAMP} ##[error]e\n" + "more\n" * 61 + "\n" * 70 + f"{STAMP} x\n" * 3)
@example(f"{STAMP} ##[error]e\n" + "more\n" * 69 + f"{STAMP} x\n" * 3)
@example(f"{STAMP} ##[group]g\n{STAMP} ##[endgroup]\n" + "more\n" * 69 + f"{STAMP} x\n" * 3)
@example(f"{STAMP} ##[group]g\n" + "\n" * 130 + "x\n" * 62 + f"{STAMP} ##[endgroup]\n\n{STAMP} x\n")
def test_chunks_of_single_lines_equal_those_of_the_whole_log(media_type: str, text: str) -> None:
    lines = whole_lines(text)[:150]
    whole = POLICY.chunk("".join(lines), "d", media_type)
    assert cut_by_appends(lines, list(range(len(lines))), media_type) == whole
    for cut in range(len(lines)):
        assert cut_by_appends(lines, [cut], media_type) == whole


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_real_logs_grown_by_a_few_lines_equal_the_whole(media_type: str) -> None:
    for log in real_logs():
        lines = whole_lines(log)
        assert cut_by_appends(lines, list(range(0, len(lines), 17)), media_type) == POLICY.chunk(
            "".join(lines), "d", media_type
        )


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_only_the_open_chunk_is_cut_again(media_type: str) -> None:
    log = "".join(f"{STAMP} ##[notice]{n}\n\n" for n in range(100))
    cut = POLICY.cut(log, "d", media_type)
    assert cut.open.start >= cut.chunks[-1].start
    again = POLICY.cut(log[cut.open.start :] + "x\n", "d", media_type, cut.open)
    assert len(again.chunks) <= 2


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@settings(max_examples=100, deadline=None)
@given(before=LOG, after=st.sampled_from(["\n", " \n\n", "x\n"]))
def test_the_last_chunk_is_always_cut_again(media_type: str, before: str, after: str) -> None:
    cut = POLICY.cut(before, "d", media_type)
    again = POLICY.cut(before[cut.open.start :] + after, "d", media_type, cut.open)
    if cut.chunks:
        assert again.chunks[0].start == cut.chunks[-1].start
        assert again.chunks[0].id == cut.chunks[-1].id


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@settings(max_examples=100, deadline=None)
@given(before=LOG, after=LOG | TEXT.map(lambda text: text + "\n"))
def test_nothing_joins_across_missing_lines(media_type: str, before: str, after: str) -> None:
    first = POLICY.cut(before, "d", media_type)
    start_line = first.end.start_line + 7
    begin = first.end.after_gap(first.end.start + 7, start_line, first.end.start_token, first.end.ordinal)
    second = POLICY.cut(after, "d", media_type, begin)
    assert [chunk.id for chunk in first.chunks + second.chunks] == [
        f"d:chunk{n}" for n in range(len(first.chunks) + len(second.chunks))
    ]
    for chunk in second.chunks:
        assert chunk.text == after[chunk.start - begin.start : chunk.end - begin.start]
        assert chunk.start_line >= start_line
        assert chunk.start_line - start_line == after[: chunk.start - begin.start].count("\n")
        assert first.end.start_token <= chunk.start_token <= chunk.end_token <= second.end.start_token


def test_headings_go_on_behind_missing_lines_and_groups_do_not() -> None:
    first = POLICY.cut("# A\n\nx\n\n## B\n", "d", "text/x-run-log")
    second = POLICY.cut("y\n", "d", "text/x-run-log", first.end.after_gap(20, 9, 3, 2))
    assert second.chunks == [Chunk("d:chunk2", "y", 20, 21, 9, 9, ("A", "B"), 3, 4)]

    first = POLICY.cut(f"{STAMP} ##[group]g\n{STAMP} x\n", "d", "text/x-ci-log")
    begin = first.end.after_gap(100, 5, first.end.start_token, first.end.ordinal)
    second = POLICY.cut(
        f"##[error]continues what is missing\n{STAMP} y\n{STAMP} ##[error]e\n", "d", "text/x-ci-log", begin
    )
    assert [(chunk.start_line, chunk.end_line, chunk.headings) for chunk in second.chunks] == [
        (5, 6, ()),
        (7, 7, ()),
    ]


@pytest.mark.parametrize("value", [{}, {"headings": [1]}, {"headings": [], "unknown": 1}])
def test_a_stored_state_that_cannot_be_read_is_an_error(value: dict[str, object]) -> None:
    with pytest.raises(CorruptionError, match="rebuild"):
        Resume.from_json(value)
