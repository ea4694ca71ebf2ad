from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from plans import CASES, PLAN, case_line, write_plan

from tessera.errors import CaseError
from tessera.index.analyzer import analyzer_named
from tessera.lab.corpus import load_corpus, load_questions
from tessera.lab.cuts import cut_corpus
from tessera.lab.plan import load_plan
from tessera.lab.results import LabResult, to_value
from tessera.lab.retrievers import RankBm25Retriever, TesseraRetriever
from tessera.lab.run import run
from tessera.lab.shapes import DIMENSIONS

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "lab.toml"


@pytest.fixture
def result(tmp_path: Path) -> LabResult:
    return run(load_plan(write_plan(tmp_path)))


@pytest.fixture(scope="module")
def example() -> LabResult:
    return run(load_plan(EXAMPLE))


def test_every_case_has_one_fate_in_every_context(result: LabResult, example: LabResult) -> None:
    for found in (result, example):
        for policy in found.policies:
            assert [outcome.id for outcome in policy.outcomes] == list(found.shapes)
            for number, context in enumerate(policy.contexts):
                assert sum(context.fates.values()) == found.setup.cases
                counted = Counter(outcome.fates[number] for outcome in policy.outcomes)
                assert {fate: count for fate, count in context.fates.items() if count} == counted
                assert context.grounding == pytest.approx(context.fates["kept"] / found.setup.cases)


def test_no_stage_finds_what_the_one_before_it_lost(example: LabResult) -> None:
    for policy in example.policies:
        assert policy.candidates.recall <= policy.representability
        assert policy.candidates.mrr <= policy.candidates.recall
        for outcome in policy.outcomes:
            assert outcome.represented or outcome.rank is None
            for fate in outcome.fates:
                assert fate != "retrieval" or (outcome.represented and outcome.rank is None)
                assert fate != "packing" or outcome.rank is not None


def test_there_is_no_reranker_and_the_stage_says_so(result: LabResult) -> None:
    for policy in result.policies:
        assert policy.reranking.stage == "none"
        assert policy.reranking.recall == policy.candidates.recall
        assert policy.reranking.mrr == policy.candidates.mrr


def test_contexts_stay_within_their_budget(example: LabResult) -> None:
    for policy in example.policies:
        for context in policy.contexts:
            assert context.context_tokens <= context.budget
            assert context.utilization == pytest.approx(context.context_tokens / context.budget)
            assert 0 <= context.iou <= min(context.recall, context.precision) + 1e-9 <= 1 + 1e-9


def test_figures_are_those_counted_by_hand(result: LabResult) -> None:
    paragraph, tiny = result.policies
    # Blank lines part the two sections; everything else is whole in a paragraph.
    assert [miss.case for miss in paragraph.misses] == ["across"]
    assert paragraph.representability == pytest.approx(5 / 6)
    # Windows of seven words hold the short evidence only.
    assert {outcome.id for outcome in tiny.outcomes if outcome.represented} == {"lock", "plates"}
    assert paragraph.storage.amplification == 1
    assert tiny.storage.longest_tokens == 7
    assert result.shapes["across"].cross_section
    assert not result.shapes["told"].cross_section
    assert result.shapes["lock"].kinds == "table"


def test_groups_count_every_case_once(example: LabResult) -> None:
    for policy in example.policies:
        for dimension in DIMENSIONS:
            groups = policy.groups[dimension].values()
            assert sum(group.cases for group in groups) == example.setup.cases
            assert sum(group.represented for group in groups) == sum(
                outcome.represented for outcome in policy.outcomes
            )
            for number, context in enumerate(policy.contexts):
                assert sum(group.kept[number] for group in groups) == context.fates["kept"]


def test_two_runs_find_the_same_but_for_times(tmp_path: Path) -> None:
    plan = load_plan(write_plan(tmp_path))
    first, second = (_without_times(to_value(run(plan))) for _ in range(2))
    assert first == second


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key != "latency"}
    if isinstance(value, (list, tuple)):
        return [_without_times(each) for each in value]
    return value


@pytest.mark.parametrize("analyzer", ["words", "english"])
@pytest.mark.parametrize("policy", [0, 2, 4])
def test_rank_bm25_ranks_as_our_search_does(analyzer: str, policy: int) -> None:
    plan = load_plan(EXAMPLE)
    corpus = load_corpus(plan)
    cut = cut_corpus(plan.policies[policy], corpus)
    ours = TesseraRetriever(cut, corpus, analyzer_named(analyzer))
    reference = RankBm25Retriever(cut, analyzer_named(analyzer))
    for question in load_questions(plan.questions, corpus):
        found, expected = (each.find(question.text, 1000) for each in (ours, reference))
        scores = {hit.chunk: hit.score for hit in expected}
        assert len(found) == len(scores)
        for hit, other in zip(found, expected, strict=True):
            # Sums are added up in another order: only chunks with the same score may change places.
            assert hit.score == pytest.approx(scores[hit.chunk], rel=1e-12)
            assert hit.score == pytest.approx(other.score, rel=1e-12)


def test_under_rank_bm25_the_figures_are_the_same(example: LabResult) -> None:
    other = run(load_plan(EXAMPLE, retriever="rank-bm25"))
    for ours, theirs in zip(example.policies, other.policies, strict=True):
        assert theirs.candidates.recall == ours.candidates.recall
        assert theirs.candidates.mrr == pytest.approx(ours.candidates.mrr)
        assert theirs.storage.stored_bytes is None
        assert [each.fates for each in theirs.contexts] == [each.fates for each in ours.contexts]


def test_gates_are_judged_where_they_are_demanded(tmp_path: Path) -> None:
    gates = '[gates]\npolicies = ["tiny"]\nmin_representability = 0.3\nmin_recall = 0.9\n'
    gates += 'min_context_recall = 0.0\nassembly = ["joined"]\nbudgets = [40]\n'
    result = run(load_plan(write_plan(tmp_path, PLAN + gates)))
    assert [(gate.gate, gate.policy, gate.context, gate.met) for gate in result.gates] == [
        ("min_representability", "tiny", "", True),
        ("min_recall", "tiny", "", False),
        ("min_context_recall", "tiny", "joined@1 at 40", True),
    ]
    [failed] = result.failed
    assert set(failed.cases) >= {"level", "told", "across"}


def test_costs_are_prices_times_tokens(tmp_path: Path) -> None:
    cost = '[cost]\ncurrency = "EUR"\nassumption = "made up"\n'
    cost += "per_million_indexed_tokens = 10.0\nper_million_context_tokens = 1000.0\n"
    result = run(load_plan(write_plan(tmp_path, PLAN + cost)))
    for policy in result.policies:
        assert policy.index_cost == pytest.approx(policy.storage.indexed_tokens / 100_000)
        for context in policy.contexts:
            assert context.context_cost == pytest.approx(context.context_tokens)
    assert result.setup.assumption == "made up"


def test_a_question_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    path = write_plan(tmp_path, lines=[case_line("lock", question=" ".join(f"w{n}" for n in range(65)))])
    with pytest.raises(CaseError, match=r"case 'lock': its question cannot be asked: .* 64 distinct terms"):
        run(load_plan(path))


def test_progress_is_told_over_all_policies(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run(load_plan(write_plan(tmp_path)), lambda done, total: told.append((done, total)))
    questions = len({question for question, *_ in CASES.values()})
    assert told == [(done, 2 * questions) for done in range(1, 2 * questions + 1)]


def test_wasted_contexts_show_what_was_taken_and_where_the_answer_stands(example: LabResult) -> None:
    for policy in example.policies:
        for waste in policy.wasted:
            assert waste.contexts
            assert len(waste.evidence) == len(waste.cases)
            for shown in waste.evidence:
                assert any(part.marked for line in shown.lines for part in line.fragments)


def test_the_example_covers_tables_lists_code_and_several_sections(example: LabResult) -> None:
    kinds = set(example.distributions.kinds)
    assert {"table", "list", "code", "log", "paragraph"} <= kinds
    assert example.distributions.cross_section["several sections"] >= 2
    assert set(example.distributions.script) == {"latin", "cyrillic"}
    assert not example.failed
