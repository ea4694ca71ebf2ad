"""The JSON that the service speaks, as its OpenAPI description shows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tessera.assembly.grounding import Reason, Verdict
from tessera.errors import QueryError
from tessera.search.grounding import MAX_QUOTE_CHARACTERS, MAX_QUOTES, Quote, parsed_uid


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


MAX_OUTCOMES = 1000
Outcome = Literal["supported", "unsupported", "no_evidence"]


class QuoteRequest(_Body):
    """A quote and the chunk it is cited from; what a hit or a piece says beside may come along."""

    uid: str = Field(max_length=10_000, description="the chunk's")
    quote: str = Field(min_length=1, max_length=MAX_QUOTE_CHARACTERS, description="verbatim")
    revision: int | None = Field(None, description="must be the uid's")
    content_digest: str | None = Field(
        None, max_length=100, description="of the document, as it was answered"
    )
    score: float | None = Field(None, description="the hit's, as it was answered", allow_inf_nan=False)


class GroundRequest(_Body):
    """Quotes to be checked. With a ``floor``, a quote is evidence only if its score reaches it."""

    quotes: list[QuoteRequest] = Field(min_length=1, max_length=MAX_QUOTES)
    floor: float | None = Field(None, ge=0, allow_inf_nan=False)
    generation: str | None = Field(None, max_length=100, description="another than the served one")

    def to_quotes(self) -> list[Quote]:
        """The quotes; QueryError where a revision is not its uid's."""
        quotes = []
        for number, each in enumerate(self.quotes):
            uid = parsed_uid(each.uid)
            if uid is not None and each.revision not in (None, uid.revision):
                raise QueryError(f"quote {number}: its revision is not that of its uid: leave it out")
            quotes.append(Quote(each.uid, each.quote, each.content_digest, each.score))
        return quotes


class OutcomeRequest(_Body):
    """How answers ended that were made of this service's hits."""

    outcomes: list[Outcome] = Field(min_length=1, max_length=MAX_OUTCOMES, description="one for each answer")


class GroundedBody(_Body):
    """What has become of a quote."""

    uid: str
    verdict: Verdict
    reason: Reason = Field(
        description="held; stale: changed, deleted, generation (cut by another policy now); absent: "
        "not_in_chunk, unknown (or not for this caller)"
    )
    revision: int | None = Field(description="the document's now")
    content_digest: str | None = Field(description="the document's now")
    stands: bool | None = Field(description="whether the text holds it now; null: not looked for")
    start: int | None = Field(description="of the quote now: code points, half-open")
    end: int | None = Field(description="code points, half-open")
    start_line: int | None = Field(description="1-based, inclusive")
    end_line: int | None = Field(description="1-based, inclusive")


class GroundingBody(_Body):
    """All quotes in order, and whether there is evidence: a supported quote that reaches the floor."""

    release: str
    generation: str
    as_of: dict[str, int] = Field(description="last applied offset by <topic>/<partition>; -1: none")
    took_ms: float
    evidence: bool
    quotes: list[GroundedBody]
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


class StretchBody(_Body):
    """Lines of a document, with the first of them."""

    start: int = Field(description="code points, half-open")
    end: int = Field(description="code points, half-open")
    start_line: int = Field(description="1-based, inclusive")
    end_line: int = Field(description="1-based, inclusive")
    lines: list[str]
    missing: bool = Field(description="lines of a log that have not arrived")


class ParseFailureBody(_Body):
    """Bytes that could not be read."""

    reason: str
    count: int
    ranges: list[list[int]] = Field(description="half-open byte ranges of what was received; the first ones")
    places: list[StretchBody] = Field(description="lines of the text with a character in their place")


class DocumentCoverageBody(_Body):
    """A document that a generation does not cover whole, or not as another one does."""

    source: str
    doc_id: str
    revision: int
    media_type: str
    ranges: int = Field(description="uncovered ranges in all; the first ones follow")
    uncovered: list[StretchBody]
    failure: ParseFailureBody | None
    only_here: list[StretchBody]
    only_there: list[StretchBody]


class SourceCoverageBody(_Body):
    """A source in numbers, of what the caller may see."""

    documents: int
    incomplete: int
    uncovered: int
    missing_ranges: int
    parse_failures: int


class CoverageBody(_Body):
    """What no chunk holds, and what could not be read."""

    generation: str
    against: str | None
    sources: dict[str, SourceCoverageBody]
    documents: list[DocumentCoverageBody]
    more: int = Field(description="documents with something to tell beyond the limit")
    moved: int = Field(description="documents that changed meanwhile")


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
