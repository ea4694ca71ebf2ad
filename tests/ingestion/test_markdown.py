from __future__ import annotations

import re
import time
from bisect import bisect_left
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_documents import DOCUMENTS
from texts import TEXT, commonmark_examples, real_documents

from tessera.errors import PolicyError
from tessera.ingestion import Chunk, Resume, lf_lines, markdown_blocks, parse_markdown, uncovered_ranges
from tessera.ingestion.commonmark import Block
from tessera.policies import ChunkPolicy, TextPolicy, load_policy

MARKDOWN = load_policy("markdown")


def policy(size: int | None, overlap: int = 0, parent_context: str = "none") -> ChunkPolicy:
    return ChunkPolicy("m", documents=TextPolicy("markdown", size, overlap, parent_context))


POLICIES = st.builds(
    lambda size, share, context: policy(size, int(size * share), context),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.0, 0.5]),
    st.sampled_from(["none", "headings"]),
)
WITHOUT_OVERLAP = st.integers(1, 20).map(policy)


def cut(text: str, size: int | None, overlap: int = 0) -> list[str]:
    return [chunk.text for chunk in policy(size, overlap).chunk(text, "d")]


class Cutting(NamedTuple):
    """A text, its blocks and how they were cut, as the slow checks below see them."""

    text: str
    blocks: list[Block]
    chunks: list[Chunk]
    tokens: list[int]

    @classmethod
    def of(cls, text: str, policy: ChunkPolicy) -> Cutting:
        tokens = [match.start() for match in re.finditer(r"\w+", text)]
        return cls(text, markdown_blocks(lf_lines(text)), policy.chunk(text, "d"), tokens)

    def count(self, start: int, end: int) -> int:
        return bisect_left(self.tokens, end) - bisect_left(self.tokens, start)

    def inside(self, start: int, end: int) -> list[Block]:
        return [block for block in self.blocks if block.start < end and block.end > start]

    def path(self, start: int, end: int) -> list[Block]:
        """The headings that are open at the first content of ``start:end``, or else at its last heading."""
        blocks = self.inside(start, end)
        return self.open_at(
            max(start, next((block for block in blocks if not block.level), blocks[-1]).start)
        )

    def open_at(self, at: int) -> list[Block]:
        """The headings that are open at ``at``, one that begins there included."""
        open_ones: list[Block] = []
        for block in self.blocks:
            if block.level and block.start <= at:
                open_ones = [each for each in open_ones if each.level < block.level] + [block]
        return open_ones

    def led(self, number: int) -> int:
        """Where the headings begin that stand right before a block."""
        while number and self.blocks[number - 1].level:
            number -= 1
        return self.blocks[number].start


@settings(max_examples=400, deadline=None)
@given(text=DOCUMENTS | TEXT | st.text(max_size=80), policy=POLICIES | st.just(policy(None)))
@example("\ufeff# One\n", policy(1))
@example("# One\n\ud800\n", policy(2))
@example("a\rb\r\r# One\rc", policy(2))
@example("\ufeff\n", policy(2))
@example("é ü. Ö ß.\nSetext\n===\n", policy(2, 0, "headings"))
@example("# a b c\n## d\n\n```\n# d\n```\nx\n", policy(8, 0, "headings"))
def test_chunks_are_verbatim_bounded_and_leave_nothing_out(text: str, policy: ChunkPolicy) -> None:
    chunks = policy.chunk(text, "d")
    lines = lf_lines(text)
    rule = policy.documents
    for number, chunk in enumerate(chunks):
        assert chunk.id == f"d:chunk{number}"
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text.removeprefix("\ufeff" if not chunk.start else "").strip(" \t\r\n")
        assert not chunk.text.endswith("\n")
        assert chunk.start_line == lines.count("\n", 0, chunk.start) + 1
        assert chunk.end_line == lines.count("\n", 0, chunk.end) + 1
        assert chunk.start_token is not None
        assert chunk.end_token is not None
        tokens = chunk.end_token - chunk.start_token
        assert rule.size is None or tokens + len(re.findall(r"\w+", chunk.context)) <= rule.size
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert rule.overlap or before.end <= after.start
        assert (before.end_token or 0) - (after.start_token or 0) <= rule.overlap
    assert uncovered_ranges(lines, chunks) == []
    outside = "".join(char for at, char in enumerate(text) if not any(c.start <= at < c.end for c in chunks))
    assert not outside.strip(" \t\r\n\ufeff")


@settings(max_examples=300, deadline=None)
@given(text=DOCUMENTS, policy=POLICIES | st.just(policy(None)))
def test_headings_are_those_open_at_the_first_content_and_the_context_has_those_not_inside(
    text: str, policy: ChunkPolicy
) -> None:
    cutting = Cutting.of(text, policy)
    for chunk in cutting.chunks:
        path = cutting.path(chunk.start, chunk.end)
        assert chunk.headings == tuple(block.title for block in path)
        if policy.documents.parent_context == "headings":
            around = [block.title for block in path if block.end <= chunk.start]
            suffixes = [" > ".join(around[at:]) for at in range(len(around) + 1)]
            limit = policy.documents.size or len(text)
            assert chunk.context == next(s for s in suffixes if len(re.findall(r"\w+", s)) <= limit // 2)


@settings(max_examples=300, deadline=None)
@given(text=DOCUMENTS, policy=WITHOUT_OVERLAP)
@example("# A\n\na\n\n## B\n\n" + "b " * 9, policy(10))
def test_no_chunk_ends_with_a_heading_that_has_content_behind_it(text: str, policy: ChunkPolicy) -> None:
    cutting = Cutting.of(text, policy)
    size = policy.documents.size or 0
    ends = {chunk.end for chunk in cutting.chunks}
    for number, block in enumerate(cutting.blocks):
        if number and not block.level and cutting.blocks[number - 1].end in ends:
            heading = cutting.blocks[number - 1]
            # The headings alone fill a chunk.
            assert not heading.level or cutting.count(cutting.led(number), heading.end) >= size


@settings(max_examples=300, deadline=None)
@given(text=DOCUMENTS, policy=WITHOUT_OVERLAP | st.just(policy(None)))
def test_only_deeper_sections_are_packed_behind_the_heading_a_chunk_begins_with(
    text: str, policy: ChunkPolicy
) -> None:
    cutting = Cutting.of(text, policy)
    for chunk in cutting.chunks:
        blocks = cutting.inside(chunk.start, chunk.end)
        leading = list(takewhile(lambda block: block.level, blocks))
        levels = [block.level for block in blocks[len(leading) :] if block.level]
        assert not levels or policy.documents.size is not None
        assert not levels or leading
        assert all(level > leading[0].level for level in levels)


@settings(max_examples=400, deadline=None)
@given(text=DOCUMENTS, policy=WITHOUT_OVERLAP)
def test_blocks_are_whole_where_they_fit_with_their_headings_else_their_lines_are(
    text: str, policy: ChunkPolicy
) -> None:
    cutting = Cutting.of(text, policy)
    size = policy.documents.size or 0
    lines = lf_lines(text)
    for number, block in enumerate(cutting.blocks):
        led = cutting.led(number)
        borders = [c.start for c in cutting.chunks if block.start < c.start < block.end]
        assert not borders or cutting.count(led, block.end) > size
        for border in borders:
            first = max(lines.rfind("\n", 0, border) + 1, block.start)
            end = (lines.find("\n", border) + len(lines) + 1) % (len(lines) + 1) or len(lines)
            begins_line = not text[first:border].strip(" \t\r\ufeff")
            if block.level or (block.kind == "paragraph" and re.search(r"[.!?]\s+$", text[:border])):
                continue
            # A line by itself too long, or too long behind headings that must not be left behind.
            before = cutting.count(led, block.start) if lines.count("\n", block.start, first) == 0 else 0
            assert begins_line or before + cutting.count(first, end) > size


@settings(max_examples=300, deadline=None)
@given(text=DOCUMENTS, policy=WITHOUT_OVERLAP)
def test_a_chunk_ends_within_a_section_only_where_the_next_block_does_not_fit(
    text: str, policy: ChunkPolicy
) -> None:
    cutting = Cutting.of(text, policy)
    size = policy.documents.size or 0
    starts = {block.start: block for block in cutting.blocks}
    for before, after in pairwise(cutting.chunks):
        block = starts.get(after.start)
        if block and not block.level:
            assert cutting.count(before.start, block.end) > size


@settings(max_examples=300, deadline=None)
@given(text=DOCUMENTS, size=st.integers(2, 20))
def test_overlap_repeats_content_of_the_same_section_only(text: str, size: int) -> None:
    cutting = Cutting.of(text, policy(size, size // 2))
    for before, after in pairwise(cutting.chunks):
        shared = [b for b in cutting.blocks if b.start < before.end and b.end > after.start]
        if after.start < before.end:
            assert not any(block.level for block in shared)
            assert cutting.open_at(after.start) == cutting.open_at(before.end - 1)


def test_without_a_size_a_chunk_is_a_sections_own_content() -> None:
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


def test_a_heading_goes_where_its_content_goes_and_at_the_end_stays() -> None:
    assert cut("# A\n\na\n\n## B\n\nb c d e f\n", 7) == ["# A\n\na", "## B\n\nb c d e f"]
    assert cut("# A\n\na\n\n## B\n\n### C\n\nb c\n\n## D\n", 6) == [
        "# A\n\na",
        "## B\n\n### C\n\nb c",
        "## D",
    ]
    assert cut("# A\n\na\n\n## B\n\n### C\n", 10) == ["# A\n\na\n\n## B\n\n### C"]
    assert cut("x\n\n# A\n## B\n", 10) == ["x", "# A\n## B"]
    assert cut("# A b c d\n\ne f\n", 3) == ["# A b c", "d\n\ne f"]


def test_blocks_are_whole_where_they_fit_and_cut_between_lines_where_not() -> None:
    fence = "```\na b\n\nc d\n```"
    assert cut(f"x y\n\n{fence}\n", 5) == ["x y", fence]
    assert cut(fence, 3) == ["```\na b", "c d\n```"]
    table = "| a | b |\n|---|---|\n| c | d |\n| e | f |"
    assert cut(table, 4) == ["| a | b |\n|---|---|\n| c | d |", "| e | f |"]
    assert cut("- a b\n- c d\n\n  e\n- f\n", 3) == ["- a b", "- c d\n\n  e", "- f"]
    assert cut("One two three. Four five\nsix. Seven.\n", 4) == ["One two three.", "Four five\nsix. Seven."]
    assert cut("one two\nthree four\nfive six", 5) == ["one two\nthree four", "five six"]
    assert cut("a b c d e", 2) == ["a b", "c d", "e"]


def test_what_only_looks_like_a_heading_is_none() -> None:
    text = (
        "---\n# t: x\n---\n\n```\n# a\n```\n\n<!-- \n# b\n-->\n\n> # c\n\n- # d\n\n    # e\n\n# Real\n\nx\n"
    )
    assert {chunk.headings for chunk in policy(None).chunk(text, "d")} == {(), ("Real",)}


def test_front_matter_stands_at_the_very_start_only() -> None:
    def titles(text: str) -> list[str]:
        return [block.title for block in markdown_blocks(text) if block.kind == "heading"]

    for text in [
        "---\nt: x\n---\n",
        "\ufeff---\r\nt: x\r\n---\r\n",
        "--- \nt: x\n\n# no\n...\n",
        "+++\nt = 1\n+++\n",
    ]:
        assert titles(f"{text}# A\n") == ["A"]
        assert markdown_blocks(f"{text}# A\n")[0].end == len(text.rstrip())
    assert titles("a\n\n---\n# A\nb\n\n---\n") == ["A"]
    assert titles("---\n\n# A\n\n---\n") == ["A"]
    assert titles("\n---\nt: x\n---\n") == ["t: x"]
    assert titles("a\n\n+++\n# A\n+++\n") == ["A"]
    assert titles("---\n# A\n") == ["A"]


def test_titles_are_without_marks_and_on_one_line() -> None:
    text = "# a #\n#\n  ### b ## c ##  \n#\tx\n\none\n  *two*\n===\n# \\#\n## # d\n\n\ufeff\n"
    titles = [block.title for block in markdown_blocks(text) if block.level]
    assert titles == ["a", "", "b ## c", "x", "one *two*", "\\#", "# d"]
    assert markdown_blocks("\ufeffA\n===\n")[0].title == "A"


def test_lines_end_at_lf_only_and_form_feeds_are_content() -> None:
    assert [chunk.headings for chunk in policy(None).chunk("# a\rb\nc\n", "d")] == [("a\rb",)]
    assert cut("a\n\x0c\nb\n\n\x0c# c\n\n# d\u2028\u0085e\n", None) == [
        "a\n\x0c\nb\n\n\x0c# c",
        "# d\u2028\u0085e",
    ]


def test_a_form_feed_is_no_blank_space() -> None:
    assert [block.kind for block in markdown_blocks("a\n\x0c\n===\n\n#\x0cb\n")] == ["heading", "paragraph"]


@settings(max_examples=300, deadline=None)
@given(
    text=DOCUMENTS,
    at=st.sets(st.integers(0, 60), max_size=40),
    size=st.integers(1, 12),
    reserved=st.sampled_from([0, 1, 5, 50]),
)
@example(text="a     b c", at=set(range(9)), size=1, reserved=0)
def test_a_token_may_begin_anywhere_and_the_reserve_leaves_room_for_one(
    text: str, at: set[int], size: int, reserved: int
) -> None:
    tokens = np.array(sorted(token for token in at if token < len(text)), np.int64)
    lines = lf_lines(text)
    parse = parse_markdown(
        lines, Resume.begin(), tokens, size, 0, lambda around: reserved if around.headings else 0
    )
    cutting = Cutting(lines, markdown_blocks(lines), [], tokens.tolist())
    assert parse.around is not None
    for (start, end, *_, headings), around in zip(parse.spans, parse.around, strict=True):
        assert lines[start:end].strip(" \t\r\n")
        assert cutting.count(start, end) <= max(1, size - (reserved if around.headings else 0))
        path = cutting.path(start, end)
        assert headings == tuple(block.title for block in path)
        assert around.headings == tuple(block.title for block in path if block.end <= start)
    assert all(before[1] <= after[0] for before, after in pairwise(parse.spans))


def test_overlap_repeats_whole_blocks_sentences_or_lines_of_the_same_section() -> None:
    text = "# A\n\na b\n\nc d\n\ne f\n\n# B\n\ng\n"
    assert cut(text, 5, 2) == ["# A\n\na b\n\nc d", "c d\n\ne f", "# B\n\ng"]
    assert cut("Ab ab. Cd cd. Ef ef.\n", 4, 2) == ["Ab ab. Cd cd.", "Cd cd. Ef ef."]
    assert cut("```\na\nb\nc\n```\n", 2, 1) == ["```\na\nb", "b\nc\n```"]
    assert cut("a\n\nb c\n\nd e f\n", 4, 2) == ["a\n\nb c", "d e f"]


def test_the_context_names_the_sections_around_and_counts() -> None:
    text = "# Sales law\n\na b\n\n## Terms\n\n" + "c d e f.\n\n" * 3
    chunks = policy(8, 0, "headings").chunk(text, "d")
    assert [chunk.context for chunk in chunks] == ["", "Sales law", "Sales law > Terms", "Sales law > Terms"]


def test_a_line_of_code_that_reads_like_a_heading_takes_none_out_of_the_context() -> None:
    text = "# Setup\n\n```\n# Setup\n```\n\nx y z\n\n```\n# Setup\n```\n"
    assert [chunk.context for chunk in policy(5, 0, "headings").chunk(text, "d")] == ["", "Setup"]


@pytest.mark.parametrize("table", ["run_logs", "ci_logs"])
def test_logs_have_no_markdown(table: str) -> None:
    with pytest.raises(PolicyError, match=f"parser of {table} is 'markdown'"):
        ChunkPolicy("m", **{table: TextPolicy("markdown")})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "part",
    [
        *(
            "#",
            "> ",
            "- ",
            "`",
            "|",
            "# x\n",
            "## x\n\n",
            "\n",
            "a\n===\n",
            "[",
            "<!--",
            "a b. ",
            "- a\n",
            "+++\n",
        ),
        *("[a]: b\n\n", "a\n\n## x\n", "---\n", "a ", "\r", "\ufeff", "é\n\n", "* a\n\n    - b\n"),
    ],
)
def test_a_long_run_of_one_thing_is_cut_in_linear_time(part: str) -> None:
    began = time.process_time()
    for rule in (MARKDOWN, policy(3, 1, "headings")):
        rule.chunk("a\n\n" + part * (100_000 // len(part)), "d")
    assert time.process_time() - began < 10


def test_examples_of_commonmark_and_real_documents_keep_every_line() -> None:
    for text in [*commonmark_examples(), *real_documents()[:100]]:
        chunks = MARKDOWN.chunk(text, "d")
        assert uncovered_ranges(lf_lines(text), chunks) == []
        assert all(chunk.text == text[chunk.start : chunk.end] for chunk in chunks)


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS | TEXT)
@example("a|b\n-|-\nx\n\ny\n")
def test_blocks_are_whole_lines_and_each_line_with_content_is_in_one(text: str) -> None:
    lines = lf_lines(text)
    blocks = markdown_blocks(lines)
    for block in blocks:
        assert block.start == 0 or lines[block.start - 1] == "\n"
        assert block.end == len(lines) or re.match(r"\r?\n", lines[block.end :])
        for line in re.split(r"\r?\n", lines[block.start : block.end])[:: max(1, lines.count("\n"))]:
            assert line.strip(" \t\r")
        assert bool(block.level) == (block.kind == "heading")
    assert all(before.end < after.start for before, after in pairwise(blocks))
    assert uncovered_ranges(lines, blocks) == []


def test_a_block_keeps_the_line_ends_inside_it() -> None:
    text = "# One\r\n\r\n- a\r\n\r\n  b\r\n- c\r\n"
    assert [text[block.start : block.end] for block in markdown_blocks(text)] == [
        "# One",
        "- a\r\n\r\n  b",
        "- c",
    ]
