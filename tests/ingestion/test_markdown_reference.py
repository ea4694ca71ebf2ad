"""Headings, fences and tables are those of markdown-it-py, at the same lines."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from markdown_documents import PLAIN_DOCUMENTS
from markdown_it import MarkdownIt
from texts import commonmark_examples, real_documents

from tessera.ingestion import lf_lines, markdown_blocks

REFERENCE = MarkdownIt("commonmark").enable("table")
CORPORA = Path(str(files("tessera.sources"))) / "corpora"
NAMES = {"heading_open": "heading", "fence": "fence", "table_open": "table"}

Found = tuple[str, int, int, int, str]
"""Kind, first line, last line with content, level and title (0 and empty but for headings)."""


def by_reference(text: str) -> list[Found]:
    """The outermost headings, fences and tables."""
    tokens = REFERENCE.parse(text)
    lines = text.split("\n")
    found = []
    for number, token in enumerate(tokens):
        if token.level or token.type not in NAMES or token.map is None:
            continue
        first, last = token.map
        while not lines[last - 1].strip(" \t\r"):
            last -= 1
        level, title = 0, ""
        if token.type == "heading_open":
            level = int(token.tag.removeprefix("h"))
            title = " ".join(line.strip(" \t\r") for line in tokens[number + 1].content.split("\n"))
        found.append((NAMES[token.type], first + 1, last, level, title))
    return found


def by_blocks(text: str) -> list[Found]:
    return [
        (
            block.kind,
            text.count("\n", 0, block.start) + 1,
            text.count("\n", 0, block.end) + 1,
            block.level,
            block.title,
        )
        for block in markdown_blocks(text)
        if block.kind in NAMES.values()
    ]


def differing(texts: list[str]) -> list[str]:
    """The texts that both do not read alike. An empty line before them: front matter is no CommonMark."""
    return [text for text in texts if by_reference("\n" + lf_lines(text)) != by_blocks("\n" + lf_lines(text))]


def test_the_examples_of_commonmark() -> None:
    texts = commonmark_examples()
    assert len(texts) == 652
    kinds = Counter(kind for text in texts for kind, *_ in by_blocks(lf_lines(text)))
    assert kinds["heading"] > 50
    assert kinds["fence"] > 25
    assert differing(texts) == []


def test_the_bundled_documents() -> None:
    texts = [path.read_text() for path in sorted(CORPORA.rglob("*.md"))]
    assert len(texts) > 30
    assert differing(texts) == []


def test_real_documents() -> None:
    assert differing(real_documents()) == []


@settings(max_examples=300, deadline=None)
@given(PLAIN_DOCUMENTS)
def test_random_documents(text: str) -> None:
    assert differing([text]) == []


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        # A table right behind a line of text: pulldown-cmark demands a bar at the start of its first row.
        pytest.param("x\na | b\n---|---\n", [], ["table"], id="table without outer bars behind text"),
        # GFM ends a table where another block begins; pulldown-cmark takes the indented line for a row.
        pytest.param("a|b\n-|-\n    c\n", [("table", 3)], [("table", 2)], id="indented line behind a table"),
        pytest.param("a|b\n-|-\n|\n", [("table", 2)], [("table", 3)], id="a bare bar behind a table"),
        # A row of hyphens that begins like a list item: markdown-it lets the item win.
        pytest.param("a | b\n- | -\n", ["table"], [], id="a row of rules like a list item"),
        # Here GFM has a heading, by the underline or by the mark, and a quote with a line of text in it.
        pytest.param("| a\n--\n", ["heading"], ["table"], id="one column underlined"),
        pytest.param("# a | b\n---|---\n", ["heading"], ["table"], id="a heading before a row of rules"),
        pytest.param("> a | b\n---|---\n", [], ["table"], id="a quote before a row of rules"),
        # CommonMark reads the whole paragraph, underline included, before it looks for definitions in it.
        pytest.param("[k]:\n===\n", ["heading"], [], id="a definition without an end underlined"),
        pytest.param("[k]: y\n<e>\n===\n", ["heading"], [], id="a line like HTML behind a definition"),
    ],
)
def test_where_both_are_known_to_differ(text: str, ours: list[object], theirs: list[object]) -> None:
    for found, expected in ((by_blocks(text), ours), (by_reference(text), theirs)):
        assert len(found) == len(expected)
        for (kind, _, last, *_), known in zip(found, expected, strict=True):
            assert known in (kind, (kind, last))
