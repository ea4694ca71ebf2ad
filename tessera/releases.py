"""What is served and what is indexed: releases and contracts, as the store keeps them (JSON)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class Scorer:
    """How chunks are ranked: BM25 with ``k1`` >= 0 and ``b`` in [0, 1] (:mod:`tessera.search.scoring`)."""

    name: str = "bm25"
    revision: int = 1
    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        if (self.name, self.revision) != ("bm25", 1):
            raise CorruptionError(
                f"scorer {self.name!r} revision {self.revision} is not known to this build: it knows bm25 "
                "revision 1; serve this release with the build that made it"
            )
        if not (math.isfinite(self.k1) and self.k1 >= 0 and 0 <= self.b <= 1):
            raise CorruptionError(f"scorer bm25 needs k1 >= 0 and 0 <= b <= 1, not k1={self.k1}, b={self.b}")


@dataclass(frozen=True, slots=True)
class Release:
    """What is served: a generation and everything else that decides an answer, by version.

    ``embedding``, ``reranker`` and ``assembly`` are None where the release has none.
    """

    release: str
    generation: str
    scorer: Scorer = field(default_factory=Scorer)
    embedding: Mapping[str, Any] | None = None
    reranker: Mapping[str, Any] | None = None
    assembly: Mapping[str, Any] | None = None

    def to_json(self) -> bytes:
        """Canonical JSON: equal releases give equal bytes, so they can be compared and swapped."""
        scorer = {
            "name": self.scorer.name,
            "revision": self.scorer.revision,
            "k1": self.scorer.k1,
            "b": self.scorer.b,
        }
        return _canonical(
            {
                "release": self.release,
                "generation": self.generation,
                "scorer": scorer,
                "embedding": self.embedding,
                "reranker": self.reranker,
                "assembly": self.assembly,
            }
        )

    @classmethod
    def from_json(cls, encoded: bytes) -> Release:
        """The release that :meth:`to_json` wrote; :class:`~tessera.errors.CorruptionError` otherwise."""
        try:
            value = json.loads(encoded)
            scorer = value["scorer"]
            return cls(
                release=str(value["release"]),
                generation=str(value["generation"]),
                scorer=Scorer(
                    str(scorer["name"]), int(scorer["revision"]), float(scorer["k1"]), float(scorer["b"])
                ),
                embedding=value["embedding"],
                reranker=value["reranker"],
                assembly=value["assembly"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"the stored release cannot be read: {error!r}; set it again") from error


@dataclass(frozen=True, slots=True)
class Contract:
    """All that fixes an index's content: policy, analyzer, embedding contract or None.

    ``policy_canonical`` is the policy's canonical form, from which ``policy_id``'s hash was taken.
    """

    policy_id: str
    policy_canonical: Mapping[str, Any]
    analyzer: str
    embedding: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GenerationDescription:
    """One generation and its contract, as the registry keeps it."""

    generation: str
    contract: Contract

    def to_json(self) -> bytes:
        """Canonical JSON of the generation."""
        contract = self.contract
        return _canonical(
            {
                "generation": self.generation,
                "contract": {
                    "policy": {"id": contract.policy_id, "canonical": contract.policy_canonical},
                    "analyzer": contract.analyzer,
                    "embedding": contract.embedding,
                },
            }
        )

    @classmethod
    def from_json(cls, encoded: bytes) -> GenerationDescription:
        """The description that :meth:`to_json` wrote; :class:`~tessera.errors.CorruptionError` otherwise."""
        try:
            value = json.loads(encoded)
            contract = value["contract"]
            return cls(
                generation=str(value["generation"]),
                contract=Contract(
                    policy_id=str(contract["policy"]["id"]),
                    policy_canonical=dict(contract["policy"]["canonical"]),
                    analyzer=str(contract["analyzer"]),
                    embedding=contract["embedding"],
                ),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(
                f"a generation's description cannot be read: {error!r}; register it again"
            ) from error


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
