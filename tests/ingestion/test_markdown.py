from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from texts import TEXT, commonmark_examples, real_documents

from tessera.errors import PolicyError
from tessera.ingestion import lf_lines, markdown_blocks, uncovered_ranges
from tessera.policies import ChunkPolicy, TextPolicy, load_policy

MARKDOWN = load_policy("markdown")
SNIPPETS = [
    *("# One\n", "## Two two\n", "### Three\n\n", "Setext\n===\n", "Lower\n---\n", "\n", "text goes on\n"),
    *("word ", "```\n# no\n\ncode\n```\n", "~~~\nopen\n", "- item one\n- item two\n\n  more\n"),
    *(
        "1. first\n   - inner\n",
        "> # quoted\n> text\n",
        "    indented code\n",
        "***\n",
        "[link]: http://x.y\n",
    ),
    *(
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n",
        "<!-- # comment\n\n# x -->\n",
        "<div>\n# html\n</div>\n",
    ),
    *("---\na: b\n---\n", "+++\n", "\r\n", "\ufeff", "\u2028", "é ü. Ö ß.\n", "One. Two three. Four!\n"),
    *("a b c d e f g h i j\n", "\\\n", "\x0c\n"),
]
DOCUMENTS = st.lists(st.sampled_from(SNIPPETS), max_size=16).map("".join)


def policy(size: int | None, overlap: int = 0, parent_context: str = "none") -> ChunkPolicy:
    return ChunkPolicy("m", documents=TextPolicy("markdown", size, overlap, parent_context))


POLICIES = st.builds(
    lambda size, share, context: policy(size, int(size * share), context),
    st.integers(1, 14),
    st.sampled_from([0.0, 0.0, 0.5]),
    st.sampled_from(["none", "headings"]),
)


def cut(text: str, size: int | None, overlap: int = 0) -> list[str]:
    return [chunk.text for chunk in policy(size, overlap).chunk(text, "d")]


@settings(max_examples=400, deadline=None)
@given(text=DOCUMENTS | TEXT | st.text(max_size=80), policy=POLICIES | st.just(policy(None)))
@example("\ufeff# One\n", policy(1))
@example("# One\n\ud800\n", policy(2))
@example("a\rb\r\r# One\rc", policy(2))
def test_chunks_are_verbatim_bounded_and_leave_nothing_out(text: str, policy: ChunkPolicy) -> None:
    chunks = policy.chunk(text, "d")
    lines = lf_lines(text)
    rule = policy.documents
    for number, chunk in enumerate(chunks):
        assert chunk.id == f"d:chunk{number}"
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.start_line == lines.count("\n", 0, chunk.start) + 1
        assert chunk.end_line == lines.count("\n", 0, chunk.end) + 1
        assert chunk.start_token is not None
        assert chunk.end_token is not None
        tokens = chunk.end_token - chunk.start_token
        assert rule.size is None or tokens + len(re.findall(r"\w+", chunk.context)) <= rule.size
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert (before.end_token or 0) - (after.start_token or 0) <= rule.overlap
    assert uncovered_ranges(lines, chunks) == []
    outside = "".join(char for at, char in enumerate(text) if not any(c.start <= at < c.end for c in chunks))
    assert not outside.strip(" \t\r\n" if chunks else " \t\r\n\ufeff")


def test_a_heading_leads_its_section_underlined_ones_too() -> None:
    text = "intro\n\n# One\n\na b c\n\nTwo\n---\n\nd e f\n\n## Three\n\n# Four\n"
    assert cut(text, None) == ["intro", "# One\n\na b c", "Two\n---\n\nd e f", "## Three\n\n# Four"]
    assert [chunk.headings for chunk in policy(None).chunk(text, "d")] == [
        (),
        ("One",),
        ("One", "Two"),
        ("Four",),
    ]


def test_deeper_sections_are_packed_until_half_the_size_is_used_and_equal_ones_never() -> None:
    text = "# A\n\na b\n\n## B\n\nc d\n\n## C\n\ne f\n\n# D\n\ng\n"
    assert cut(text, 20) == ["# A\n\na b\n\n## B\n\nc d\n\n## C\n\ne f", "# D\n\ng"]
    assert cut(text, 8) == ["# A\n\na b\n\n## B\n\nc d", "## C\n\ne f", "# D\n\ng"]


def test_fences_tables_and_items_are_whole_where_they_fit_and_cut_between_lines_where_not() -> None:
    fence = "```\na b\n\nc d\n```"
    assert cut(f"x y\n\n{fence}\n", 5) == ["x y", fence]
    assert cut(fence, 3) == ["```\na b", "c d\n```"]
    table = "| a | b |\n|---|---|\n| c | d |\n| e | f |"
    assert cut(table, 4) == ["| a | b |\n|---|---|\n| c | d |", "| e | f |"]
    assert cut("- a b\n- c d\n\n  e\n- f\n", 3) == ["- a b", "- c d\n\n  e", "- f"]
    assert cut("One two three. Four five\nsix. Seven.\n", 4) == ["One two three.", "Four five\nsix. Seven."]
    assert cut("a b c d e", 2) == ["a b", "c d", "e"]


def test_what_only_looks_like_a_heading_is_none() -> None:
    text = (
        "---\n# t: x\n---\n\n```\n# a\n```\n\n<!-- \n# b\n-->\n\n> # c\n\n- # d\n\n    # e\n\n# Real\n\nx\n"
    )
    assert {chunk.headings for chunk in policy(None).chunk(text, "d")} == {(), ("Real",)}


def test_overlap_repeats_whole_blocks_of_the_same_section() -> None:
    text = "# A\n\na b\n\nc d\n\ne f\n\n# B\n\ng\n"
    assert cut(text, 5, 2) == ["# A\n\na b\n\nc d", "c d\n\ne f", "# B\n\ng"]


def test_the_context_names_the_sections_around_and_counts() -> None:
    text = "# Sales law\n\na b\n\n## Terms\n\n" + "c d e f.\n\n" * 3
    chunks = policy(8, 0, "headings").chunk(text, "d")
    assert [chunk.context for chunk in chunks] == ["", "Sales law", "Sales law > Terms", "Sales law > Terms"]


@pytest.mark.parametrize("table", ["run_logs", "ci_logs"])
def test_logs_have_no_markdown(table: str) -> None:
    with pytest.raises(PolicyError, match=f"parser of {table} is 'markdown'"):
        ChunkPolicy("m", **{table: TextPolicy("markdown")})  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["#", "> ", "- ", "`", "|", "# x\n", "\n", "a\n===\n", "[", "<!--", "a b. "])
def test_a_long_run_of_one_thing_is_cut_in_linear_time(part: str) -> None:
    began = time.process_time()
    MARKDOWN.chunk(part * (100_000 // len(part)), "d")
    assert time.process_time() - began < 10


def test_examples_of_commonmark_and_real_documents_keep_every_line() -> None:
    for text in [*commonmark_examples(), *real_documents()[:100]]:
        chunks = MARKDOWN.chunk(text, "d")
        assert uncovered_ranges(lf_lines(text), chunks) == []
        assert all(chunk.text == text[chunk.start : chunk.end] for chunk in chunks)


def test_blocks_are_whole_lines() -> None:
    text = "# One\r\n\r\n- a\r\n\r\n  b\r\n- c\r\n"
    assert [text[block.start : block.end] for block in markdown_blocks(text)] == [
        "# One",
        "- a\r\n\r\n  b",
        "- c",
    ]
