from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.events.change import MediaType, SourceKind
from tessera.index.segment import ChunkEntry
from tessera.lab.corpus import LabDocument
from tessera.lab.cuts import LabChunk
from tessera.lab.excerpts import LINES_AROUND, excerpt
from tessera.lab.shapes import Outline, length_class, script_of

TEXT = """# Title

One sentence. Another one
over two lines.

- first item
- second

| a | b |
|---|---|
| c | d |

```sh
run this

and that
```

## Next
Last words.
"""


def document(text: str, kind: SourceKind = "documents", media: MediaType = "text/markdown") -> LabDocument:
    return LabDocument("s", "d.md", kind, media, text)


@pytest.mark.parametrize(
    ("before", "place"),
    [
        ("# Title", "between blocks"),
        ("tle\n", "heading: inside a sentence"),
        ("One sentence", "between blocks"),
        (" sentence. ", "paragraph: inside a sentence"),
        ("Another", "paragraph: between sentences"),
        ("over two", "paragraph: inside a sentence"),
        ("\n\n- first", "between blocks"),
        ("- second", "between blocks"),
        ("item\n", "list: inside a sentence"),
        ("|---|---|", "table: between lines"),
        ("b |", "table: inside a line"),
        ("and that", "code: between lines"),
        ("this\n", "code: inside a line"),
        ("Last words", "between blocks"),
    ],
)
def test_a_border_is_told_by_what_it_cuts(before: str, place: str) -> None:
    assert TEXT.count(before) == 1
    assert Outline(document(TEXT)).place(TEXT.index(before)) == place


def test_borders_of_a_log_fall_between_lines_or_inside_one() -> None:
    outline = Outline(document("one\ntwo\n\nthree\n", "devex", "text/x-run-log"))
    places = [outline.place(at) for at in range(17)]
    assert [at for at, place in enumerate(places) if place == "log: inside a line"] == [
        1,
        2,
        5,
        6,
        10,
        11,
        12,
        13,
    ]


@pytest.mark.parametrize(
    ("first", "last", "kinds"),
    [
        ("One", "lines.", "paragraph"),
        ("# Title", "sentence.", "heading + paragraph"),
        ("- first", "second", "list"),
        ("second", "| c | d |", "list + table"),
        ("run", "that", "code"),
    ],
)
def test_evidence_stands_in_blocks(first: str, last: str, kinds: str) -> None:
    end = TEXT.index(last) + len(last)
    assert Outline(document(TEXT)).kinds(TEXT.index(first), end) == kinds


def test_sections_begin_at_headings() -> None:
    outline = Outline(document(TEXT))
    assert outline.section(TEXT.index("One")) == outline.section(TEXT.index("run")) == 1
    assert outline.section(TEXT.index("## Next")) == outline.section(TEXT.index("Last")) == 2


@pytest.mark.parametrize(
    ("text", "script"),
    [("Naïve words", "latin"), ("рівень, level", "cyrillic"), ("水位 a", "cjk"), ("12 %", "none")],
)
def test_a_script_is_that_of_most_letters(text: str, script: str) -> None:
    assert script_of(text) == script


def test_classes_of_length_have_their_bounds() -> None:
    assert [length_class(n) for n in (1, 10, 11, 25, 26, 200, 201)] == [
        "1-10", "1-10", "11-25", "11-25", "26-50", "101-200", "201+",
    ]  # fmt: skip


def chunk(ordinal: int, start: int, end: int) -> LabChunk:
    return LabChunk("s/d.md", ChunkEntry(ordinal, start, end, 0, 0, 1, 1, 0, 0, (), ""), 1, 1)


@given(st.text("ab \n", min_size=1, max_size=60), st.data())
def test_an_excerpt_is_the_source_with_evidence_and_borders_in_their_places(
    text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    cut = data.draw(st.integers(start, end))
    shown = excerpt(document(text), start, end, [chunk(0, 0, cut), chunk(1, cut, len(text))])
    lines = text.split("\n")
    numbers = [line.number for line in shown.lines]
    assert ["".join(part.text for part in line.fragments) for line in shown.lines] == [
        lines[n - 1] for n in numbers
    ]
    marked = "\n".join("".join(p.text for p in line.fragments if p.marked) for line in shown.lines)
    assert marked.replace("\n", "") == text[start:end].replace("\n", "")
    first = text.count("\n", 0, start) + 1
    assert numbers[0] == max(first - LINES_AROUND, 1)
    if start < cut < end:
        before = _text_before(shown, "chunk 1 begins")
        offset = sum(len(line) + 1 for line in lines[: numbers[0] - 1])
        assert offset + len(before) == cut


def _text_before(shown: object, border: str) -> str:
    """All text of an excerpt up to a border, with its line ends; fails where the border is not there once."""
    found, text = [], ""
    for line in shown.lines:  # type: ignore[attr-defined]
        for part in line.fragments:
            if border in part.borders:
                found.append(text)
            text += part.text
        text += "\n"
    assert len(found) == 1, f"{border} stands {len(found)} times"
    return found[0]


def test_of_a_very_long_line_the_middle_is_left_out() -> None:
    shown = excerpt(document("a" * 1000 + "evidence" + "b" * 30), 1000, 1008)
    [line] = shown.lines
    before, evidence, after = line.fragments
    assert before.text == "a" * 200 + " [… 600 characters …] " + "a" * 200
    assert (evidence.text, evidence.marked, after.text) == ("evidence", True, "b" * 30)
