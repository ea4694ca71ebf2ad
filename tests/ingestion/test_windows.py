from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow_parsers import Line, slow_paragraphs, split_lines
from texts import LOG, TEXT, real_documents, real_logs

from tessera.ingestion import Chunk, Resume, lf_lines, uncovered_ranges
from tessera.policies import ChunkPolicy, TextPolicy, load_policy, token_windows
from tessera.policies.stored import policy_from_canonical

WINDOW_200 = load_policy("window-200")


def policy(size: int | None, overlap: int = 0, parent_context: str = "none") -> ChunkPolicy:
    rule = TextPolicy("window", size=size, overlap=overlap, parent_context=parent_context)
    return ChunkPolicy("w", rule, rule, rule)


WINDOWS = st.integers(1, 6).flatmap(
    lambda size: st.builds(policy, st.just(size), st.integers(0, size - 1))
) | st.just(policy(None))


WITH_HEADINGS = st.integers(1, 9).flatmap(
    lambda size: st.builds(policy, st.just(size), st.integers(0, size - 1), st.just("headings"))
)


class Block(NamedTuple):
    lines: list[Line]
    is_heading: bool
    path: tuple[str, ...]


def slow_blocks(text: str) -> list[Block]:
    """Blocks of non-blank lines with the path at each, from the slow paragraphs' model of one line each."""
    blocks: list[list[Line]] = []
    previous_blank = True
    for line in split_lines(text):
        if not line.blank:
            if previous_blank:
                blocks.append([])
            blocks[-1].append(line)
        previous_blank = line.blank
    headed = [all(re.match(r"#{1,6}[ \t]+\S", line.text) for line in block) for block in blocks]
    return [Block(block, heading, ()) for block, heading in zip(blocks, headed, strict=True)]


def slow_path(text: str, start: int, end: int) -> tuple[str, ...]:
    """The path at the first content of the window that is in no heading block, else at its last character."""
    blocks = slow_blocks(text)
    at = start
    for block in blocks:
        if block.lines[0].start <= at < block.lines[-1].end and block.is_heading:
            at = block.lines[-1].end
        if block.lines[0].start >= at and at != start:
            at = block.lines[0].start
            if not block.is_heading:
                break
            at = block.lines[-1].end
    at = min(at, end - 1)
    seen = []
    for block in blocks:
        if block.is_heading:
            seen += [line for line in block.lines if line.start <= at]
    probe = "".join(f"{line.text}\n" for line in seen) + "\nx"
    return slow_paragraphs(probe)[-1].headings


def slow_windows(text: str, size: int | None, overlap: int) -> list[tuple[int, int, tuple[str, ...]]]:
    content = [line for line in split_lines(text) if not line.blank]
    if not content:
        return []
    tokens = [match.start() for match in re.finditer(r"\w+", text)]
    first_of_line = {}
    for line in content:
        inside = [token for token in tokens if line.start <= token < line.end]
        if inside:
            first_of_line[inside[0]] = line.start
    begins = [first_of_line.get(token, token) for token in tokens]
    begins[:1] = [content[0].start]
    begins.append(len(text))
    spans = []
    for first, after in token_windows(len(tokens), size or len(tokens) + 1, overlap) or [(0, 0)]:
        end = len(text[: begins[after] if tokens else len(text)].rstrip(" \t\r\n"))
        spans.append((begins[first], end, slow_path(text, begins[first], end)))
    return spans


@settings(max_examples=300, deadline=None)
@given(TEXT, st.integers(1, 6), st.data())
@example("# A\n\n---\n\n## B\n\nx", 1, None)
@example("\ufeff--\n# A\n# B", 1, None)
@example("x\r# A\r\r    # b", 1, None)
def test_chunks_equal_those_of_the_slow_model(text: str, size: int, data: st.DataObject | None) -> None:
    overlap = data.draw(st.integers(0, size - 1)) if data else 0
    chunks = policy(size, overlap).chunk(text, "d")
    assert [(c.start, c.end, c.headings) for c in chunks] == slow_windows(text, size, overlap)


@settings(max_examples=300, deadline=None)
@given(TEXT | LOG, WINDOWS)
def test_windows_are_verbatim_cover_all_content_and_overlap_by_just_their_tokens(
    text: str, windows: ChunkPolicy
) -> None:
    check_windows(text, windows, windows.chunk(text, "d"))


def check_windows(text: str, windows: ChunkPolicy, chunks: list[Chunk]) -> None:
    rule = windows.documents
    tokens = re.findall(r"\w+", text)
    lines = lf_lines(text)
    for number, chunk in enumerate(chunks):
        assert chunk.id == f"d:chunk{number}"
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text.strip(" \t\r\n")
        assert chunk.text == chunk.text.rstrip(" \t\r\n")
        assert chunk.start_line == 1 + lines.count("\n", 0, chunk.start)
        assert chunk.end_line == 1 + lines.count("\n", 0, chunk.end)
        assert re.findall(r"\w+", chunk.text) == tokens[chunk.start_token : chunk.end_token]
        assert rule.size is None or chunk.end_token - chunk.start_token <= rule.size
    if tokens:
        found = [(chunk.start_token, chunk.end_token) for chunk in chunks]
        assert found == token_windows(len(tokens), rule.size or len(tokens), rule.overlap)
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert before.end_token - after.start_token == rule.overlap
        assert rule.overlap or before.end <= after.start
    assert uncovered_ranges(lines, chunks) == []


@pytest.mark.parametrize(
    ("text", "size", "texts"),
    [
        ("one two three", 2, ["one two", "three"]),
        ("(one) two, three.", 1, ["(one)", "two,", "three."]),
        ("one\n\n# Two\n\n- three\n    four\n", 1, ["one", "# Two", "- three", "    four"]),
        ("---\n\none\n\n---\n\ntwo\n\n***\n", 1, ["---\n\none\n\n---", "two\n\n***"]),
        ("---\n\n***\n", 3, ["---\n\n***"]),
        (" \n\t\n", 3, []),
        ("", 3, []),
        ("\ufeff\n", 3, []),
        ("\ufeffone", 3, ["\ufeffone"]),
        ("\n\n  one\n", 3, ["  one"]),
    ],
)
def test_what_holds_no_token_goes_with_the_tokens_around_it(text: str, size: int, texts: list[str]) -> None:
    assert [chunk.text for chunk in policy(size).chunk(text, "d")] == texts


@pytest.mark.parametrize(
    ("text", "size", "headings"),
    [
        ("# A\n\n## B\n\nx\n", 9, [("A", "B")]),
        ("# A\n\nx y\n\n## B\n\nz\n", 2, [("A",), ("A",), ("A", "B")]),
        ("# A\n\n## B\n\nx\n", 1, [("A",), ("A", "B"), ("A", "B")]),
        ("# A b c\n\nx", 2, [("A b c",), ("A b c",)]),
        ("x\n# A\n\ny\n", 1, [(), (), ()]),
        ("    # code\n\nx\n", 1, [(), ()]),
        ("# A\n# B\n\nx", 1, [("A",), ("B",), ("B",)]),
    ],
)
def test_headings_are_the_path_at_the_first_content(
    text: str, size: int, headings: list[tuple[str, ...]]
) -> None:
    assert [chunk.headings for chunk in policy(size).chunk(text, "d")] == headings


def test_a_window_that_holds_a_section_has_the_headings_that_paragraph_gives_it() -> None:
    text = "# A\n\n## B\n\none two\n"
    [window] = policy(None).chunk(text, "d")
    [section] = load_policy("paragraph").chunk(text, "d")
    assert window == section


def cut_by_appends(windows: ChunkPolicy, lines: list[str], cuts: list[int], media_type: str) -> list[Chunk]:
    """Cut after each append, keeping only the text from the open place on, its state through JSON."""
    chunks: list[Chunk] = []
    resume, held = Resume.begin(), ""
    for first, last in pairwise([0, *sorted(cuts), len(lines)]):
        held += "".join(lines[first:last])
        cut = windows.cut(held, "d", media_type, resume)
        assert not chunks or len(cut.chunks) >= 1
        chunks[resume.ordinal :] = cut.chunks
        held = held[cut.open.start - resume.start :]
        resume = Resume.from_json(json.loads(json.dumps(cut.open.to_json())))
        assert resume == cut.open
        assert cut.end.ordinal == len(chunks)
        assert not chunks or resume.ordinal < len(chunks)
        assert cut.end.start_token == (chunks[-1].end_token if chunks else 0)
    return chunks


def whole_lines(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n")[:-1]]


HEADING_LINES = st.lists(
    st.sampled_from(["# A b c\n", "## B\n", "# -\n", "x y\n", "---\n", "\n", " \n", "   # i\n", "a # b c\n"]),
    max_size=14,
)


@pytest.mark.parametrize("media_type", ["text/x-run-log", "text/x-ci-log"])
@settings(max_examples=300, deadline=None)
@given(lines=HEADING_LINES | (TEXT | LOG).map(whole_lines), windows=WINDOWS | WITH_HEADINGS, data=st.data())
def test_chunks_of_any_appends_equal_those_of_the_whole_log(
    media_type: str, lines: list[str], windows: ChunkPolicy, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(lines)), max_size=6))
    whole = windows.chunk("".join(lines), "d", media_type)
    assert cut_by_appends(windows, lines, cuts, media_type) == whole


@settings(max_examples=200, deadline=None)
@given(HEADING_LINES, WINDOWS | WITH_HEADINGS)
@example(["# A b c\n", "x\n"], policy(1))
@example(["# A b c\n", "\n", "x\n"], policy(2))
@example(["x y\n", "# A b c\n", "\n", "y\n"], policy(2))
def test_chunks_of_single_lines_equal_those_of_the_whole_log(lines: list[str], windows: ChunkPolicy) -> None:
    whole = windows.chunk("".join(lines), "d", "text/x-run-log")
    assert cut_by_appends(windows, lines, list(range(len(lines))), "text/x-run-log") == whole


@settings(max_examples=100, deadline=None)
@given(HEADING_LINES.map("".join), HEADING_LINES.map("".join), WINDOWS)
def test_nothing_joins_across_missing_lines(before: str, after: str, windows: ChunkPolicy) -> None:
    first = windows.cut(before, "d", "text/x-run-log")
    start_line = first.end.start_line + 7
    begin = first.end.after_gap(first.end.start + 7, start_line, first.end.start_token, first.end.ordinal)
    second = windows.cut(after, "d", "text/x-run-log", begin)
    alone = windows.cut(after, "d", "text/x-run-log")
    assert [chunk.text for chunk in second.chunks] == [chunk.text for chunk in alone.chunks]
    for chunk in second.chunks:
        assert chunk.text == after[chunk.start - begin.start : chunk.end - begin.start]
        assert chunk.start_line - start_line == after[: chunk.start - begin.start].count("\n")


def test_only_the_last_window_is_cut_again() -> None:
    log = "".join(f"word{n} again\n" for n in range(1000))
    cut = WINDOW_200.cut(log, "d", "text/x-run-log")
    assert cut.open.ordinal == len(cut.chunks) - 1
    assert cut.open.start == cut.chunks[-1].start
    assert cut.open.start_token == cut.chunks[-1].start_token == 1800


def test_real_documents_and_logs_are_cut_into_sound_windows() -> None:
    for text in real_documents()[::7]:
        check_windows(text, WINDOW_200, WINDOW_200.chunk(text, "d"))
    for log in real_logs():
        lines = whole_lines(log)
        appended = cut_by_appends(WINDOW_200, lines, list(range(0, len(lines), 17)), "text/x-run-log")
        assert appended == WINDOW_200.chunk("".join(lines), "d", "text/x-run-log")


def test_the_headings_around_a_window_count_against_its_size() -> None:
    text = "# Law of sales\n\n## Terms\n\none two three four five six seven eight nine\n"
    first, *rest = policy(8, 2, "headings").chunk(text, "d")
    assert (first.text, first.context) == ("# Law of sales\n\n## Terms\n\none two three four", "")
    # Two tokens back in a window of eight, one in one of four.
    assert [chunk.text for chunk in rest] == ["three four five six", "six seven eight nine"]
    assert {chunk.context for chunk in rest} == {"Law of sales > Terms"}
    assert policy(None, 0, "headings").chunk(text, "d")[0].context == ""


def test_a_window_that_begins_with_a_heading_has_the_headings_it_does_not_close() -> None:
    text = "# A\n\n## B\n\nx y z\n\n## C\n\nu v w\n"
    assert [(chunk.text, chunk.context) for chunk in policy(5, 0, "headings").chunk(text, "d")] == [
        ("# A\n\n## B\n\nx y z", ""),
        ("## C\n\nu v w", "A"),
    ]


def test_window_200_cuts_documents_and_run_logs_and_leaves_ci_logs_at_their_messages() -> None:
    rule = TextPolicy("window", size=200, overlap=20)
    assert ChunkPolicy("window-200", documents=rule, run_logs=rule) == WINDOW_200
    assert WINDOW_200.ci_logs.parser == "runner"


def test_identity_of_the_built_in_windows_stays() -> None:
    assert '"parser":"window@1"' in WINDOW_200.canonical_json
    assert WINDOW_200.id == "window-200@5a9114e2a131"
    assert policy_from_canonical(WINDOW_200.id, json.loads(WINDOW_200.canonical_json)) == WINDOW_200


def test_a_window_file_is_the_built_in_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "win.toml"
    table = 'parser = "window"\nsize = 200\noverlap = 20\n'
    path.write_text(f'name = "win"\n[documents]\n{table}[run_logs]\n{table}')
    assert load_policy(path).id == WINDOW_200.id.replace("window-200@", "win@")


def test_a_million_words_are_cut_in_a_moment() -> None:
    text = ("# Heading\n\nSome words of a paragraph, and then some more.\n\n- an item\n\n---\n\n" * 60_000)[
        :4_000_000
    ]
    WINDOW_200.chunk(text[:1000], "d")
    started = time.perf_counter()
    WINDOW_200.chunk(text, "d")
    assert time.perf_counter() - started < 4  # ten times what it takes, on a busy machine


def test_a_state_stored_before_there_were_windows_is_read() -> None:
    stored = Resume.begin().to_json()
    del stored["inside"]
    assert Resume.from_json(stored) == Resume.begin()
