from __future__ import annotations

import json
import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from texts import LOG, TEXT, real_documents, real_logs

from tessera.ingestion import Chunk, Resume, lf_lines, sentence_spans, uncovered_ranges
from tessera.policies import ChunkPolicy, TextPolicy, load_policy

SENTENCE = load_policy("sentence")
PIECES = [
    *(
        "One two three. ",
        "Four?",
        " Five! ",
        "six (seven.) ",
        "J. Doe",
        "e.g. eight\n",
        "\n",
        "# Nine\n",
        "- ten\n",
    ),
    *("| a | b |\n", "```\n", "\r\n", "\ufeff", "終わり。", "    code.x()\n", "...", ".", " "),
]
PROSE = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def policy(size: int | None, overlap: int = 0, parent_context: str = "none") -> ChunkPolicy:
    rule = TextPolicy("sentence", size=size, overlap=overlap, parent_context=parent_context)
    return ChunkPolicy("s", rule, rule, rule)


POLICIES = st.builds(
    lambda size, share, context: policy(size, int(size * share), context),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 0.7, 0.95]),
    st.sampled_from(["none", "headings"]),
)


def sentences(text: str, *, lines: bool = False) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, lines=lines)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two? Three! Four…", ["One.", "Two?", "Three!", "Four…"]),
        ('He said "no." Then (he left.) Gone.', ['He said "no."', "Then (he left.)", "Gone."]),
        ("Version 3.11 of tessera.py runs.", ["Version 3.11 of tessera.py runs."]),
        ("J. Doe met Dr. Roe. They spoke.", ["J. Doe met Dr. Roe.", "They spoke."]),
        ("Tools, e.g. these, i.e. Those. End.", ["Tools, e.g. these, i.e. Those.", "End."]),
        ("It costs approx. five. Yes.", ["It costs approx. five.", "Yes."]),
        ("a soft-wrapped\nline goes on. New\none.", ["a soft-wrapped\nline goes on.", "New\none."]),
        ("a\n\nb", ["a", "b"]),
        ("# Title\ntext\n", ["# Title", "text"]),
        ("# 1. Title. More\ntext\n", ["# 1. Title. More", "text"]),
        ("intro:\n- one\n  more\n- two\n", ["intro:", "- one\n  more", "- two"]),
        ("| a. b | c |\n|---|---|\n| 1 | 2 |\n", ["| a. b | c |", "|---|---|", "| 1 | 2 |"]),
        ("終わり。始まり！次", ["終わり。", "始まり！", "次"]),
        ("    x = 1\n\ny", ["    x = 1", "y"]),
        ("\ufeff# Title\r\ntext\r\n", ["\ufeff# Title", "text"]),
        ("  \n \t\r\n", []),
    ],
)
def test_sentences_end_where_a_reader_sees_them_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_each_line_of_a_log_ends_a_sentence() -> None:
    assert sentences("began. Then\nfailed\n", lines=True) == ["began.", "Then", "failed"]


@given(text=PROSE | TEXT | st.text(max_size=60), lines=st.booleans())
def test_every_character_with_content_is_in_one_sentence(text: str, lines: bool) -> None:
    spans = sentence_spans(text, lines=lines)
    outside = [0, *(border for span in spans for border in span), len(text)]
    assert outside == sorted(outside)
    assert all(start < end for start, end in spans)
    gaps = [text[start:end] for start, end in zip(outside[::2], outside[1::2], strict=True)]
    assert not "".join(gaps).strip(" \t\r\n")
    assert all(text[end - 1] not in " \t\r\n" for _, end in spans)


@settings(max_examples=300, deadline=None)
@given(text=PROSE | TEXT, policy=POLICIES, media_type=st.sampled_from(["text/markdown", "text/x-run-log"]))
@example("# a\n# b\n# c\n", policy(2, 1), "text/markdown")
@example("x\n\n# a b c d e\n\ny z", policy(3, 2, "headings"), "text/markdown")
def test_chunks_are_verbatim_bounded_and_leave_nothing_out(
    text: str, policy: ChunkPolicy, media_type: str
) -> None:
    chunks = policy.chunk(text, "d", media_type)
    lines = text if media_type != "text/markdown" else lf_lines(text)
    size = policy.documents.size
    assert size is not None
    for number, chunk in enumerate(chunks):
        assert chunk.id == f"d:chunk{number}"
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.start_token is not None
        assert chunk.end_token is not None
        context = len(re.findall(r"\w+", chunk.context))
        assert chunk.end_token - chunk.start_token + context <= size or (
            chunk.end_token - chunk.start_token == 1 and size == 1
        )
        assert chunk.start_line == lines.count("\n", 0, chunk.start) + 1
        assert chunk.end_line == lines.count("\n", 0, chunk.end) + 1
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert before.end_token is not None
        assert after.start_token is not None
        assert before.end_token - after.start_token <= policy.documents.overlap
    assert uncovered_ranges(lines, chunks) == []
    covered = "".join(char for at, char in enumerate(text) if not any(c.start <= at < c.end for c in chunks))
    # A text of nothing but its byte order mark has no content.
    assert not covered.strip(" \t\r\n" if chunks else " \t\r\n\ufeff")


WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4).map(
    lambda words: " ".join(words) + ". "
)


@given(parts=st.lists(WORDS.map(str.capitalize), max_size=25), data=st.data())
def test_a_run_of_sentences_as_long_as_the_overlap_is_whole_in_some_chunk(
    parts: list[str], data: st.DataObject
) -> None:
    text = "".join(f"S{part}" for part in parts)
    overlap = data.draw(st.integers(4, 9))
    chunks = policy(overlap + 5, overlap).chunk(text, "d")
    spans = sentence_spans(text)
    for first in range(len(spans)):
        for last in range(first, len(spans)):
            start, end = spans[first][0], spans[last][1]
            if len(re.findall(r"\w+", text[start:end])) <= overlap:
                assert any(chunk.start <= start and end <= chunk.end for chunk in chunks)


def test_a_heading_leads_what_follows_and_begins_a_chunk_where_one_is_half_full() -> None:
    text = "One two three. Four five six.\n\n# Seven\n\nEight nine ten.\n"
    assert [chunk.text for chunk in policy(8).chunk(text, "d")] == [
        "One two three. Four five six.",
        "# Seven\n\nEight nine ten.",
    ]
    assert [chunk.text for chunk in policy(20).chunk(text, "d")] == [text.rstrip()]
    assert [chunk.text for chunk in policy(7).chunk(text, "d")] == [
        "One two three. Four five six.",
        "# Seven\n\nEight nine ten.",
    ]


def test_no_chunk_ends_with_a_heading_whose_content_comes_behind_it() -> None:
    text = "One two.\n\n# Three\n\nFour five six seven eight nine.\n"
    assert [chunk.text for chunk in policy(8).chunk(text, "d")] == [
        "One two.",
        "# Three\n\nFour five six seven eight nine.",
    ]


def test_overlap_does_not_reach_into_the_section_before() -> None:
    text = "One two three four.\n\n# Five\n\nSix seven. Eight nine. Ten eleven.\n"
    assert [chunk.text for chunk in policy(5, 3).chunk(text, "d")] == [
        "One two three four.",
        "# Five\n\nSix seven. Eight nine.",
        "Eight nine. Ten eleven.",
    ]


def test_the_context_holds_the_enclosing_headings_but_the_own_and_counts_against_the_size() -> None:
    text = "# Law of sales\n\n## Terms\n\nOne two three. Four five six. Seven eight nine.\n"
    chunks = policy(10, 0, "headings").chunk(text, "d")
    assert [(chunk.text[-14:], chunk.context) for chunk in chunks] == [
        ("Four five six.", ""),
        ("en eight nine.", "Law of sales > Terms"),
    ]
    assert policy(None, 0, "headings").chunk(text, "d")[0].context == ""


def test_a_heading_that_comes_again_underlined_does_not_give_back_what_was_left_out_for_it() -> None:
    text = "# a b c d e f\n\n## B\n\nx y z x y z x y z.\n\nl m.\n\nB\n---\n\nq r s t u v w x.\n"
    chunks = policy(12, 0, "headings").chunk(text, "d")
    assert [(chunk.text[:4], chunk.context) for chunk in chunks] == [
        ("# a ", ""),
        ("x y ", "B"),
        ("B\n--", "B"),
    ]


def test_a_heading_that_closes_the_one_before_leaves_it_out_of_the_context() -> None:
    text = "# Law\n\n## Terms\n\nOne two three four.\n\n## Costs\n\nFive six seven eight.\n"
    assert [chunk.context for chunk in policy(6, 0, "headings").chunk(text, "d")] == ["", "Law"]


def test_headings_that_would_take_more_than_half_the_size_are_cut_to_the_innermost_that_fit() -> None:
    text = "# Law of sales\n\n## Terms\n\nOne two three.\n\nFour five six.\n\nSeven eight nine.\n"
    assert [chunk.context for chunk in policy(4, 0, "headings").chunk(text, "d")][-1] == "Terms"


def by_appends(rule: ChunkPolicy, lines: list[str], cuts: list[int]) -> list[Chunk]:
    chunks: list[Chunk] = []
    resume, held = Resume.begin(), ""
    for first, last in pairwise([0, *sorted(cuts), len(lines)]):
        held += "".join(lines[first:last])
        cut = rule.cut(held, "d", "text/x-run-log", resume)
        chunks[resume.ordinal :] = cut.chunks
        held = held[cut.open.start - resume.start :]
        resume = Resume.from_json(json.loads(json.dumps(cut.open.to_json())))
    return chunks


@settings(max_examples=300, deadline=None)
@given(text=PROSE | LOG | TEXT, policy=POLICIES, data=st.data())
def test_chunks_of_any_appends_equal_those_of_the_whole_log(
    text: str, policy: ChunkPolicy, data: st.DataObject
) -> None:
    lines = [line + "\n" for line in text.split("\n")[:-1]]
    cuts = data.draw(st.lists(st.integers(0, len(lines)), max_size=6))
    assert by_appends(policy, lines, cuts) == policy.chunk("".join(lines), "d", "text/x-run-log")


@pytest.mark.parametrize("part", [".", " .", "\n ", "a", "…)", "# x\n"])
def test_what_looks_like_an_end_everywhere_or_nowhere_is_cut_in_linear_time(part: str) -> None:
    began = time.process_time()
    SENTENCE.chunk(part * (450_000 // len(part)), "d")
    assert time.process_time() - began < 10  # quadratic: hours


def test_real_documents_and_logs_are_cut_whole() -> None:
    for text in real_documents()[:60]:
        chunks = SENTENCE.chunk(text, "d")
        assert uncovered_ranges(lf_lines(text), chunks) == []
        assert max((c.end_token or 0) - (c.start_token or 0) for c in chunks) <= 150
    for text in real_logs():
        assert uncovered_ranges(text, policy(50, 10).chunk(text, "d", "text/x-run-log")) == []
