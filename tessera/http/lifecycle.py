"""The JSON of ``/api/generations``, as the OpenAPI description shows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tessera.assembly.assembly import ASSEMBLIES
from tessera.generations.operations import LONGEST_S

_ASSEMBLY = f"^({'|'.join(ASSEMBLIES)})$"

LONGEST_WAIT_S = 60.0
"""A request that is answered later than this looks like one that hangs."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProgressBody(_Body):
    """How far the shards are: ``documents`` of the ``of`` in the serving generation are in this one."""

    documents: int
    of: int
    shards_complete: int
    shards: int
    eta_s: float | None
    notes: dict[str, str] = Field(description="why a shard's backfill waits")


class GenerationBody(_Body):
    """One generation: the contract that fixes its content, and where it is in its life."""

    generation: str
    state: str
    serving: bool
    policy: str
    analyzer: str
    embedding: dict[str, Any] | None
    contract: str = Field(description="digest of the contract")
    created_at_ms: int
    paused: bool
    rate: float | None
    hold: str
    retain_until_ms: int
    release: str | None = Field(description="that serves it, or that a rollback would serve")
    assembly: str | None = Field(description="that release's context assembly")
    chunks: int
    uncovered: int
    segments: int
    stored_chunks: int = Field(description="chunks in its segments, dead ones included")
    parity: bool | None = Field(
        description="whether every shard holds in it just what the serving one does; null as for progress"
    )
    evidence_expires_at_ms: int | None = Field(description="null where it has no evidence")
    progress: ProgressBody | None = Field(description="null where it is no longer written")


class GenerationDetail(GenerationBody):
    """One generation with everything known of it."""

    policy_canonical: dict[str, Any]
    evidence: dict[str, Any] | None
    waiver: dict[str, Any] | None
    steps: list[dict[str, Any]]
    shards: dict[str, dict[str, Any]]


class CheckBody(_Body):
    """One check, and what was found."""

    name: str
    passed: bool
    detail: str
    waived: bool


class MoveBody(_Body):
    """A move of the release. ``done``: it was made; else it is what would be checked and changed."""

    done: bool
    allowed: bool
    from_release: dict[str, Any]
    to_release: dict[str, Any]
    checks: list[CheckBody]
    changes: list[str]
    note: str = Field(description="what became of a waiver that was asked for, where it was not taken")


class RemovalBody(_Body):
    """A removal under way; ``waits_for`` says for whom."""

    generation: str
    state: str
    waits_for: list[str]
    done: bool


class CreateRequest(_Body):
    """A new generation, under a built-in policy or the text of a policy file."""

    policy: str | None = None
    policy_toml: str | None = Field(None, max_length=64 * 1024)
    analyzer: Literal["words", "english"] = Field("words", description="english: stemmed")
    name: str | None = None
    rate: float | None = Field(None, ge=0, description="documents a second and shard; 0: no bound")


class RateRequest(_Body):
    """A bound for the backfill; null takes it away."""

    rate: float | None = Field(ge=0, description="documents a second and shard; 0: no bound")


class WhyRequest(_Body):
    """A reason, for the record."""

    why: str = Field(min_length=1, max_length=1000)


class VerifyRequest(_Body):
    """How many documents are cut anew, and which."""

    sample: int = Field(50, ge=0, le=10_000)
    seed: int = 0


class CompareRequest(_Body):
    """The content of a case file, and the generation to compare with (left out: the serving one)."""

    cases: dict[str, Any]
    baseline: str | None = None
    expires_s: int | None = Field(None, ge=1, le=LONGEST_S)


class CutoverRequest(_Body):
    """``waive`` overrules the one failing check, or ``CHECK: why`` that one, for ``expires_s`` seconds.

    ``assembly`` comes with the release; left out, it stays. With it, the generation may be serving already.
    """

    dry_run: bool = False
    assembly: str | None = Field(None, pattern=_ASSEMBLY, description="of contexts")
    waive: str | None = Field(None, max_length=1000)
    expires_s: int = Field(24 * 3600, ge=1, le=LONGEST_S)
    retention_s: int | None = Field(None, ge=0, le=LONGEST_S)


class RollbackRequest(_Body):
    """``dry_run`` shows checks and changes only."""

    dry_run: bool = False
    why: str = Field("", max_length=1000)


class RemovalRequest(_Body):
    """How long to wait before answering what is still waited for."""

    why: str = Field("", max_length=1000)
    wait_s: float = Field(0.0, ge=0, le=LONGEST_WAIT_S)


class RebuildRequest(_Body):
    """Nothing is emptied unless ``confirmed``; ``dry_run`` says what the logs still hold.

    ``lose``: how many documents may be lost at most, for the logs do not hold them.
    """

    dry_run: bool = False
    confirmed: bool = False
    lose: int = Field(0, ge=0)
