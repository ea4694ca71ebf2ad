from __future__ import annotations

import pytest
from hypothesis import given, settings
from provenance import check_provenance, spans
from slow_parsers import slow_messages
from texts import LOG, STAMP, cases, kind_of_line, real_logs

from tessera.ingestion import Chunk, parse_log_chunks


def log_of(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def stamped(*messages: str) -> str:
    return log_of(*(f"{STAMP} {message}" for message in messages))


def lines_of(text: str) -> list[tuple[int, int]]:
    return [(chunk.start_line, chunk.end_line) for chunk in parse_log_chunks(text, "d")]


def case_text(case: dict[str, str]) -> str:
    return case["input"] if "input" in case else bytes.fromhex(case["input_hex"]).decode(errors="replace")


EXPECTED = {
    "L01": [(1, 2), (3, 5), (6, 8)],
    "L02": [(1, 2), (3, 4)],
    "L03": [(1, 2)],
    "L05": [(1, 4)],
    "L06": [(1, 3), (4, 4)],
    "L08": [(1, 1)],
    "L09": [(1, 2)],
    "L10": [(1, 3)],
    "L11": [(1, 1)],
    "L13": [(1, 3)],
    "L14": [(1, 1)],
}


@pytest.mark.parametrize("case", cases("runner_logs.jsonl"))
def test_acceptance_case(case: dict[str, str]) -> None:
    text = case_text(case)
    assert lines_of(text) == EXPECTED[case["id"]]
    check_provenance(text, parse_log_chunks(text, "d"), cr_rule=False)


def test_title_of_a_group_is_its_chunks_heading() -> None:
    text = stamped("##[group] Inputs", "k: v", "##[endgroup]", "after", "##[group]", "x")
    assert [chunk.headings for chunk in parse_log_chunks(text, "d")] == [("Inputs",), (), ()]


@settings(max_examples=300, deadline=None)
@given(LOG)
def test_chunks_equal_those_of_the_slow_model(text: str) -> None:
    for variant in (text, text.removesuffix("\n")):
        chunks = parse_log_chunks(variant, "d")
        assert spans(chunks) == [tuple(expected) for expected in slow_messages(variant, kind_of_line)]
        check_provenance(variant, chunks, cr_rule=False)


def test_a_mark_inside_a_group_does_not_split_it() -> None:
    assert lines_of(stamped("##[group]g", "##[error]e", "##[warning]w", "##[endgroup]", "##[error]e")) == [
        (1, 4),
        (5, 5),
    ]


def test_errors_warnings_and_notices_outside_groups_are_units() -> None:
    messages = ("a", "##[error]e", "##[warning]w", "##[notice]n", "b", "##[command]c", "##[debug]d")
    assert lines_of(stamped(*messages)) == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 7)]


def test_a_continuation_of_the_end_mark_is_still_in_the_group() -> None:
    assert lines_of(stamped("##[group]g", "##[endgroup]") + "more\n" + stamped("x")) == [(1, 3), (4, 4)]


def test_a_mark_that_continues_a_message_is_none() -> None:
    assert lines_of(stamped("x") + "##[error]quoted\n##[group]quoted\n" + stamped("y")) == [(1, 4)]


def test_until_the_first_stamp_each_line_is_a_message() -> None:
    assert lines_of("a\n##[error]b\nc\n##[group]d\ne\n##[endgroup]\nf\n") == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 6),
        (7, 7),
    ]
    assert lines_of("x\n" * 130) == [(1, 61), (62, 122), (123, 130)]


def test_a_unit_is_cut_after_the_message_that_passes_60_lines() -> None:
    assert lines_of(stamped(*["x"] * 60)) == [(1, 60)]
    assert lines_of(stamped(*["x"] * 62)) == [(1, 61), (62, 62)]
    assert lines_of(stamped(*["x"] * 60) + "1\n2\n" + stamped("y")) == [(1, 62), (63, 63)]


def test_the_rest_of_a_cut_group_is_still_in_the_group() -> None:
    text = stamped("##[group]g", *["x"] * 70, "##[error]e", "y", "##[endgroup]", "z")
    assert lines_of(text) == [(1, 61), (62, 74), (75, 75)]
    assert [chunk.headings for chunk in parse_log_chunks(text, "d")] == [("g",), ("g",), ()]


def test_a_message_longer_than_60_lines_is_cut_at_60_of_its_own() -> None:
    text = stamped("a", "long") + "more\n" * 129 + stamped("b")
    assert lines_of(text) == [(1, 61), (62, 121), (122, 132)]
    assert lines_of(stamped("long") + "more\n" * 59 + stamped("b", "c")) == [(1, 61), (62, 62)]


def test_what_follows_a_cut_error_is_not_joined_to_its_rest() -> None:
    assert lines_of(stamped("##[error]e") + "at f\n" * 69 + stamped("next")) == [(1, 60), (61, 70), (71, 71)]


def test_blank_lines_continue_a_message_and_neither_begin_nor_end_a_chunk() -> None:
    text = "\n \r\n" + stamped("##[error]e") + "\nat f\n\n" + stamped("next") + "\n\n"
    assert lines_of(text) == [(3, 5), (7, 7)]
    assert lines_of("\n\ufeff \n\n") == [(2, 2)]
    assert lines_of("\ufeff \n\n") == []


def test_lines_of_a_log_count_by_lf_only() -> None:
    chunks = parse_log_chunks("a\rb\rc", "d")
    assert chunks == [Chunk("d:chunk0", "a\rb\rc", 0, 5, 1, 1)]


@pytest.mark.parametrize(
    "before",
    [
        "",
        "\ufeff",
        "\x1b[36m",
        "job name\tstep 1\t",
        "job\tUNKNOWN STEP\t\ufeff",
        "\ufeff\x1b[0;1;31m\x1b]8;;https://example.com\x07\x1b]0;t\x1b\\\x1bM",
    ],
)
@pytest.mark.parametrize("stamp", [STAMP, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.1+02:00"])
def test_marks_and_stamps_are_found_behind_columns_escapes_and_boms(before: str, stamp: str) -> None:
    text = log_of(f"{stamp} x", f"{before}{stamp} \x1b[33m\ufeff##[warning]w", "more", f"{before}{stamp} y")
    assert lines_of(text) == [(1, 1), (2, 3), (4, 4)]


@pytest.mark.parametrize(
    "line", ["a\tb\tc\t" + STAMP + " ##[error]", "x " + STAMP + " ##[error]", STAMP + "##[error]"]
)
def test_a_stamp_elsewhere_begins_no_message(line: str) -> None:
    assert lines_of(log_of(f"{STAMP} x", line, "y")) == [(1, 3)]


def test_very_long_lines_of_escapes_or_tabs_take_no_quadratic_time() -> None:
    lines = [
        "\x1b[m" * 150_000,
        "\x1b]" * 150_000,
        "\t" * 300_000,
        "x" * 450_000,
        "\x1b[" + "1" * 300_000,
        "\ufeff" * 300_000,
    ]
    text = log_of(*lines) + stamped(*lines) + log_of(*lines) + stamped("##[group]" + lines[1])
    check_provenance(text, parse_log_chunks(text, "d"), cr_rule=False)


def test_real_logs_keep_exact_provenance() -> None:
    logs = real_logs()
    assert len(logs) == 30
    for log in logs:
        check_provenance(log, parse_log_chunks(log, "d"), cr_rule=False)
