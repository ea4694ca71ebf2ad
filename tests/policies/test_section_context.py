from __future__ import annotations

import re
from itertools import takewhile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tessera.ingestion import Block, Chunk, Resume, markdown_blocks
from tessera.policies import ChunkPolicy, TextPolicy
from tessera.policies.context import MAX_CONTEXT_CHARACTERS, SECTION_TOKENS
from tessera.policies.policy import CONTEXTUAL, SIZED

BLOCKS = [
    *(f"{'#' * level} {title}\n" for level in (1, 2, 3) for title in ("A", "B b", "C c c", "D d d d d d d")),
    *("One two three.\n", "Four five six seven. Eight nine.\n", "ten\n", "é ü ö\n", "***\n"),
]
DOCUMENTS = st.lists(st.sampled_from(BLOCKS), max_size=14).map("\n".join)


def policy(parser: str, size: int | None, overlap: int = 0) -> ChunkPolicy:
    return ChunkPolicy("p", TextPolicy(parser, size, overlap, "section"))


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def slow_context(text: str, blocks: list[Block], chunk: Chunk, parser: str, size: int | None) -> str:
    """The context by the rule's words: from all blocks of the document, for one chunk."""
    limit = SECTION_TOKENS if size is None else min(size // 2, SECTION_TOKENS)
    around: list[Block] = []
    for block in blocks:
        if block.kind == "heading" and block.start < chunk.start:
            around = [each for each in around if each.level < block.level] + [block]
    own = takewhile(lambda block: block.kind == "heading", (b for b in blocks if b.start >= chunk.start))
    leading = [block for block in own if block.start < chunk.end]
    for block in leading if parser == "markdown" else leading[:1]:
        if parser == "markdown" or block.start == chunk.start:
            around = [each for each in around if each.level < block.level]
    if not around:
        return ""
    path = [block.title for block in around]
    while path and len(words(" ".join(path))) > limit:
        del path[0]
    stops = [block.start for block in blocks if block.kind == "heading" and block.start >= around[-1].end]
    lead = text[around[-1].end : min([chunk.start, *stops])]
    left = limit - len(words(" ".join(path)))
    tokens = [match.start() for match in re.finditer(r"\w+", lead)]
    lead = lead[: tokens[left]] if left < len(tokens) else lead
    return "\n".join(part for part in (" > ".join(path), lead.strip() if tokens and left else "") if part)


@pytest.mark.parametrize("parser", SIZED)
@settings(max_examples=250, deadline=None)
@given(
    text=DOCUMENTS,
    size=st.integers(1, 14) | st.sampled_from([30, 2000, None]),
    share=st.sampled_from([0, 0.5]),
)
@example(text="# A\n\nw w w\n\n## B b\n\nw w\n\n### C\n\nw\n\n# D\n\nw", size=10, share=0)
def test_the_context_is_the_headings_around_and_how_the_innermost_section_begins(
    parser: str, text: str, size: int | None, share: float
) -> None:
    blocks = markdown_blocks(text)
    for chunk in policy(parser, size, int((size or 0) * share)).chunk(text, "d"):
        inside_heading = any(b.kind == "heading" and b.start < chunk.start < b.end for b in blocks)
        if inside_heading:
            # A heading longer than a chunk: its pieces are no headings.
            continue
        assert chunk.context == slow_context(text, blocks, chunk, parser, size)
        assert size is None or len(words(chunk.context)) <= size // 2
        assert chunk.text == text[chunk.start : chunk.end]


def test_a_subsection_is_found_by_what_its_parent_says_at_its_beginning() -> None:
    text = "# Rent\n\nDue monthly, in euro.\n\n## Flats\n\nFirst week.\n\n## Shops\n\nLast week.\n"
    for parser in ("sentence", "markdown"):
        chunks = policy(parser, 12).chunk(text, "d")
        found = next(chunk for chunk in chunks if "Shops" in chunk.text and "Flats" not in chunk.text)
        assert found.text == "## Shops\n\nLast week."
        assert found.context == "Rent\nDue monthly, in euro."


def test_a_long_section_gives_its_later_chunks_how_it_begins_and_nothing_of_themselves() -> None:
    text = "# Rent\n\n" + " ".join(f"w{number}." for number in range(40))
    chunks = policy("sentence", 20, 8).chunk(text, "d")
    assert [chunk.context for chunk in chunks[1:3]] == ["Rent\nw0. w1. w2. w3. w4. w5. w6. w7. w8."] * 2
    assert all(not set(words(chunk.context)) & set(words(chunk.text)) for chunk in chunks)


def test_a_section_is_bounded_where_the_size_is_not() -> None:
    text = "# A\n\n" + "w " * 5_000 + "\n\n## B\n\nx\n"
    assert len(words(policy("markdown", None).chunk(text, "d")[-1].context)) == SECTION_TOKENS
    assert len(words(policy("markdown", 9_000).chunk(text, "d")[-1].context)) == SECTION_TOKENS


LONG = "x" * MAX_CONTEXT_CHARACTERS
SECTIONS = "".join(f"## {number}\n\nw\n\n" for number in range(300))


@pytest.mark.parametrize("treatment", ["headings", "section"])
@pytest.mark.parametrize("parser", CONTEXTUAL)
@pytest.mark.parametrize("begin", [f"# {LONG}y\n\n", f"# A\n\n{LONG}y\n\n", f"# A {LONG}\n\na {LONG} b\n\n"])
def test_one_token_without_end_does_not_go_with_every_chunk(begin: str, parser: str, treatment: str) -> None:
    size = 20 if parser in SIZED else None
    if treatment == "section" and size is None:
        pytest.skip("paragraphs have headings only")
    text = begin + SECTIONS
    chunks = ChunkPolicy("p", TextPolicy(parser, size, 0, treatment)).chunk(text, "d")
    assert len(chunks) > 20
    assert sum(len(chunk.context) for chunk in chunks if chunk.start > len(begin) + 100) < 2 * len(text)
    assert all(len(chunk.context) <= 2 * MAX_CONTEXT_CHARACTERS for chunk in chunks)


def test_a_title_of_just_the_characters_that_a_context_may_have_stands_in_it() -> None:
    chunks = ChunkPolicy("p", TextPolicy("markdown", 20, 0, "headings")).chunk(
        f"# {LONG}\n\n" + SECTIONS, "d"
    )
    assert chunks[-1].context == LONG


@pytest.mark.parametrize("parser", SIZED)
def test_a_document_that_grows_is_cut_again_from_its_beginning(parser: str) -> None:
    text = "# A\n\none two three\n\n## B\n\nfour five six\n\nseven eight nine\n"
    rule = policy(parser, 6)
    cut = rule.cut(text, "d", "text/markdown", is_log=True)
    assert cut.open == Resume.begin()
    assert rule.cut(text + "\nten\n", "d", "text/markdown", cut.open, is_log=True).chunks == rule.chunk(
        text + "\nten\n", "d"
    )
