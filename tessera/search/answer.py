"""What a search answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tessera.documents.identity import chunk_id, chunk_uid
from tessera.search.snapshot import Found


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk, with the fields of ``/api/search``.

    ``text`` is the source's, verbatim: code points ``start`` to ``end``, half-open. Lines are 1-based and
    inclusive, tokens half-open. ``score`` is 0 where nothing was searched for.
    """

    id: str
    uid: str
    score: float
    source: str
    doc_id: str
    revision: int
    content_digest: str
    policy: str
    access: tuple[str, ...]
    start_token: int
    end_token: int
    start_line: int
    end_line: int
    start: int
    end: int
    headings: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits, best first, and what they were found in.

    ``as_of`` is the last applied offset per ``<topic>/<partition>``, -1 where nothing was applied.
    ``stale_s`` is None, or for how many seconds the release could not be read: another may be served by now.
    """

    release: str
    generation: str
    as_of: dict[str, int]
    took_ms: float
    hits: list[Hit]
    stale_s: float | None = None

    def to_value(self) -> dict[str, Any]:
        """The fields of ``/api/search``: ``stale_s`` only where the answer is stale."""
        value: dict[str, Any] = {
            "release": self.release,
            "generation": self.generation,
            "as_of": self.as_of,
            "took_ms": self.took_ms,
            "hits": self.hits,
        }
        return value if self.stale_s is None else value | {"stale_s": self.stale_s}


@dataclass(frozen=True, slots=True)
class SearchStats:
    """What a searcher holds of one generation. Bytes of strings are estimated."""

    generation: str
    documents: int
    chunks_live: int
    chunks_dead: int
    segments: int
    parts: int
    memory_bytes: int
    text_cache_bytes: int


def hit_of(found: Found, text: str, policy_id: str) -> Hit:
    """The hit for a chunk of a snapshot and its text."""
    entry, values = found.document, found.values()
    ordinal = values["ordinal"]
    return Hit(
        id=chunk_id(entry.doc_id, ordinal),
        uid=chunk_uid(entry.source, entry.doc_id, entry.revision, policy_id, ordinal),
        score=found.score,
        source=entry.source,
        doc_id=entry.doc_id,
        revision=entry.revision,
        content_digest=entry.content_digest,
        policy=policy_id,
        access=entry.access,
        start_token=values["start_token"],
        end_token=values["end_token"],
        start_line=values["start_line"],
        end_line=values["end_line"],
        start=values["start"],
        end=values["end"],
        headings=found.part.segment.headings[values["heading"]],
        text=text,
    )
