"""The stages' figures against slow and obvious ones: ranges as sets of characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.assembly.passage import Context, Piece
from tessera.generations.cases import Case, evidence_digest
from tessera.lab.corpus import Question
from tessera.lab.ranges import length, shared, union
from tessera.lab.stages import FATES, covered, fate_of, grounded, packed

TEXTS = {"s/a": "One two.  \n\nThree four five. Six", "s/b": "Alpha beta\n\n\ngamma  delta"}


@st.composite
def ranges(draw: st.DrawFn, least: int = 0) -> list[tuple[str, int, int]]:
    found = []
    for key in draw(st.lists(st.sampled_from(sorted(TEXTS)), min_size=least, max_size=5)):
        start = draw(st.integers(0, len(TEXTS[key]) - 1))
        found.append((key, start, draw(st.integers(start + 1, len(TEXTS[key])))))
    return found


def characters(found: list[tuple[str, int, int]]) -> set[tuple[str, int]]:
    return {(key, at) for key, start, end in found for at in range(start, end)}


def context(found: list[tuple[str, int, int]], budget: int = 100) -> Context:
    joined = union(found)
    pieces = [
        Piece(key, start, end, TEXTS[key][start:end], ("0",), 1.0)
        for key, spans in joined.items()
        for start, end in spans
    ]
    return Context(tuple(pieces), len(pieces), budget, ())


def case(key: str, start: int, end: int, name: str = "c") -> Case:
    source, _, doc_id = key.partition("/")
    return Case(name, "why?", source, doc_id, start, end, evidence_digest(TEXTS[key][start:end]))


@given(ranges(), ranges())
def test_ranges_count_as_sets_of_characters_do(
    some: list[tuple[str, int, int]], others: list[tuple[str, int, int]]
) -> None:
    assert length(union(some)) == len(characters(some))
    assert shared(union(some), union(others)) == len(characters(some) & characters(others))


@given(ranges(least=1), ranges())
def test_recall_precision_and_iou_are_those_of_sets(
    evidence: list[tuple[str, int, int]], taken: list[tuple[str, int, int]]
) -> None:
    question = Question("why?", tuple(case(*span) for span in evidence))
    found = packed(question, context(taken))
    wanted, got = characters(evidence), characters(taken)
    assert found.recall == len(wanted & got) / len(wanted)
    assert found.precision == (len(wanted & got) / len(got) if got else 0)
    assert found.iou == len(wanted & got) / len(wanted | got)


@given(ranges(least=1), ranges())
def test_evidence_is_covered_where_each_of_its_characters_with_content_is(
    evidence: list[tuple[str, int, int]], taken: list[tuple[str, int, int]]
) -> None:
    key, start, end = evidence[0]
    got = characters(taken)
    missing = [at for at in range(start, end) if (key, at) not in got]
    expected = all(TEXTS[key][at].isspace() for at in missing)
    assert covered(case(key, start, end), TEXTS[key], union(taken)) == expected


@given(ranges(least=1), ranges(), st.booleans(), st.one_of(st.none(), st.integers(1, 5)))
def test_every_case_has_the_first_fate_that_is_true_of_it(
    evidence: list[tuple[str, int, int]],
    taken: list[tuple[str, int, int]],
    represented: bool,
    rank: int | None,
) -> None:
    key, start, end = evidence[0]
    asked, found = case(key, start, end), context(taken)
    fate = fate_of(asked, represented=represented, rank=rank, text=TEXTS[key], context=found)
    text = TEXTS[key]
    quoted = any(piece.key == key and piece.start <= start and end <= piece.end for piece in found.pieces)
    truths = {
        "kept": quoted,
        "grounding": covered(asked, text, union(taken)),
        "chunking": not represented,
        "retrieval": rank is None,
        "packing": True,
    }
    assert fate == next(name for name, true in truths.items() if true)
    assert fate in FATES


def test_a_quote_is_checked_by_its_words_not_by_its_span() -> None:
    asked = case("s/a", 0, 8)
    honest = Piece("s/a", 0, 12, TEXTS["s/a"][:12], ("0",), 1.0)
    altered = Piece("s/a", 0, 12, "One ten.    ", ("0",), 1.0)
    elsewhere = Piece("s/b", 0, 12, TEXTS["s/a"][:12], ("0",), 1.0)
    for piece, expected in ((honest, True), (altered, False), (elsewhere, False)):
        assert grounded(asked, "One two.", Context((piece,), 2, 9, ())) is expected


def test_evidence_in_two_pieces_with_a_blank_between_is_covered_and_quoted_by_none() -> None:
    asked, text = case("s/a", 0, 17), TEXTS["s/a"]
    taken = [("s/a", 0, 8), ("s/a", 12, 20)]
    assert text[8:12].isspace()
    assert covered(asked, text, union(taken))
    assert not covered(asked, text, union([("s/a", 0, 7), ("s/a", 12, 20)]))
    assert fate_of(asked, represented=True, rank=1, text=text, context=context(taken)) == "grounding"
