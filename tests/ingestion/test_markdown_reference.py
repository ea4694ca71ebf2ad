"""Headings, fences and tables are those of markdown-it-py, at the same lines."""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

from markdown_it import MarkdownIt
from texts import commonmark_examples, real_documents

from tessera.ingestion import lf_lines, markdown_blocks

REFERENCE = MarkdownIt("commonmark").enable("table")
CORPORA = Path(str(files("tessera.sources"))) / "corpora" / "documents"
NAMES = {"heading_open": "heading", "fence": "fence", "table_open": "table"}


def by_reference(text: str) -> list[tuple[str, int, int]]:
    """Kind, first and last line of the outermost headings, fences and tables."""
    found = []
    for token in REFERENCE.parse(text):
        if token.level == 0 and token.type in NAMES and token.map is not None:
            first, after = token.map
            lines = text.split("\n")[first:after]
            while lines and not lines[-1].strip(" \t\r"):
                lines.pop()
            found.append((NAMES[token.type], first + 1, first + len(lines)))
    return found


def by_blocks(text: str) -> list[tuple[str, int, int]]:
    """The same of our blocks; what a block is, its first line tells."""
    found = []
    for block in markdown_blocks(text):
        lines = text[block.start : block.end].split("\n")
        first = text.count("\n", 0, block.start) + 1
        if block.kind == "heading":
            found.append(("heading", first, first + len(lines) - 1))
        elif block.kind in ("fence", "table"):
            found.append((block.kind, first, first + len(lines) - 1))
    return found


def differing(texts: list[str]) -> list[str]:
    """The texts in which both do not agree. A text that begins with front matter has another reading here."""
    return [
        text
        for text in map(lf_lines, texts)
        if not re.match(r"(---|\+\+\+)[ \t]*\n", text) and by_reference(text) != by_blocks(text)
    ]


def test_the_examples_of_commonmark() -> None:
    texts = commonmark_examples()
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
