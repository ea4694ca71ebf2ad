from __future__ import annotations

import pytest

from tessera.assembly.grounding import (
    CHANGED,
    DELETED,
    GENERATION,
    HELD,
    NOT_IN_CHUNK,
    UNKNOWN,
    Citation,
    Current,
    Judgement,
    has_evidence,
    judge,
    place,
)

HERE = Citation(5, "d5", known_policy=True, served_policy=True)
UNTOLD = Citation(5, None, known_policy=True, served_policy=True)
ELSEWHERE = Citation(5, "d5", known_policy=True, served_policy=False)
INVENTED = Citation(5, "d5", known_policy=False, served_policy=False)


@pytest.mark.parametrize(
    ("citation", "current", "expected"),
    [
        (HERE, None, UNKNOWN),
        (HERE, Current(5, "d5", chunk="a quote here"), HELD),
        (UNTOLD, Current(5, "d5", chunk="a quote here"), HELD),
        (HERE, Current(5, "d6", chunk="a quote here and more"), HELD),
        (HERE, Current(5, "d5", chunk="a Quote here"), NOT_IN_CHUNK),
        (UNTOLD, Current(5, "d6", chunk="something else"), NOT_IN_CHUNK),
        (HERE, Current(5, "d6", chunk="something else"), CHANGED),
        (HERE, Current(6, "d6"), CHANGED),
        (HERE, Current(6, "", deleted=True), DELETED),
        (HERE, Current(5, "", deleted=True), DELETED),
        (HERE, Current(4, "d4"), UNKNOWN),
        (HERE, Current(4, "", deleted=True), UNKNOWN),
        (HERE, Current(5, "d5"), UNKNOWN),
        (HERE, Current(5, "d6"), CHANGED),
        (ELSEWHERE, Current(5, "d5"), GENERATION),
        (ELSEWHERE, Current(6, "d6"), CHANGED),
        (ELSEWHERE, Current(6, "", deleted=True), DELETED),
        (INVENTED, Current(6, "d6"), UNKNOWN),
        (INVENTED, Current(6, "", deleted=True), UNKNOWN),
        (INVENTED, Current(5, "d5"), UNKNOWN),
    ],
)
def test_a_quote_is_judged_by_what_is_there_now(
    citation: Citation, current: Current | None, expected: Judgement
) -> None:
    assert judge("quote", citation, current) == expected


@pytest.mark.parametrize(
    ("quote", "chunk"),
    [("a\nb", "a\r\nb"), ("é", "e\u0301"), ("a b", "a  b"), ("a b", "a\u00a0b"), ("straße", "STRASSE")],
)
def test_verbatim_is_verbatim(quote: str, chunk: str) -> None:
    assert judge(quote, HERE, Current(5, "d5", chunk=chunk)) == NOT_IN_CHUNK


def test_a_place_is_the_first_in_code_points() -> None:
    assert place("b", "🙂ab b") == (2, 3)
    assert place("c", "ab") is None


@pytest.mark.parametrize(
    ("judged", "floor", "evidence"),
    [
        ([(HELD, None)], None, True),
        ([(HELD, None)], 0.0, False),
        ([(HELD, 1.0)], 1.0, True),
        ([(HELD, 0.9), (CHANGED, 5.0), (NOT_IN_CHUNK, 5.0)], 1.0, False),
        ([(CHANGED, 5.0)], None, False),
        ([(UNKNOWN, 2.0), (HELD, 2.0)], 2.0, True),
        ([], None, False),
    ],
)
def test_evidence_is_a_supported_quote_that_reaches_the_floor(
    judged: list[tuple[Judgement, float | None]], floor: float | None, evidence: bool
) -> None:
    assert has_evidence(judged, floor) is evidence
