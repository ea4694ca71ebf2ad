from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.lab
from tessera.errors import AuditError
from tessera.lab.audit import AuditContract, audit, example_contract, lines, parse_contract
from tessera.lab.contract import (
    AuditCase,
    AuditedPolicy,
    Document,
    Gates,
    SpanChunk,
    json_schema,
    load_contract,
)
from tessera.policies import token_windows

EXAMPLE = example_contract()
DIGEST = EXAMPLE.documents[0].digest
PRINTED = """\
example=illustrative_only
span_coverage=1.000
retrieval_coverage=1.000
mean_minimal_waste_tokens=3.000
decision=PASS_DECLARED_COVERAGE_GATES
claim=TOKEN_SPAN_FIXTURE_ONLY
"""
SCHEMA = Path(tessera.lab.__file__).parent / "audit.schema.json"
EXAMPLE_FILE = Path(__file__).parents[2] / "docs" / "examples" / "audit.json"


def test_the_module_prints_its_example_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tessera.lab.audit"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (PRINTED, "")


def with_chunks(*spans: tuple[int, int], document: str = "agreement", **bounds: int) -> AuditContract:
    chunks = tuple(SpanChunk(f"c{number}", document, *span) for number, span in enumerate(spans))
    policy = AuditedPolicy("p", bounds.get("size", 24), bounds.get("overlap", 5), chunks)
    cases = tuple(replace(case, retrieved=()) for case in EXAMPLE.cases)
    return replace(EXAMPLE, policies=(policy,), cases=cases, gates=Gates())


def changed_case(**values: Any) -> AuditContract:
    return replace(EXAMPLE, cases=(replace(EXAMPLE.cases[0], **values), EXAMPLE.cases[1]))


def changed_document(**values: Any) -> AuditContract:
    return replace(EXAMPLE, documents=(replace(EXAMPLE.documents[0], **values),))


def second_document(policy: Callable[[tuple[SpanChunk, ...]], tuple[SpanChunk, ...]]) -> AuditContract:
    chunks = policy((*EXAMPLE.policies[0].chunks, SpanChunk("n0", "note", 0, 4)))
    return replace(
        EXAMPLE,
        documents=(*EXAMPLE.documents, Document("note", DIGEST, 4)),
        policies=(replace(EXAMPLE.policies[0], chunks=chunks),),
    )


@pytest.mark.parametrize(
    ("contract", "rule", "place"),
    [
        (replace(EXAMPLE, documents=()), "documents", "documents"),
        (replace(EXAMPLE, documents=EXAMPLE.documents * 2), "document_identity", "document 'agreement'"),
        (changed_document(id=" "), "document_identity", "document ' '"),
        (changed_document(digest="sha256:0"), "document_identity", "document 'agreement'"),
        (changed_document(tokens=0), "token_count", "document 'agreement'"),
        (changed_document(tokens=True), "token_count", "document 'agreement'"),
        (replace(EXAMPLE, policies=()), "policies", "policies"),
        (replace(EXAMPLE, policies=EXAMPLE.policies * 2), "policy_identity", "policy 'windows'"),
        (with_chunks((0, 24), size=0), "chunk_size", "policy 'p'"),
        (with_chunks((0, 24), overlap=-1), "overlap", "policy 'p'"),
        (with_chunks((0, 24), overlap=24), "overlap", "policy 'p'"),
        (with_chunks((0, 24), size=23), "chunk_size", "policy 'p', chunk 'c0'"),
        (with_chunks((1, 24)), "document_edge", "policy 'p', chunk 'c0'"),
        (with_chunks((0, 23)), "document_edge", "policy 'p', chunk 'c0'"),
        (with_chunks(), "document_edge", "policy 'p'"),
        (with_chunks((0, 25)), "chunk_span", "policy 'p', chunk 'c0'"),
        (with_chunks((0, 0), (0, 24)), "chunk_span", "policy 'p', chunk 'c0'"),
        (with_chunks((-1, 24)), "chunk_span", "policy 'p', chunk 'c0'"),
        (with_chunks((0, 24), document="other"), "chunk_identity", "policy 'p', chunk 'c0'"),
        (with_chunks((0, 10), (0, 24)), "source_order", "policy 'p', chunk 'c1'"),
        (with_chunks((0, 24), (20, 24)), "source_order", "policy 'p', chunk 'c1'"),
        (with_chunks((0, 10), (4, 24)), "overlap", "policy 'p', chunk 'c1'"),
        (with_chunks((0, 10), (11, 24)), "overlap", "policy 'p', chunk 'c1'"),
        (second_document(lambda chunks: chunks[:-1]), "document_edge", "policy 'windows'"),
        (
            second_document(lambda chunks: (chunks[-1], *chunks[:-1])),
            "source_order",
            "policy 'windows', chunk 'n0'",
        ),
        (
            second_document(lambda chunks: (*chunks[:2], chunks[3], chunks[2])),
            "document_edge",
            "policy 'windows', chunk 'w1'",
        ),
        (second_document(lambda chunks: (*chunks, chunks[-1])), "chunk_identity", "chunk 'n0'"),
        (replace(EXAMPLE, cases=()), "cases", "cases"),
        (replace(EXAMPLE, cases=EXAMPLE.cases[:1] * 2), "case_identity", "case 'term'"),
        (changed_case(id=""), "case_identity", "case ''"),
        (changed_case(document="other"), "case_binding", "case 'term'"),
        (changed_case(digest="sha256:" + "0" * 64), "case_binding", "case 'term'"),
        (changed_case(start=8), "evidence_span", "case 'term'"),
        (changed_case(start=-1), "evidence_span", "case 'term'"),
        (changed_case(end=25), "evidence_span", "case 'term'"),
        (changed_case(retrieved=("w9",)), "case_binding", "case 'term'"),
        (changed_case(retrieved=("w0", "w0")), "case_binding", "case 'term'"),
        (replace(EXAMPLE, gates=Gates(min_span_coverage=1.1)), "gates", "min_span_coverage"),
        (replace(EXAMPLE, gates=Gates(min_retrieval_coverage=-0.1)), "gates", "min_retrieval_coverage"),
        (
            replace(EXAMPLE, gates=Gates(max_mean_minimal_waste_tokens=float("nan"))),
            "gates",
            "max_mean_minimal_waste_tokens",
        ),
    ],
)
def test_a_contract_that_breaks_a_rule_is_refused_with_rule_and_place(
    contract: AuditContract, rule: str, place: str
) -> None:
    with pytest.raises(AuditError, match="never repaired") as caught:
        audit(contract)
    assert (caught.value.rule, caught.value.place) == (rule, place)
    assert str(caught.value).startswith(place)


def test_a_case_that_no_chunk_holds_wastes_its_whole_document() -> None:
    result = audit(with_chunks((0, 7), (7, 24)))
    # Tokens 2 to 8 lie across the border, 10 to 18 in the second chunk of 17.
    assert (result.span_coverage, result.mean_minimal_waste_tokens) == (0.5, (24 + 9) / 2)
    assert result.policies[0].unrepresentable == ("term",)


def test_what_is_represented_and_not_retrieved_is_told_apart() -> None:
    result = audit(changed_case(retrieved=("w1", "w2")))
    assert (result.span_coverage, result.retrieval_coverage) == (1.0, 0.5)
    assert (result.policies[0].unrepresentable, result.policies[0].not_retrieved) == ((), ("term",))


def test_a_gate_that_fails_is_named_with_its_cases_and_one_just_reached_passes() -> None:
    contract = replace(with_chunks((0, 7), (7, 24)), gates=Gates(0.5, 0.0, 16.5))
    assert audit(contract).decision == "PASS_DECLARED_COVERAGE_GATES"
    result = audit(replace(contract, gates=Gates(0.51, 0.1, 16.4)))
    assert result.decision == "FAIL_DECLARED_COVERAGE_GATES"
    assert [(each.gate, each.policy, each.cases) for each in result.failures] == [
        ("min_span_coverage", "p", ("term",)),
        ("min_retrieval_coverage", "p", ("term", "notice")),
        ("max_mean_minimal_waste_tokens", "p", ("term",)),
    ]
    assert lines(result)[-3] == "failed_gate=min_span_coverage policy=p limit=0.51 measured=0.500 cases=term"


def test_gates_are_decided_as_they_are_written() -> None:
    cases = tuple(AuditCase(f"k{n}", "agreement", DIGEST, 5 if n else 9, 9 if n else 11) for n in range(10))
    contract = replace(with_chunks((0, 10), (10, 24)), cases=cases, gates=Gates(min_span_coverage=0.9))
    # 9 of 10; the binary number nearest to 0.9 is greater than nine tenths.
    assert Fraction(0.9) > Fraction(9, 10)
    assert audit(contract).decision == "PASS_DECLARED_COVERAGE_GATES"


def test_with_several_policies_the_worst_figures_are_on_top() -> None:
    poor = with_chunks((0, 7), (7, 24)).policies[0]
    result = audit(replace(EXAMPLE, policies=(*EXAMPLE.policies, poor)))
    assert (result.span_coverage, result.retrieval_coverage) == (0.5, 0.0)
    assert [each.name for each in result.policies] == ["windows", "p"]
    assert "policy=windows span_coverage=1.000" in "\n".join(lines(result))


def slowly(contract: AuditContract, policy: AuditedPolicy) -> tuple[Fraction, Fraction, Fraction]:
    """Each figure by looking at every chunk for every case."""
    tokens = {document.id: document.tokens for document in contract.documents}
    held = retrieved = waste = 0
    for case in contract.cases:
        holding = [
            chunk
            for chunk in policy.chunks
            if chunk.document == case.document and chunk.start <= case.start and case.end <= chunk.end
        ]
        held += bool(holding)
        retrieved += any(chunk.id in case.retrieved for chunk in holding)
        sizes = [chunk.end - chunk.start - (case.end - case.start) for chunk in holding]
        waste += min(sizes, default=tokens[case.document])
    count = len(contract.cases)
    return Fraction(held, count), Fraction(retrieved, count), Fraction(waste, count)


@st.composite
def contracts(draw: st.DrawFn) -> AuditContract:
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=3))
    documents = tuple(Document(f"d{n}", DIGEST, tokens) for n, tokens in enumerate(sizes))
    policies = []
    for name in "pq"[: draw(st.integers(1, 2))]:
        size = draw(st.integers(1, 12))
        overlap = draw(st.integers(0, size - 1))
        chunks = [
            SpanChunk(f"{name}/{document.id}/{n}", document.id, *window)
            for document in documents
            for n, window in enumerate(token_windows(document.tokens, size, overlap))
        ]
        policies.append(AuditedPolicy(name, size, overlap, tuple(chunks)))
    ids = [chunk.id for policy in policies for chunk in policy.chunks]
    cases = []
    for number in range(draw(st.integers(1, 6))):
        document = draw(st.sampled_from(documents))
        start = draw(st.integers(0, document.tokens - 1))
        end = draw(st.integers(start + 1, document.tokens))
        found = tuple(draw(st.lists(st.sampled_from(ids), unique=True, max_size=5)))
        cases.append(AuditCase(f"k{number}", document.id, DIGEST, start, end, found))
    return AuditContract(documents, tuple(policies), tuple(cases), Gates())


@settings(max_examples=150, deadline=None)
@given(contract=contracts())
def test_figures_are_those_of_looking_at_every_chunk(contract: AuditContract) -> None:
    result = audit(contract)
    for policy, figures in zip(contract.policies, result.policies, strict=True):
        expected = tuple(float(each) for each in slowly(contract, policy))
        found = (figures.span_coverage, figures.retrieval_coverage, figures.mean_minimal_waste_tokens)
        assert found == expected
    assert result.span_coverage == min(each.span_coverage for each in result.policies)
    assert result.mean_minimal_waste_tokens == max(each.mean_minimal_waste_tokens for each in result.policies)
    assert parse_contract(json.dumps(asdict(contract))) == contract


def test_the_published_schema_is_that_of_the_contract_and_takes_the_example() -> None:
    schema = json.loads(SCHEMA.read_text())
    assert schema == json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(EXAMPLE_FILE.read_text()), schema)
    assert load_contract(EXAMPLE_FILE) == EXAMPLE


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"documents": 3}, "documents"),
        ({"more": 1}, "more"),
        ({"documents": [{"id": "a", "digest": DIGEST}]}, "documents.0.tokens"),
        ({"documents": [{"id": "a", "digest": DIGEST, "tokens": 1.5}]}, "documents.0.tokens"),
        ({"gates": {"min_span_coverage": "1"}}, "gates.min_span_coverage"),
        ({"gates": {"min_coverage": 1}}, "gates.min_coverage"),
    ],
)
def test_a_text_of_another_form_is_refused_where_it_differs(change: dict[str, Any], place: str) -> None:
    value = {**asdict(EXAMPLE), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(json.dumps(value)), json_schema())
    with pytest.raises(AuditError) as caught:
        parse_contract(json.dumps(value))
    assert (caught.value.rule, caught.value.place) == ("form", place)


def test_a_file_that_is_no_json_or_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    for name in ("a.json", "b.json"):
        with pytest.raises(AuditError, match=name):
            load_contract(tmp_path / name)


def test_the_command_prints_figures_and_fails_where_a_gate_does(tmp_path: Path) -> None:
    def audited(contract: AuditContract, *flags: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "contract.json"
        path.write_text(json.dumps(asdict(contract)))
        command = [sys.executable, "-m", "tessera", "audit", str(path), *flags]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    passed = audited(EXAMPLE)
    assert (passed.returncode, passed.stdout) == (0, PRINTED.partition("\n")[2])
    assert json.loads(audited(EXAMPLE, "--json").stdout)["decision"] == "PASS_DECLARED_COVERAGE_GATES"
    assert audited(replace(EXAMPLE, gates=Gates(max_mean_minimal_waste_tokens=2.9))).returncode == 1
    refused = audited(replace(EXAMPLE, cases=()))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
