"""What a run finds. All of it is plain values: :func:`to_value` gives them as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tessera.lab.excerpts import Excerpt
from tessera.lab.shapes import Shape
from tessera.lab.stages import Fate

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds over all questions, by nearest rank."""

    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Storage:
    """What the index of a policy holds; tokens are of ``words@1``.

    ``indexed_tokens`` counts parent context and overlaps; ``amplification`` is their ratio to the source's.
    ``stored_bytes`` is the segment's size as the store would hold it, None under another retriever.
    """

    chunks: int
    longest_tokens: int
    indexed_tokens: int
    source_tokens: int
    amplification: float
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Recall among the first k hits, and mean reciprocal rank there, over cases; evidence counts whole."""

    stage: str
    recall: float
    mrr: float


@dataclass(frozen=True, slots=True)
class ContextFigures:
    """One way of packing. Recall, precision and IoU are means over questions, in characters.

    ``grounding`` is the share of cases whose evidence is quoted verbatim in one piece, at its place.
    ``fates`` counts cases by where they are lost, ``mended`` those that were kept though no hit held them
    whole. ``context_cost`` is that of a thousand questions, None without prices.
    """

    assembly: str
    budget: int
    recall: float
    precision: float
    iou: float
    utilization: float
    context_tokens: float
    grounding: float
    fates: Mapping[Fate, int]
    mended: int
    latency: Latency
    context_cost: float | None


@dataclass(frozen=True, slots=True)
class Group:
    """A part of the cases; ``kept`` counts per way of packing, in the order of ``contexts``."""

    cases: int
    represented: int
    retrieved: int
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """One case: whether a chunk holds it whole, its rank, and its fate per way of packing."""

    id: str
    represented: bool
    rank: int | None
    fates: tuple[Fate, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """Evidence that every chunk cuts."""

    case: str
    question: str
    tokens: int
    excerpt: Excerpt


@dataclass(frozen=True, slots=True)
class Wasted:
    """A question some of whose contexts hold none of its evidence; ``contexts`` says which.

    ``pieces`` are those of the last of them, ``evidence`` is where the answer stands.
    """

    question: str
    cases: tuple[str, ...]
    contexts: tuple[str, ...]
    tokens: int
    pieces: tuple[Excerpt, ...]
    evidence: tuple[Excerpt, ...]


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """All figures of one policy. ``borders`` counts what its chunks' inner borders cut."""

    name: str
    id: str
    representability: float
    candidates: Ranking
    reranking: Ranking
    contexts: tuple[ContextFigures, ...]
    latency: Latency
    storage: Storage
    index_cost: float | None
    borders: Counts
    groups: Mapping[str, Mapping[str, Group]]
    outcomes: tuple[CaseOutcome, ...]
    misses: tuple[Miss, ...]
    wasted: tuple[Wasted, ...]


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """A gate on one policy; ``context`` names the way of packing, empty where the gate knows none.

    ``cases`` are those that fall short, in the order of the file.
    """

    gate: str
    policy: str
    context: str
    limit: float
    measured: float
    met: bool
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setup:
    """What all policies had in common."""

    plan: str
    retriever: str
    analyzer: str
    scorer: str
    k: int
    documents: int
    questions: int
    cases: int
    currency: str
    assumption: str


@dataclass(frozen=True, slots=True)
class Distributions:
    """How many cases have which length, kinds of blocks, borders, scripts, …"""

    length: Counts
    kinds: Counts
    begins: Counts
    ends: Counts
    script: Counts
    media_type: Counts
    cross_section: Counts
    family: Counts


@dataclass(frozen=True, slots=True)
class LabResult:
    """A run: its setup, what the evidence looks like, and every policy's figures."""

    setup: Setup
    shapes: Mapping[str, Shape]
    distributions: Distributions
    policies: tuple[PolicyResult, ...]
    gates: tuple[GateOutcome, ...]

    @property
    def failed(self) -> tuple[GateOutcome, ...]:
        """Gates that are not met."""
        return tuple(gate for gate in self.gates if not gate.met)


def to_value(result: LabResult) -> dict[str, Any]:
    """The result as JSON values."""
    return asdict(result)
