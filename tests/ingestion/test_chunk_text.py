from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from provenance import check_provenance, spans
from slow_parsers import slow_paragraphs
from texts import TEXT, cases, commonmark_examples, real_documents

from tessera.ingestion import chunk_text


def lines_of(text: str) -> list[list[int]]:
    return [[chunk.start_line, chunk.end_line] for chunk in chunk_text(text, "d")]


@pytest.mark.parametrize("case", cases("chunk_text.jsonl"))
def test_acceptance_case(case: dict[str, object]) -> None:
    text = str(case["input"])
    assert lines_of(text) == case["chunk_text_lines"]
    check_provenance(text, chunk_text(text, "d"))


@settings(max_examples=300, deadline=None)
@given(TEXT)
@example("a\r\n\r\nb\r")
@example("\ufeff\r\n# A\n\n\ufeff# B\n")
def test_chunks_equal_those_of_the_slow_model(text: str) -> None:
    chunks = chunk_text(text, "d")
    assert spans(chunks) == [tuple(expected) for expected in slow_paragraphs(text)]
    check_provenance(text, chunks)


@settings(deadline=None)
@given(TEXT)
def test_a_final_newline_changes_no_chunk(text: str) -> None:
    text = text.rstrip("\r\n") + "x"
    if "\n" in text or "\r" not in text:  # else the newline would change which lines the source has
        assert chunk_text(text + "\n", "d") == chunk_text(text, "d")


@pytest.mark.parametrize("read", [commonmark_examples, real_documents])
def test_real_documents_are_cut_as_by_the_slow_model(read: Callable[[], list[str]]) -> None:
    texts = read()
    assert len(texts) > 600
    for text in texts:
        for variant in (text, text.replace("\n", "\r\n"), text.replace("\n", "\r")):
            chunks = chunk_text(variant, "d")
            assert spans(chunks) == [tuple(expected) for expected in slow_paragraphs(variant)]


def test_commonmark_examples_joined_keep_exact_provenance() -> None:
    text = "\n\n".join(commonmark_examples())
    check_provenance(text, chunk_text(text, "d"))


def test_equal_paragraphs_keep_their_own_places_when_others_move() -> None:
    first, second = "same\n\n# A\n\nsame\n\nother\n", "other\n\n# A\n\nsame\n\nsame\n"
    assert lines_of(first) == [[1, 1], [3, 5], [7, 7]]
    assert [chunk.start for chunk in chunk_text(first, "d")] == [0, 6, 17]
    assert [chunk.start for chunk in chunk_text(second, "d")] == [0, 7, 18]


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("intro\n\n# A\n\nx\n\ny\n\n## B\n\nz\n\n# C\n\nw\n", [(), ("A",), ("A",), ("A", "B"), ("C",)]),
        ("# A\n## B\n\nx\n", [("A", "B")]),
        ("# A\n\n# B\n\nx\n", [("B",)]),
        ("### C\n\n# A\n\nx\n", [("A",)]),
        ("# A\n\nx\n\n### C\n\ny\n\n## B\n", [("A",), ("A", "C"), ("A", "B")]),
        ("# A ##  \n\nx\n", [("A",)]),
        ("# A#\n\nx\n", [("A#",)]),
        ("# C \\#\n\nx\n", [("C \\#",)]),
        ("#  A \t \r\n\r\nx\r\n", [("A",)]),
        ("# ##\n\nx\n", [("",)]),
        ("text\n# not alone\n\nx\n", [(), ()]),
        ("\ufeff# A\r\rx\r", [("A",)]),
    ],
)
def test_headings_are_the_path_of_enclosing_headings(text: str, headings: list[tuple[str, ...]]) -> None:
    assert [chunk.headings for chunk in chunk_text(text, "d")] == headings


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("#tag\n\nx\n", [[1, 1], [3, 3]]),
        ("# \n\nx\n", [[1, 1], [3, 3]]),
        ("# \u00a0\n\nx\n", [[1, 1], [3, 3]]),
        ("    # code\n\nx\n", [[1, 1], [3, 3]]),
        ("##[error]\n\n##[group]\n\nx\n", [[1, 1], [3, 3], [5, 5]]),
        ("one\x0b# two\n\nthree\n", [[1, 1], [3, 3]]),
        ("one\x1c# two\n\nthree\n", [[1, 1], [3, 3]]),
        ("\x0c\n\nx\n", [[1, 1], [3, 3]]),
        ("a\r\rb\n\nc", [[1, 1], [3, 3]]),
        ("a\r\n\nb\n \r\n\r\nc\r\n", [[1, 1], [3, 3], [6, 6]]),
        ("\ufeff \n\nx\n", [[3, 3]]),
        ("\ufeff", []),
        ("\ufeff\r\r", []),
        ("\ufeff\ufeff\n\nx", [[1, 1], [3, 3]]),
        ("x\n\n\ufeff# A\n\ny\n", [[1, 1], [3, 3], [5, 5]]),
        ("a\n\n\n  ", [[1, 1]]),
        ("# A", [[1, 1]]),
        ("# A\n\n\n\n", [[1, 1]]),
        ("\n\n    code\n\n    more\n", [[3, 3], [5, 5]]),
        ("\t\n  x", [[2, 2]]),
        ("```\n\n# c\n\nend", [[1, 1], [3, 5]]),
    ],
)
def test_lines_and_blank_lines_are_taken_literally(text: str, lines: list[list[int]]) -> None:
    assert lines_of(text) == lines
    check_provenance(text, chunk_text(text, "d"))


def test_a_hundred_thousand_spaces_or_marks_take_no_quadratic_time() -> None:
    for line in ("# a" + " " * 300_000 + "b#", "# " + "# " * 200_000, "#" + "\t" * 300_000, " " * 300_000):
        text = f"{line}\n\nx{line}\n\n{line}"
        check_provenance(text, chunk_text(text, "d"))
