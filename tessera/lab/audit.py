"""The audit of declared cuts: does each policy emit at least one chunk that holds the complete evidence?

It runs no tokenizer, retrieves nothing and judges no meaning: offsets, digests and retrieved chunks are those
that the contract attests, and its claim says so. Representability (*span coverage*) is kept apart from what
was retrieved: evidence that no chunk holds cannot be found by any ranking.

Figures of a policy, over all cases:

* ``span_coverage``: share of cases whose evidence lies whole in some chunk.
* ``retrieval_coverage``: share of cases whose evidence lies whole in a chunk that was retrieved for them.
* ``mean_minimal_waste_tokens``: mean of the tokens of the smallest chunk that holds the evidence, less those
  of the evidence. A case that no chunk holds wastes its whole document: it cannot improve the mean by
  vanishing.

A contract that breaks a rule is refused, with the rule and the place, and never repaired.

    python -m tessera.lab.audit
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Final

from tessera.lab.contract import (
    AuditCase,
    AuditContract,
    AuditedPolicy,
    Document,
    Gates,
    SpanChunk,
    load_contract,
    parse_contract,
)
from tessera.lab.rules import require_sound

__all__ = [
    "AuditContract",
    "AuditResult",
    "GateFailure",
    "PolicyFigures",
    "audit",
    "example_contract",
    "load_contract",
    "parse_contract",
]

PASSED: Final = "PASS_DECLARED_COVERAGE_GATES"
FAILED: Final = "FAIL_DECLARED_COVERAGE_GATES"
CLAIM: Final = "TOKEN_SPAN_FIXTURE_ONLY"


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """One policy's figures, and its cases that fall short, by id in the order of the contract."""

    name: str
    span_coverage: float
    retrieval_coverage: float
    mean_minimal_waste_tokens: float
    unrepresentable: tuple[str, ...]
    not_retrieved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GateFailure:
    """A gate that a policy does not reach, and the cases that keep it from it, the worst first."""

    gate: str
    policy: str
    limit: float
    measured: float
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The worst policy's figures, each by itself; the decision; and the figures of every policy."""

    span_coverage: float
    retrieval_coverage: float
    mean_minimal_waste_tokens: float
    decision: str
    claim: str
    policies: tuple[PolicyFigures, ...]
    failures: tuple[GateFailure, ...]


@dataclass(frozen=True, slots=True)
class _Measured:
    """A policy's outcome per case, in the order of the contract; waste in tokens."""

    policy: str
    held: Sequence[bool]
    retrieved: Sequence[bool]
    waste: Sequence[int]

    @property
    def span_coverage(self) -> Fraction:
        return Fraction(sum(self.held), len(self.held))

    @property
    def retrieval_coverage(self) -> Fraction:
        return Fraction(sum(self.retrieved), len(self.retrieved))

    @property
    def mean_waste(self) -> Fraction:
        return Fraction(sum(self.waste), len(self.waste))


def audit(contract: AuditContract, on_progress: Callable[[int, int], None] | None = None) -> AuditResult:
    """Audit a contract. :class:`~tessera.errors.AuditError` names the rule it breaks, and where.

    ``on_progress`` is told policies done and policies in all. Figures are exact fractions until they are
    given out, so that a gate at the border is decided as it is written.
    """
    require_sound(contract)
    tokens = {document.id: document.tokens for document in contract.documents}
    measured = []
    for number, policy in enumerate(contract.policies, 1):
        measured.append(_measure(policy, contract.cases, tokens))
        if on_progress:
            on_progress(number, len(contract.policies))
    failures = [failure for each in measured for failure in _failures(each, contract.gates, contract.cases)]
    return AuditResult(
        float(min(each.span_coverage for each in measured)),
        float(min(each.retrieval_coverage for each in measured)),
        float(max(each.mean_waste for each in measured)),
        FAILED if failures else PASSED,
        CLAIM,
        tuple(_figures(each, contract.cases) for each in measured),
        tuple(failures),
    )


class _Cut:
    """One document's chunks under one policy: starts and ends rise, so those that hold a span are a run."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, chunk: SpanChunk) -> None:
        self._starts.append(chunk.start)
        self._ends.append(chunk.end)

    def smallest(self, start: int, end: int) -> int | None:
        """Tokens of the smallest chunk that holds the span; None where none does."""
        holding = range(bisect_left(self._ends, end), bisect_right(self._starts, start))
        return min((self._ends[n] - self._starts[n] for n in holding), default=None)


def _measure(policy: AuditedPolicy, cases: Iterable[AuditCase], tokens: Mapping[str, int]) -> _Measured:
    cuts: dict[str, _Cut] = {document: _Cut() for document in tokens}
    chunks: dict[str, SpanChunk] = {}
    for chunk in policy.chunks:
        cuts[chunk.document].add(chunk)
        chunks[chunk.id] = chunk
    held, retrieved, waste = [], [], []
    for case in cases:
        smallest = cuts[case.document].smallest(case.start, case.end)
        held.append(smallest is not None)
        waste.append(tokens[case.document] if smallest is None else smallest - (case.end - case.start))
        found = (chunks[each] for each in case.retrieved if each in chunks)
        retrieved.append(any(_holds(chunk, case) for chunk in found))
    return _Measured(policy.name, held, retrieved, waste)


def _holds(chunk: SpanChunk, case: AuditCase) -> bool:
    return chunk.document == case.document and chunk.start <= case.start and case.end <= chunk.end


def _figures(measured: _Measured, cases: Sequence[AuditCase]) -> PolicyFigures:
    return PolicyFigures(
        measured.policy,
        float(measured.span_coverage),
        float(measured.retrieval_coverage),
        float(measured.mean_waste),
        _where_not(measured.held, cases),
        _where_not(measured.retrieved, cases),
    )


def _failures(measured: _Measured, gates: Gates, cases: Sequence[AuditCase]) -> Iterable[GateFailure]:
    coverages = (
        ("min_span_coverage", measured.span_coverage, measured.held),
        ("min_retrieval_coverage", measured.retrieval_coverage, measured.retrieved),
    )
    for gate, reached, met in coverages:
        limit = getattr(gates, gate)
        if limit is not None and reached < Fraction(str(limit)):
            yield GateFailure(gate, measured.policy, limit, float(reached), _where_not(met, cases))
    most = gates.max_mean_minimal_waste_tokens
    if most is not None and measured.mean_waste > Fraction(str(most)):
        above = [(waste, case.id) for waste, case in zip(measured.waste, cases, strict=True) if waste > most]
        worst = tuple(name for _, name in sorted(above, key=lambda each: -each[0]))
        gate = "max_mean_minimal_waste_tokens"
        yield GateFailure(gate, measured.policy, most, float(measured.mean_waste), worst)


def _where_not(met: Sequence[bool], cases: Sequence[AuditCase]) -> tuple[str, ...]:
    return tuple(case.id for is_met, case in zip(met, cases, strict=True) if not is_met)


def example_contract() -> AuditContract:
    """A small contract that passes, for illustration only: three overlapping windows and two questions."""
    digest = f"sha256:{sha256(b'an illustrative agreement').hexdigest()}"
    windows = ((0, 10), (8, 18), (16, 24))
    chunks = (SpanChunk(f"w{number}", "agreement", *span) for number, span in enumerate(windows))
    return AuditContract(
        (Document("agreement", digest, 24),),
        (AuditedPolicy("windows", 10, 2, tuple(chunks)),),
        (
            AuditCase("term", "agreement", digest, 2, 8, ("w0", "w2")),
            AuditCase("notice", "agreement", digest, 10, 18, ("w1",)),
        ),
        Gates(1.0, 1.0, 4.0),
    )


def lines(result: AuditResult) -> list[str]:
    """The result in lines of ``name=value``; several policies and failing gates behind them."""
    told = [
        f"span_coverage={result.span_coverage:.3f}",
        f"retrieval_coverage={result.retrieval_coverage:.3f}",
        f"mean_minimal_waste_tokens={result.mean_minimal_waste_tokens:.3f}",
        f"decision={result.decision}",
        f"claim={result.claim}",
    ]
    if len(result.policies) > 1:
        told += [
            f"policy={each.name} span_coverage={each.span_coverage:.3f} "
            f"retrieval_coverage={each.retrieval_coverage:.3f} "
            f"mean_minimal_waste_tokens={each.mean_minimal_waste_tokens:.3f}"
            for each in result.policies
        ]
    for failure in result.failures:
        cases = ",".join(failure.cases)
        told.append(
            f"failed_gate={failure.gate} policy={failure.policy} limit={failure.limit:g} "
            f"measured={failure.measured:.3f} cases={cases}"
        )
    return told


if __name__ == "__main__":
    print("\n".join(["example=illustrative_only", *lines(audit(example_contract()))]))
