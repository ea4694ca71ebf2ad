"""The JSON that the service speaks, as its OpenAPI description shows it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HitBody(_Body):
    """A chunk: ``text`` is the source's, verbatim, from code point ``start`` to before ``end``."""

    id: str = Field(description="for people: <stem>:chunk<n>")
    uid: str = Field(description="for machines: unique, fixed to revision and policy")
    score: float
    source: str
    doc_id: str
    revision: int
    content_digest: str
    policy: str
    access: list[str]
    start_token: int
    end_token: int
    start_line: int = Field(description="1-based, inclusive")
    end_line: int = Field(description="1-based, inclusive")
    start: int = Field(description="code points, half-open")
    end: int = Field(description="code points, half-open")
    headings: list[str]
    text: str


class AnswerBody(_Body):
    """The hits, best first, and what they were found in."""

    release: str
    generation: str
    as_of: dict[str, int] = Field(description="last applied offset by <topic>/<partition>; -1: none")
    took_ms: float
    hits: list[HitBody]
    stale_s: float | None = Field(
        None, description="only where the release cannot be read just now: since when, in seconds"
    )


class PieceBody(_Body):
    """A part of a context: ``text`` is the source's, verbatim, code points ``start`` to before ``end``."""

    source: str
    doc_id: str
    revision: int
    content_digest: str
    start: int = Field(description="code points, half-open")
    end: int = Field(description="code points, half-open")
    start_line: int = Field(description="1-based, inclusive")
    end_line: int = Field(description="1-based, inclusive")
    headings: list[str] = Field(description="above its beginning, outermost first")
    text: str
    uids: list[str] = Field(description="the chunks it was taken from, best first")
    score: float = Field(description="of the best of them")


class ContextBody(_Body):
    """Pieces in the order of reading, disjoint in each document, and what they were assembled by."""

    release: str
    generation: str
    assembly: str = Field(description="the release's, <name>@<revision>")
    as_of: dict[str, int] = Field(description="last applied offset by <topic>/<partition>; -1: none")
    took_ms: float
    budget: int = Field(description="tokens (words@1)")
    used: int = Field(description="tokens (words@1) of all pieces")
    utilization: float = Field(description="used / budget")
    hits: int = Field(description="how many were looked at")
    evidence: bool = Field(description="false: no hit reached the floor")
    pieces: list[PieceBody]
    left_out: list[str] = Field(description="uids of hits of which nothing went in, best first")
    stale_s: float | None = Field(
        None, description="only where the release cannot be read just now: since when, in seconds"
    )


class UncoveredBody(_Body):
    """A range of the source that no chunk holds; ``missing`` lines of a log have not arrived."""

    start: int
    end: int
    start_line: int
    end_line: int
    missing: bool


class DocumentBody(_Body):
    """A document with its chunks in source order."""

    source: str
    doc_id: str
    revision: int
    content_digest: str
    media_type: str
    access: list[str]
    size_bytes: int
    undecodable: list[list[int]] = Field(description="half-open byte ranges that were not UTF-8")
    chunks: list[HitBody]
    uncovered: list[UncoveredBody]


class PositionBody(_Body):
    """Where the broker put one change."""

    topic: str
    partition: int
    offset: int


class ErrorDetail(BaseModel):
    """What went wrong; some errors say more, such as the ``field`` at fault."""

    code: str
    message: str


class ErrorBody(_Body):
    """Every error has this form."""

    error: ErrorDetail


EVENT_EXAMPLE = {
    "v": 1,
    "op": "upsert",
    "source": "notes",
    "doc_id": "first.md",
    "media_type": "text/markdown",
    "content": "# First\n\nA note.\n",
    "access": ["*"],
}

EVENTS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
                "example": EVENT_EXAMPLE,
            }
        },
    }
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that can fail with these statuses."""
    return {status: {"model": ErrorBody} for status in statuses}
