"""What is served and what is indexed: releases and contracts, as the store keeps them (JSON)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.assembly.assembly import JOINED, Assembly
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

    ``embedding`` and ``reranker`` are None where the release has none. ``assembly`` is None in releases that
    were made before contexts were assembled: ask for :attr:`context_assembly`.
    """

    release: str
    generation: str
    scorer: Scorer = field(default_factory=Scorer)
    embedding: Mapping[str, Any] | None = None
    reranker: Mapping[str, Any] | None = None
    assembly: Assembly | None = None

    @property
    def context_assembly(self) -> Assembly:
        """How a context is made of hits under this release: ``joined@1`` where nothing else was chosen."""
        return self.assembly or JOINED

    def to_json(self) -> bytes:
        """Canonical JSON: equal releases give equal bytes, so they can be compared and swapped."""
        return _canonical(self.to_value())

    def to_value(self) -> dict[str, Any]:
        """The JSON values of :meth:`to_json`."""
        scorer = {
            "name": self.scorer.name,
            "revision": self.scorer.revision,
            "k1": self.scorer.k1,
            "b": self.scorer.b,
        }
        return {
            "release": self.release,
            "generation": self.generation,
            "scorer": scorer,
            "embedding": self.embedding,
            "reranker": self.reranker,
            "assembly": self.assembly.to_value() if self.assembly else None,
        }

    @classmethod
    def from_json(cls, encoded: bytes) -> Release:
        """The release that :meth:`to_json` wrote; :class:`~tessera.errors.CorruptionError` otherwise."""
        try:
            return cls.from_value(json.loads(encoded))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise CorruptionError(f"the stored release cannot be read: {error!r}; set it again") from error

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Release:
        """The release of :meth:`to_value`; raises as looking up and converting do."""
        scorer, assembly = value["scorer"], value["assembly"]
        return cls(
            release=str(value["release"]),
            generation=str(value["generation"]),
            scorer=Scorer(
                str(scorer["name"]), int(scorer["revision"]), float(scorer["k1"]), float(scorer["b"])
            ),
            embedding=value["embedding"],
            reranker=value["reranker"],
            assembly=None if assembly is None else Assembly.from_value(assembly),
        )


@dataclass(frozen=True, slots=True)
class Contract:
    """All that fixes an index's content: policy, analyzer, embedding contract or None.

    ``policy_canonical`` is the policy's canonical form, from which ``policy_id``'s hash was taken.
    """

    policy_id: str
    policy_canonical: Mapping[str, Any]
    analyzer: str
    embedding: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """Its identity: ``sha256:`` and the SHA-256 of its canonical JSON without the policy's name."""
        identity = {
            "policy": self.policy_canonical,
            "analyzer": self.analyzer,
            "embedding": self.embedding,
        }
        return f"sha256:{hashlib.sha256(_canonical(identity)).hexdigest()}"

    def to_value(self) -> dict[str, Any]:
        """The contract as JSON values."""
        return {
            "policy": {"id": self.policy_id, "canonical": self.policy_canonical},
            "analyzer": self.analyzer,
            "embedding": self.embedding,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Contract:
        """The contract of :meth:`to_value`; raises as looking up and converting do."""
        return cls(
            policy_id=str(value["policy"]["id"]),
            policy_canonical=dict(value["policy"]["canonical"]),
            analyzer=str(value["analyzer"]),
            embedding=value["embedding"],
        )


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
