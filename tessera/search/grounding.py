"""Quotes checked against the chunks of one snapshot, and against their documents where those have moved."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from tessera.assembly.grounding import (
    HELD,
    UNKNOWN,
    Citation,
    Current,
    Judgement,
    Reason,
    Verdict,
    has_evidence,
    judge,
    place,
)
from tessera.documents.identity import ChunkUid, parse_uid
from tessera.errors import QueryError, StaleSnapshotError
from tessera.search.answer import hit_of
from tessera.search.control import Control
from tessera.search.lines import line_of, line_within
from tessera.search.part import is_visible
from tessera.search.snapshot import Found, Snapshot
from tessera.search.stored import Stored, document_text, stored_document
from tessera.search.texts import TextReader
from tessera.store.base import ShardStore

MAX_QUOTES: Final = 100
MAX_QUOTE_CHARACTERS: Final = 10_000
"""Bounds of one request: each quote costs a chunk, or a document, that is read and looked through."""

MAX_LOOKED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of documents that have moved which one request looks through, two of the largest: a hundred of them
would be gigabytes."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A quote and the chunk it is cited from, by uid.

    ``content_digest`` is the document's, as it was answered with the chunk; ``score`` is the hit's, as the
    caller was told. Both may be left out.
    """

    uid: str
    quote: str
    content_digest: str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Grounded:
    """What has become of a quote; reasons are told at :class:`~tessera.assembly.grounding.Judgement`.

    ``revision`` and ``content_digest`` are the document's now. ``start`` to ``end`` (code points of the
    document, half-open) is where it holds the quote now, lines 1-based and inclusive: within the cited chunk
    where supported, first in the text where stale. ``stands`` is whether it does; None where it was not
    looked for.
    """

    uid: str
    verdict: Verdict
    reason: Reason
    revision: int | None = None
    content_digest: str | None = None
    stands: bool | None = None
    start: int | None = None
    end: int | None = None
    start_line: int | None = None
    end_line: int | None = None


@dataclass(frozen=True, slots=True)
class GroundingAnswer:
    """All quotes in order, and whether there is evidence: one supported quote that reaches the floor."""

    release: str
    generation: str
    as_of: dict[str, int]
    took_ms: float
    quotes: list[Grounded]
    evidence: bool
    stale_s: float | None = None

    def to_value(self) -> dict[str, Any]:
        """The fields of ``/api/ground``: ``stale_s`` only where the answer is stale."""
        value: dict[str, Any] = {
            "release": self.release,
            "generation": self.generation,
            "as_of": self.as_of,
            "took_ms": self.took_ms,
            "evidence": self.evidence,
            "quotes": self.quotes,
        }
        return value if self.stale_s is None else value | {"stale_s": self.stale_s}


class Sources(NamedTuple):
    """Where it is read what a snapshot does not hold."""

    store: ShardStore
    control: Control
    texts: TextReader


def check_quotes(quotes: Sequence[Quote], floor: float | None) -> None:
    """Raise :class:`~tessera.errors.QueryError` for what is out of bounds. Uids may be anything at all."""
    if not 1 <= len(quotes) <= MAX_QUOTES:
        raise QueryError(f"give between 1 and {MAX_QUOTES} quotes, not {len(quotes)}")
    for number, each in enumerate(quotes):
        if not 1 <= len(each.quote) <= MAX_QUOTE_CHARACTERS:
            bounds = f"between 1 and {MAX_QUOTE_CHARACTERS:,} characters"
            raise QueryError(f"quote {number}: give {bounds}, not {len(each.quote):,}")
        if not each.quote.strip():
            raise QueryError(f"quote {number}: is blank: give the words that are cited")
        if each.score is not None and not math.isfinite(each.score):
            raise QueryError(f"quote {number}: its score is {each.score}, which is no number")
    if floor is not None and not (math.isfinite(floor) and floor >= 0):
        raise QueryError(f"floor must be a score of 0 or more, got {floor}")


def reached(grounded: Iterable[Grounded], quotes: Iterable[Quote], floor: float | None) -> bool:
    """Whether a supported quote scores the floor or more."""
    judged = [Judgement(each.verdict, each.reason) for each in grounded]
    return has_evidence(zip(judged, [each.score for each in quotes], strict=True), floor)


async def ground(
    quotes: Sequence[Quote],
    snapshot: Snapshot,
    policy_id: str,
    principals: frozenset[str] | None,
    sources: Sources,
) -> list[Grounded]:
    """What has become of the quotes, in order, in a snapshot of a generation cut by ``policy_id``.

    Raises :class:`~tessera.errors.StaleSnapshotError` where a text is gone: ask a newer snapshot.
    """
    cited = [parsed_uid(each.uid) for each in quotes]
    chunks = {
        number: found
        for number, uid in enumerate(cited)
        if uid is not None and (found := _current(uid, snapshot, policy_id, principals)) is not None
    }
    texts = await sources.texts.texts(list(chunks.values()))
    grounded: dict[int, Grounded] = {}
    for (number, found), text in zip(chunks.items(), texts, strict=True):
        result = _in_chunk(quotes[number], found, text, policy_id)
        if result is not None:
            grounded[number] = result
    moved = {number: uid for number, uid in enumerate(cited) if uid is not None and number not in grounded}
    grounded |= await _Moved(quotes, policy_id, principals, sources).ground(moved)
    return [grounded.get(number, _grounded(each, UNKNOWN)) for number, each in enumerate(quotes)]


def parsed_uid(uid: str) -> ChunkUid | None:
    """The uid's parts; None for what never was one, as for one that is not known."""
    try:
        return parse_uid(uid)
    except QueryError:
        return None


def _current(
    uid: ChunkUid, snapshot: Snapshot, policy_id: str, principals: frozenset[str] | None
) -> Found | None:
    if uid.policy_id != policy_id:
        return None
    found = snapshot.chunk(uid.source, uid.doc_id, uid.ordinal, principals)
    return found if found is not None and found.document.revision == uid.revision else None


def _grounded(quote: Quote, judgement: Judgement) -> Grounded:
    return Grounded(quote.uid, judgement.verdict, judgement.reason)


def _in_chunk(quote: Quote, found: Found, text: str, policy_id: str) -> Grounded | None:
    """The quote in a chunk that is current; None where its document is not the one that was cited."""
    hit = hit_of(found, text, policy_id)
    citation = Citation(hit.revision, quote.content_digest, known_policy=True, served_policy=True)
    judgement = judge(quote.quote, citation, Current(hit.revision, hit.content_digest, chunk=text))
    if judgement.verdict == "stale":
        return None
    result = replace(_grounded(quote, judgement), revision=hit.revision, content_digest=hit.content_digest)
    span = place(quote.quote, text) if judgement == HELD else None
    if span is None:
        return result
    start, end = hit.start + span[0], hit.start + span[1]
    lines = line_within(hit, start), line_within(hit, end - 1)
    return replace(result, stands=True, start=start, end=end, start_line=lines[0], end_line=lines[1])


class _Moved:
    """Quotes whose chunk is not current, or holds them no more."""

    def __init__(
        self,
        quotes: Sequence[Quote],
        policy_id: str,
        principals: frozenset[str] | None,
        sources: Sources,
    ) -> None:
        self._quotes = quotes
        self._policy_id = policy_id
        self._principals = principals
        self._sources = sources
        self._left_bytes = MAX_LOOKED_BYTES

    async def ground(self, cited: Mapping[int, ChunkUid]) -> dict[int, Grounded]:
        """What has become of them, by number; those that nothing is known of are left out."""
        if not cited:
            return {}
        registry = await self._sources.control.registry()
        policies = {each.contract.policy_id for each in registry.generations.values()}
        by_document: dict[tuple[str, str], list[int]] = {}
        for number, uid in cited.items():
            by_document.setdefault((uid.source, uid.doc_id), []).append(number)
        grounded: dict[int, Grounded] = {}
        for (source, doc_id), numbers in by_document.items():
            stored = await stored_document(self._sources.store, source, doc_id)
            if stored is not None and is_visible(stored.record.access, self._principals):
                of_document = {number: cited[number] for number in numbers}
                grounded |= await self._of_document(of_document, stored, policies)
        return grounded

    async def _of_document(
        self, cited: Mapping[int, ChunkUid], stored: Stored, policies: set[str]
    ) -> dict[int, Grounded]:
        record = stored.record
        current = Current(record.revision, record.content_digest, record.deleted)
        grounded = {}
        for number, uid in cited.items():
            digest = self._quotes[number].content_digest
            known, served = uid.policy_id in policies, uid.policy_id == self._policy_id
            judgement = judge(
                self._quotes[number].quote, Citation(uid.revision, digest, known, served), current
            )
            if judgement != UNKNOWN:
                grounded[number] = replace(
                    _grounded(self._quotes[number], judgement),
                    revision=record.revision,
                    content_digest=record.content_digest or None,
                )
        if grounded and not record.deleted:
            return await self._placed(grounded, stored)
        return grounded

    async def _placed(self, grounded: Mapping[int, Grounded], stored: Stored) -> dict[int, Grounded]:
        """With where the quotes stand in the current text, as long as there may be looked."""
        self._left_bytes -= stored.record.size_bytes
        if self._left_bytes < 0:
            return dict(grounded)
        text = await document_text(self._sources.store, stored)
        if text is None:
            raise StaleSnapshotError("a document has just changed: ask again")
        found = {}
        for number, each in grounded.items():
            span = await asyncio.to_thread(place, self._quotes[number].quote, text)
            if span is None:
                found[number] = replace(each, stands=False)
                continue
            first, last = (line_of(text, offset, stored.record.is_log) for offset in (span[0], span[1] - 1))
            found[number] = replace(
                each, stands=True, start=span[0], end=span[1], start_line=first, end_line=last
            )
        return found
