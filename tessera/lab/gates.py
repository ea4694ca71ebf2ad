"""Gates: what policies must reach, and the cases that keep one from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.lab.corpus import Question
from tessera.lab.plan import Gates
from tessera.lab.results import ContextFigures, GateOutcome, PolicyResult

DIGITS = 9
"""Figures are compared at this many digits: a mean of sums at the border must not fail by its rounding."""


def judge(
    gates: Gates, results: Iterable[PolicyResult], questions: Sequence[Question]
) -> Iterable[GateOutcome]:
    """Every gate on every policy and way of packing that it is demanded of."""
    ids = [case.id for question in questions for case in question.cases]
    for result in results:
        if gates.policies and result.name not in gates.policies:
            continue
        represented = [outcome.represented for outcome in result.outcomes]
        retrieved = [outcome.rank is not None for outcome in result.outcomes]
        figures = (
            ("min_representability", gates.min_representability, result.representability, represented),
            ("min_recall", gates.min_recall, result.candidates.recall, retrieved),
        )
        for gate, limit, measured, met in figures:
            if limit is not None:
                yield _outcome(gate, result.name, "", limit, measured, _where_not(ids, met))
        if gates.min_context_recall is not None:
            for number, context in enumerate(result.contexts):
                if _demanded(gates, context):
                    kept = [outcome.fates[number] == "kept" for outcome in result.outcomes]
                    name = f"{context.assembly} at {context.budget}"
                    limit, short = gates.min_context_recall, _where_not(ids, kept)
                    yield _outcome("min_context_recall", result.name, name, limit, context.recall, short)


def _demanded(gates: Gates, context: ContextFigures) -> bool:
    name = context.assembly.partition("@")[0]
    return (not gates.assembly or name in gates.assembly) and (
        not gates.budgets or context.budget in gates.budgets
    )


def _outcome(
    gate: str, policy: str, context: str, limit: float, measured: float, short: tuple[str, ...]
) -> GateOutcome:
    met = round(measured, DIGITS) >= round(limit, DIGITS)
    return GateOutcome(gate, policy, context, limit, measured, met, short)


def _where_not(ids: Sequence[str], met: Sequence[bool]) -> tuple[str, ...]:
    return tuple(name for name, is_met in zip(ids, met, strict=True) if not is_met)
