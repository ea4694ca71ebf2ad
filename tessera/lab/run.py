"""A run of the lab: every policy through every stage, with the same analyzer and the same retrieval.

It happens in memory and in one process. Nothing in it is drawn by lot; but for latencies, two runs over the
same files find the same.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

from tessera.assembly.assemble import assemble
from tessera.assembly.assembly import Assembly
from tessera.assembly.passage import Context
from tessera.errors import CaseError, QueryError
from tessera.index.analyzer import Analyzer, analyzer_named
from tessera.lab.corpus import Corpus, Question, load_corpus, load_questions
from tessera.lab.cuts import PolicyCut, cut_corpus
from tessera.lab.excerpts import Excerpt, excerpt
from tessera.lab.gates import judge
from tessera.lab.plan import Plan, Prices
from tessera.lab.results import (
    CaseOutcome,
    ContextFigures,
    Distributions,
    Group,
    LabResult,
    Latency,
    Miss,
    PolicyResult,
    Ranking,
    Setup,
    Storage,
    Wasted,
)
from tessera.lab.retrievers import SCORER, Hit, Retriever, TesseraRetriever, retriever_named
from tessera.lab.shapes import DIMENSIONS, LENGTHS, Outline, Shape, length_class, outlines, shapes_of
from tessera.lab.stages import Packed, fate_of, fates, key_of, leads, packed, passages, rank_of
from tessera.policies.words import word_count

MILLION = 1_000_000
QUESTIONS_PRICED = 1000
WASTED_PIECES = 3
"""Pieces shown of a context that holds none of the evidence: enough to see what was taken for it."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, what was found for it, and its context per way of packing, with seconds."""

    question: Question
    hits: list[Hit]
    find_s: float
    contexts: list[Context]
    pack_s: list[float]


def run(plan: Plan, on_progress: Progress | None = None) -> LabResult:
    """Run a plan. Raises :class:`~tessera.errors.PlanError` and :class:`~tessera.errors.CaseError` for what
    it leads to, and SettingsError where the retriever is not installed.

    ``on_progress`` is told questions asked, and how many will be asked of all policies.
    """
    corpus = load_corpus(plan)
    questions = load_questions(plan.questions, corpus)
    outlined = outlines(corpus)
    shapes = shapes_of(questions, outlined)
    analyzer = analyzer_named(plan.analyzer)
    total = len(plan.policies) * len(questions)
    results = []
    for number, policy in enumerate(plan.policies):

        def told(done: int, before: int = number * len(questions)) -> None:
            if on_progress:
                on_progress(before + done, total)

        lab = _Lab(plan, corpus, questions, outlined, shapes, analyzer)
        results.append(lab.result(cut_corpus(policy, corpus), told))
    setup = Setup(
        plan.where,
        plan.retriever,
        analyzer.identity,
        f"bm25 k1={SCORER.k1:g} b={SCORER.b:g}",
        plan.k,
        len(corpus),
        len(questions),
        len(shapes),
        plan.prices.currency if plan.prices else "",
        plan.prices.assumption if plan.prices else "",
    )
    gates = tuple(judge(plan.gates, results, questions))
    return LabResult(setup, shapes, _distributions(shapes), tuple(results), gates)


@dataclass(frozen=True, slots=True)
class _Lab:
    """What all policies share."""

    plan: Plan
    corpus: Corpus
    questions: Sequence[Question]
    outlined: dict[str, Outline]
    shapes: dict[str, Shape]
    analyzer: Analyzer

    def result(self, cut: PolicyCut, told: Callable[[int], None]) -> PolicyResult:
        retriever = retriever_named(self.plan.retriever, cut, self.corpus, self.analyzer)
        asked = []
        for number, question in enumerate(self.questions, 1):
            asked.append(self._ask(question, cut, retriever))
            told(number)
        outcomes = tuple(outcome for each in asked for outcome in self._outcomes(each, cut))
        ranks = [outcome.rank for outcome in outcomes]
        candidates = Ranking(
            "bm25", _share(ranks), fmean(0.0 if rank is None else 1 / rank for rank in ranks)
        )
        storage = self._storage(cut, retriever)
        return PolicyResult(
            name=cut.policy.name,
            id=cut.policy.id,
            representability=fmean(outcome.represented for outcome in outcomes),
            candidates=candidates,
            # Nothing reranks yet: what goes in comes out, and the stage says so.
            reranking=Ranking("none", candidates.recall, candidates.mrr),
            contexts=tuple(self._context(number, asked, outcomes) for number in range(len(self._ways()))),
            latency=_latency(each.find_s for each in asked),
            storage=storage,
            index_cost=_cost(self.plan.prices, "per_million_indexed_tokens", storage.indexed_tokens),
            borders=self._borders(cut),
            groups=self._groups(outcomes),
            outcomes=outcomes,
            misses=tuple(self._misses(cut, outcomes)),
            wasted=tuple(self._wasted(cut, asked)),
        )

    def _ways(self) -> list[tuple[Assembly, int]]:
        return [(assembly, budget) for assembly in self.plan.assemblies for budget in self.plan.budgets]

    def _ask(self, question: Question, cut: PolicyCut, retriever: Retriever) -> _Asked:
        hits, find_s = self._find(question, retriever)
        found, leading = passages(hits, cut, self.corpus), leads(hits, cut, self.corpus)
        contexts, pack_s = [], []
        for assembly, budget in self._ways():
            began = time.perf_counter()
            contexts.append(assemble(assembly, found, budget, word_count, cut.spans, leading))
            pack_s.append(time.perf_counter() - began)
        return _Asked(question, hits, find_s, contexts, pack_s)

    def _find(self, question: Question, retriever: Retriever) -> tuple[list[Hit], float]:
        """Hits and seconds of the second of two runs: the first fills caches that serving has filled."""
        hits: list[Hit] = []
        seconds = 0.0
        for _ in range(2):
            began = time.perf_counter()
            try:
                hits = retriever.find(question.text, self.plan.k)
            except QueryError as error:
                where = f"{self.plan.questions}: case {question.cases[0].id!r}"
                raise CaseError(f"{where}: its question cannot be asked: {error}") from error
            seconds = time.perf_counter() - began
        return hits, seconds

    def _outcomes(self, asked: _Asked, cut: PolicyCut) -> Iterable[CaseOutcome]:
        for case in asked.question.cases:
            text = self.corpus[key_of(case)].text
            represented = cut.represents(key_of(case), case.start, case.end)
            rank = rank_of(case, asked.hits, cut)
            found = (
                fate_of(case, represented=represented, rank=rank, text=text, context=context)
                for context in asked.contexts
            )
            yield CaseOutcome(case.id, represented, rank, tuple(found))

    def _context(
        self, number: int, asked: Sequence[_Asked], outcomes: Sequence[CaseOutcome]
    ) -> ContextFigures:
        assembly, budget = self._ways()[number]
        found: list[Packed] = [packed(each.question, each.contexts[number]) for each in asked]
        tokens = fmean(each.used_tokens for each in found)
        here = [outcome.fates[number] for outcome in outcomes]
        return ContextFigures(
            assembly=assembly.id,
            budget=budget,
            recall=fmean(each.recall for each in found),
            precision=fmean(each.precision for each in found),
            iou=fmean(each.iou for each in found),
            utilization=tokens / budget,
            context_tokens=tokens,
            grounding=fmean(fate == "kept" for fate in here),
            fates=fates(here),
            mended=sum(outcome.fates[number] == "kept" and outcome.rank is None for outcome in outcomes),
            latency=_latency(each.pack_s[number] for each in asked),
            context_cost=_cost(self.plan.prices, "per_million_context_tokens", tokens * QUESTIONS_PRICED),
        )

    def _storage(self, cut: PolicyCut, retriever: Retriever) -> Storage:
        source = sum(word_count(document.text) for document in self.corpus.values())
        indexed = sum(chunk.indexed_tokens for chunk in cut.chunks)
        return Storage(
            len(cut.chunks),
            max((chunk.tokens for chunk in cut.chunks), default=0),
            indexed,
            source,
            indexed / max(source, 1),
            retriever.stored_bytes if isinstance(retriever, TesseraRetriever) else None,
        )

    def _borders(self, cut: PolicyCut) -> dict[str, int]:
        """What lies at the borders of chunks: starts but for a document's first, ends but for its last."""
        counts: Counter[str] = Counter()
        for key, chunks in cut.by_document.items():
            inner = {chunk.entry.start for chunk in chunks[1:]} | {chunk.entry.end for chunk in chunks[:-1]}
            counts.update(self.outlined[key].place(at) for at in inner)
        return dict(counts.most_common())

    def _groups(self, outcomes: Sequence[CaseOutcome]) -> dict[str, dict[str, Group]]:
        found: dict[str, dict[str, Group]] = {}
        for dimension in DIMENSIONS:
            members: dict[str, list[CaseOutcome]] = {}
            for outcome in outcomes:
                members.setdefault(self.shapes[outcome.id].group(dimension), []).append(outcome)
            found[dimension] = {name: _group(members[name]) for name in _ordered(members)}
        return found

    def _misses(self, cut: PolicyCut, outcomes: Sequence[CaseOutcome]) -> Iterable[Miss]:
        cases = {case.id: case for question in self.questions for case in question.cases}
        for outcome in outcomes:
            if not outcome.represented:
                case = cases[outcome.id]
                key = key_of(case)
                chunks = cut.by_document.get(key, ())
                shown = excerpt(self.corpus[key], case.start, case.end, chunks)
                yield Miss(case.id, case.question, self.shapes[case.id].tokens, shown)

    def _wasted(self, cut: PolicyCut, asked: Sequence[_Asked]) -> Iterable[Wasted]:
        ways = self._ways()
        for each in asked:
            empty = [
                number
                for number, context in enumerate(each.contexts)
                if not packed(each.question, context).shared
            ]
            if empty:
                context = each.contexts[empty[-1]]
                yield Wasted(
                    each.question.text,
                    tuple(case.id for case in each.question.cases),
                    tuple(f"{ways[number][0].id} at {ways[number][1]}" for number in empty),
                    context.used,
                    tuple(
                        excerpt(self.corpus[piece.key], piece.start, piece.end)
                        for piece in context.pieces[:WASTED_PIECES]
                    ),
                    tuple(self._evidence(each.question, cut)),
                )

    def _evidence(self, question: Question, cut: PolicyCut) -> Iterable[Excerpt]:
        for case in question.cases:
            key = key_of(case)
            yield excerpt(self.corpus[key], case.start, case.end, cut.by_document.get(key, ()))


def _group(outcomes: Sequence[CaseOutcome]) -> Group:
    columns = zip(*(outcome.fates for outcome in outcomes), strict=True)
    return Group(
        len(outcomes),
        sum(outcome.represented for outcome in outcomes),
        sum(outcome.rank is not None for outcome in outcomes),
        tuple(column.count("kept") for column in columns),
    )


def _distributions(shapes: dict[str, Shape]) -> Distributions:
    def counts(dimension: str) -> dict[str, int]:
        found = Counter(shape.group(dimension) for shape in shapes.values())
        return {name: found[name] for name in _ordered(found)}

    return Distributions(**{each.name: counts(each.name) for each in fields(Distributions)})


def _ordered(names: Iterable[str]) -> list[str]:
    """Classes of length from short to long; all other names by the alphabet."""
    classes = [length_class(most) for most in (*LENGTHS, LENGTHS[-1] + 1)]
    return sorted(names, key=lambda name: (classes.index(name) if name in classes else 0, name))


def _share(ranks: Sequence[int | None]) -> float:
    return sum(rank is not None for rank in ranks) / len(ranks)


def _cost(prices: Prices | None, name: str, tokens: float) -> float | None:
    return None if prices is None else float(getattr(prices, name)) * tokens / MILLION


def _latency(seconds: Iterable[float]) -> Latency:
    ordered = sorted(1000 * each for each in seconds)
    return Latency(*(round(ordered[math.ceil(share * len(ordered)) - 1], 3) for share in (0.5, 0.95)))
