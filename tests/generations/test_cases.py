from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tessera.errors import CaseError
from tessera.generations.cases import (
    Case,
    CaseSet,
    evidence_digest,
    load_case_lines,
    load_cases,
    parse_case_lines,
    parse_cases,
)

DIGEST = "sha256:" + "0" * 64
CASE: dict[str, Any] = {
    "id": "a",
    "question": "why?",
    "source": "handbook",
    "doc_id": "x/y.md",
    "start": 0,
    "end": 5,
    "digest": DIGEST,
}
FILE: dict[str, Any] = {"thresholds": {"min_recall": 0.5}, "k": 3, "cases": [CASE]}


def changed(**values: Any) -> dict[str, Any]:
    return {**FILE, "cases": [CASE, {**CASE, "id": "b", **values}]}


def without(name: str) -> dict[str, Any]:
    return {**FILE, "cases": [{key: value for key, value in CASE.items() if key != name}]}


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(FILE))
    assert load_cases(path) == CaseSet((Case(**CASE),), {"min_recall": 0.5}, 3)


def test_k_is_ten_where_it_is_left_out() -> None:
    assert parse_cases(json.dumps({key: FILE[key] for key in ("thresholds", "cases")})).k == 10


def test_evidence_is_digested_in_utf_8() -> None:
    assert evidence_digest("naïve") == f"sha256:{sha256('naïve'.encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], ": must be an object with fields out of thresholds, cases, k"),
        ({**FILE, "kk": 3}, ": unknown field 'kk'; allowed are thresholds, cases, k"),
        ({"cases": [CASE]}, ": thresholds is missing"),
        ({"thresholds": {"min_recall": 1}}, ": cases is missing"),
        ({**FILE, "k": 0}, ": k is '0'; it must be a whole number from 1 on"),
        ({**FILE, "k": 101}, ": k is '101'; it must be at most 100"),
        ({**FILE, "k": True}, ": k is 'True'; it must be a whole number"),
        (changed(id="b" * 201), "case 2: id has 201 characters; it must have at most 200"),
        ({**FILE, "cases": []}, ": cases must be a list with a case at least"),
        ({**FILE, "cases": {}}, ": cases must be a list"),
        ({**FILE, "cases": [3]}, ": case 1: must be an object"),
        ({**FILE, "cases": [CASE, CASE]}, ": case 2: id 'a' is that of case 1 already"),
        ({**FILE, "thresholds": {}}, ": thresholds: demand something, or every candidate passes: min_"),
        ({**FILE, "thresholds": []}, ": thresholds: must be an object"),
        ({**FILE, "thresholds": {"recall": 1}}, ": thresholds: unknown field 'recall'; allowed are min_"),
        ({**FILE, "thresholds": {"min_mrr": 1.1}}, ": thresholds: min_mrr is '1.1'; it must be from 0 to 1"),
        ({**FILE, "thresholds": {"min_mrr": "1"}}, ": thresholds: min_mrr is '1'; it must be a number"),
        ({**FILE, "thresholds": {"min_mrr": True}}, ": thresholds: min_mrr is 'True'; it must be a number"),
        ({**FILE, "thresholds": {"max_latency_ratio": 0}}, "max_latency_ratio is '0'; it must be above 0"),
        (without("id"), ": case 1: id is missing"),
        (without("digest"), ": case 1 ('a'): digest is missing"),
        (changed(note="x"), ": case 2 ('b'): unknown field 'note'"),
        (changed(question=" "), ": case 2 ('b'): question is ' '; it must be a text that is not blank"),
        (changed(question="\ud800"), ": case 2 ('b'): question is '\\ud800'; it holds half a character"),
        (changed(doc_id=7), ": case 2 ('b'): doc_id is '7'; it must be a text"),
        (changed(source="a/b"), ": case 2 ('b'): source is 'a/b'; the name of a source has no '/'"),
        (changed(start=-1), ": case 2 ('b'): start is '-1'; it must be a whole number from 0 on"),
        (changed(start=1.0), ": case 2 ('b'): start is '1.0'; it must be a whole number"),
        (changed(start=5), ": case 2 ('b'): end is '5'; it must be a whole number from 6 on"),
        (changed(digest="0" * 64), ": case 2 ('b'): digest is '0000"),
        (changed(content_digest="md5:0"), ": case 2 ('b'): content_digest is 'md5:0'"),
        (changed(digest=DIGEST.upper()), ": case 2 ('b'): digest is 'SHA256:"),
    ],
)
def test_a_faulty_file_is_refused_by_file_case_and_field(tmp_path: Path, value: Any, message: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(value))
    with pytest.raises(CaseError, match=re.escape(message)) as caught:
        load_cases(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"k": 1, "k": 2}', "field 'k' is given twice"),
        ('{"thresholds": {"min_recall": NaN}}', "NaN is not a number of JSON"),
        ('{"thresholds": {"min_recall": 1e999}, "cases": [{}]}', "min_recall is 'inf'; it must be a number"),
    ],
)
def test_what_is_no_strict_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(CaseError, match=re.escape(message)):
        parse_cases(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(CaseError, match=re.escape(f"{path}: cannot be read")):
            load_cases(path)
    (tmp_path / "latin.json").write_bytes(b"\xff")
    with pytest.raises(CaseError, match="is not UTF-8"):
        load_cases(tmp_path / "latin.json")


def test_the_digest_is_of_the_cases_and_demands_and_of_nothing_else() -> None:
    other = {**CASE, "id": "b"}
    one = parse_cases(json.dumps({**FILE, "cases": [CASE, other]}))
    same = parse_cases(
        json.dumps(
            {"cases": [other, dict(reversed(CASE.items()))], **FILE} | {"cases": [other, CASE]}, indent=3
        )
    )
    assert one.digest == same.digest
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", one.digest)
    different = [
        {**FILE, "cases": [CASE]},
        {**FILE, "cases": [CASE, {**other, "end": 6}]},
        {**FILE, "cases": [CASE, other], "k": 4},
        {**FILE, "cases": [CASE, other], "thresholds": {"min_recall": 0.6}},
    ]
    assert len({one.digest, *(parse_cases(json.dumps(value)).digest for value in different)}) == 5


def test_a_case_counts_with_its_family_else_with_source_and_first_folder() -> None:
    assert Case(**CASE).group == "handbook/x"
    assert Case(**{**CASE, "doc_id": "y.md"}).group == "handbook"
    assert Case(**CASE, family="contracts").group == "contracts"


def test_a_family_does_not_change_what_a_case_set_is() -> None:
    plain, grouped = parse_cases(json.dumps(FILE)), parse_cases(json.dumps(changed(family="contracts")))
    assert grouped.cases[1].family == "contracts"
    assert grouped.digest == parse_cases(json.dumps(changed())).digest != plain.digest


def test_cases_are_read_from_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(f"{json.dumps(CASE)}\n\n{json.dumps({**CASE, 'id': 'b', 'family': 'f'})}\n")
    assert load_case_lines(path) == (Case(**CASE), Case(**{**CASE, "id": "b"}, family="f"))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "q.jsonl: holds no case: write one JSON object per line"),
        ("\n{", "q.jsonl: line 2: cannot be read as JSON"),
        (json.dumps({**CASE, "famly": "x"}), "q.jsonl: line 1 ('a'): unknown field 'famly'"),
        (f"{json.dumps(CASE)}\n\n{json.dumps(CASE)}", "q.jsonl: line 3: id 'a' is that of line 1 already"),
    ],
)
def test_json_lines_at_fault_are_named(lines: str, message: str) -> None:
    with pytest.raises(CaseError, match=re.escape(message)):
        parse_case_lines(lines, "q.jsonl")
