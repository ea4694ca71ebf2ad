from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plans import CASES, PLAN, TEXTS, case_line, write_plan

from tessera.cli import main as entry
from tessera.documents.digests import document_digest
from tessera.errors import CaseError, PlanError
from tessera.generations.cases import evidence_digest, load_cases
from tessera.lab.corpus import load_corpus, load_questions
from tessera.lab.plan import load_plan


def test_a_plan_is_read_with_its_defaults(tmp_path: Path) -> None:
    path = write_plan(
        tmp_path,
        'documents = ["handbook"]\nquestions = "q.jsonl"\n[[policies]]\npolicy = "sentence"\n',
    )
    plan = load_plan(path)
    assert (plan.analyzer, plan.k, plan.budgets, plan.retriever) == ("words", 10, (300,), "tessera")
    assert [each.id for each in plan.assemblies] == ["joined@1"]
    assert plan.questions == tmp_path / "q.jsonl"
    assert plan.prices is None


def test_budgets_rise_and_those_of_the_command_stand_in_for_the_plans(tmp_path: Path) -> None:
    path = write_plan(tmp_path)
    assert load_plan(path).budgets == (12, 40)
    assert load_plan(path, [7]).budgets == (7,)


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write_plan(tmp_path)
    for name in ("lab.toml", "questions.jsonl", "tiny.toml"):
        (tmp_path / name).write_text((tmp_path / name).read_text(encoding="utf-8"), encoding="utf-8-sig")
    plan = load_plan(path)
    assert load_questions(plan.questions, load_corpus(plan))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("k = 3", "kk = 3", "lab.toml: kk: unknown key; allowed are documents, questions, policies"),
        ("k = 3", "k = 0", "lab.toml: k is 0; it must be from 1 to 100"),
        ("k = 3", 'k = "3"', "lab.toml: k: input should be a valid integer"),
        ("k = 3", "k = true", "lab.toml: k: input should be a valid integer"),
        ("k = 3", "k = 2026-01-01", "lab.toml: holds a date or a time"),
        ("k = 3", "k = 3\nk = 3", "lab.toml: cannot be read as TOML"),
        ("k = 3", 'analyzer = "german"', "lab.toml: analyzer is 'german'; there are words, english"),
        ("[40, 12]", "[0]", "lab.toml: budgets holds 0; a budget is 1 token or more"),
        ("[40, 12]", "[]", "lab.toml: budgets is empty"),
        ("[40, 12]", "[9, 9]", "lab.toml: budgets holds 9 twice"),
        (
            '"joined", ',
            '"glued", ',
            "lab.toml: assembly holds 'glued'; there are joined, sections, sentences",
        ),
        ('"joined", ', '"sentences", ', "lab.toml: assembly names one twice"),
        ('["joined", "sentences"]', "[]", "lab.toml: assembly is empty"),
        ('questions = "questions.jsonl"', "", "lab.toml: questions: is missing"),
        ("[[policies]]", "[[policy]]", "lab.toml: policy: unknown key; allowed are documents"),
        (
            'path = "texts"',
            'pth = "texts"',
            "documents, number 1, pth: unknown key; allowed are source, path",
        ),
        ('policy = "tiny.toml"', 'policy = "paragraph"', "policies, number 2: a policy named 'paragraph' is"),
        ('policy = "tiny.toml"', 'policy = "none.toml"', "policies, number 2: policy '"),
        ('policy = "tiny.toml"', 'plicy = "x"', "lab.toml: policies, number 2, p"),
        ('source = "notes", path', 'source = "a/b", path', "documents, number 1: source is 'a/b'"),
        (
            'path = "texts"',
            'path = "texts", knd = "x"',
            "knd: unknown key; allowed are source, path, kind, only",
        ),
        ('{source = "notes", path = "texts"}', '"handbok"', "there is no bundled corpus 'handbok'"),
        ('{source = "notes", path = "texts"}', '"devex", "devex"', "source 'devex' is named twice"),
        ("[[policies]]", "[gates]\nmin_recall = 1.5\n[[policies]]", "gates: min_recall is 1.5"),
        ("[[policies]]", "[gates]\nmin_recal = 1\n[[policies]]", "gates, min_recal: unknown key"),
        ("[[policies]]", '[gates]\npolicies = ["tiny"]\n[[policies]]', "gates: demands nothing: give one"),
        ("[[policies]]", '[gates]\npolicies = ["x"]\n[[policies]]', "gates: policies holds 'x'"),
        (
            "[[policies]]",
            "[gates]\nmin_context_recall = 1\nbudgets = [9]\n[[policies]]",
            "the run has 12, 40",
        ),
        (
            "[[policies]]",
            "[gates]\nmin_recall = 1\nbudgets = [12]\n[[policies]]",
            "say where min_context_recall",
        ),
        ("[[policies]]", '[cost]\ncurrency = "EUR"\n[[policies]]', "cost, assumption: is missing"),
        (
            "[[policies]]",
            '[cost]\ncurrency = "EUR"\nassumption = "x"\nper_million_indexed_tokens = -1\n[[policies]]',
            "cost: per_million_indexed_tokens is -1",
        ),
    ],
)
def test_a_plan_at_fault_is_refused_with_file_and_key(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in PLAN
    path = write_plan(tmp_path, PLAN.replace(old, new, 1))
    with pytest.raises(PlanError, match=re.escape(message)):
        load_plan(path)


def test_a_plan_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none\.toml: cannot be read"):
        load_plan(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"k = '\xff'")
    with pytest.raises(PlanError, match="is not UTF-8"):
        load_plan(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ('{source = "notes", path = "nowhere"}', "documents, number 1: source folder"),
        ('{source = "notes", path = "texts", kind = "devex"}', "holds no document of kind devex"),
        ('{source = "notes", path = "texts", only = ["*.txt"]}', "holds no document of kind documents"),
        (
            '{source = "notes", path = "texts", only = ["rivers/*", "*.txt"]}',
            "only holds '*.txt', which no document of texts matches",
        ),
    ],
)
def test_a_folder_that_gives_nothing_is_refused(documents: str, message: str, tmp_path: Path) -> None:
    path = write_plan(tmp_path, PLAN.replace('{source = "notes", path = "texts"}', documents))
    with pytest.raises(PlanError, match=re.escape(message)):
        load_corpus(load_plan(path))


def test_globs_choose_documents(tmp_path: Path) -> None:
    path = write_plan(tmp_path, PLAN.replace('path = "texts"', 'path = "texts", only = ["rivers/*"]'))
    assert list(load_corpus(load_plan(path))) == ["notes/rivers/levels.md", "notes/rivers/table.md"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"doc_id": "rivers/none.md"},
            "the run has no document notes/rivers/none.md; it has notes/kitchen.md",
        ),
        ({"source": "else"}, "the run has no document else/rivers/levels.md"),
        ({"end": 10_000}, "notes/rivers/levels.md does not say that from 52 to 10000: take"),
        ({"start": 0}, "notes/rivers/levels.md does not say that from 0 to"),
        (
            {"content_digest": "sha256:" + "0" * 64},
            "notes/rivers/levels.md has changed, its content_digest is sha256:",
        ),
        ({"start": 8, "end": 10, "digest": evidence_digest("\n\n")}, "its evidence is blank"),
    ],
)
def test_a_case_that_does_not_fit_its_document_is_refused(
    changed: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = write_plan(tmp_path, lines=[case_line("lock"), case_line("level", **changed)])
    plan = load_plan(path)
    with pytest.raises(CaseError, match=re.escape(message)) as refused:
        load_questions(plan.questions, load_corpus(plan))
    assert "questions.jsonl: case 'level'" in str(refused.value)


def test_cases_that_ask_the_same_are_one_question(tmp_path: Path) -> None:
    plan = load_plan(write_plan(tmp_path))
    questions = load_questions(plan.questions, load_corpus(plan))
    assert [[case.id for case in question.cases] for question in questions] == [
        ["level"], ["told"], ["across"], ["lock"], ["cups", "plates"],
    ]  # fmt: skip


def test_all_cases_that_do_not_fit_are_named_with_where_their_evidence_is_now(tmp_path: Path) -> None:
    lines = [case_line("level", start=0, end=len(CASES["level"][2])), case_line("told", doc_id="none.md")]
    plan = load_plan(write_plan(tmp_path, lines=[*lines, case_line("lock")]))
    start = TEXTS["rivers/levels.md"].index(CASES["level"][2])
    with pytest.raises(CaseError) as caught:
        load_questions(plan.questions, load_corpus(plan))
    assert f"case 'level': notes/rivers/levels.md does not say that from 0 to 39, but from {start} to" in str(
        caught.value
    )
    assert "case 'told': the run has no document notes/none.md" in str(caught.value)


def test_questions_and_comparison_take_one_file(tmp_path: Path) -> None:
    path = write_plan(tmp_path)
    lines = [json.loads(case_line(name)) for name in CASES]
    with pytest.raises(CaseError, match="holds JSON lines"):
        load_cases(tmp_path / "questions.jsonl")
    (tmp_path / "questions.jsonl").write_text(json.dumps({"thresholds": {"min_recall": 0.5}, "cases": lines}))
    plan = load_plan(path)
    assert len(load_questions(plan.questions, load_corpus(plan))) == 5
    assert len(load_cases(tmp_path / "questions.jsonl").cases) == len(CASES)


def test_a_case_is_made_of_a_quote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_plan(tmp_path)
    question, doc_id, evidence = CASES["lock"]
    made = ["lab", "case", str(tmp_path / "texts" / doc_id), "--question", question, "--doc-id", doc_id]
    assert entry.run([*made, "--quote", evidence]) == 0
    line = json.loads(capsys.readouterr().out)
    assert {**line, "id": "lock"} == {
        **json.loads(case_line("lock")),
        "content_digest": document_digest(TEXTS[doc_id]),
    }
    for quote in ("no such words", "|", " "):
        assert entry.run([*made, "--quote", quote]) == 2
    assert "does not stand in it" in capsys.readouterr().err
