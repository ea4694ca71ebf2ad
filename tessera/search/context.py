"""Contexts: what a release's assembly makes of the hits of one snapshot, and where it was taken from."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from tessera.assembly.assemble import Others, assemble
from tessera.assembly.assembly import Assembly
from tessera.assembly.passage import MAX_BLANK, Passage, Piece
from tessera.documents.record import Gap
from tessera.errors import QueryError
from tessera.events.topics import LOGS
from tessera.index.segment import DocumentEntry
from tessera.policies.words import word_starts
from tessera.search.answer import Hit, hit_of
from tessera.search.leads import leads_of
from tessera.search.lines import line_within
from tessera.search.snapshot import Found, Snapshot
from tessera.search.texts import Stretch, TextReader
from tessera.store.base import ShardId

MAX_BUDGET: Final = 100_000
"""Tokens of a context. More than any reader takes; without a bound one request could ask for the corpus."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a context is asked for: at most ``budget`` tokens (``words@1``) that answer ``query``.

    ``k`` is how many hits are looked at, at most as many as the assembly does; None leaves it to that. Hits
    that score less than ``floor`` are none.
    """

    query: str
    budget: int
    k: int | None = None
    floor: float = 0.0

    def check(self) -> None:
        """Raise :class:`~tessera.errors.QueryError` for a budget or a floor outside its bounds."""
        if isinstance(self.budget, bool) or not 1 <= self.budget <= MAX_BUDGET:
            raise QueryError(f"budget must be between 1 and {MAX_BUDGET:,} tokens, got {self.budget}")
        if not (math.isfinite(self.floor) and self.floor >= 0):
            raise QueryError(f"floor must be a score of 0 or more, got {self.floor}")
        if self.k == 0:
            raise QueryError("k must be 1 or more, got 0")


@dataclass(frozen=True, slots=True)
class ContextPiece:
    """A part of a context: ``text`` is the document's from code point ``start`` to before ``end``, verbatim.

    Lines are 1-based and inclusive. ``uids`` are the chunks it was taken from, best first, ``score`` the best
    one's, ``headings`` those above its beginning.
    """

    source: str
    doc_id: str
    revision: int
    content_digest: str
    start: int
    end: int
    start_line: int
    end_line: int
    headings: tuple[str, ...]
    text: str
    uids: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Assembled:
    """Pieces in the order of reading, ``used`` of ``budget`` tokens, made of ``hits`` hits.

    ``left_out`` are the uids of hits of which nothing went in, best first. ``evidence`` is False where no hit
    reached the floor.
    """

    pieces: tuple[ContextPiece, ...]
    budget: int
    used: int
    hits: int
    left_out: tuple[str, ...]

    @property
    def evidence(self) -> bool:
        """Whether anything was found that a context could be made of."""
        return self.hits > 0


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """A context, the release it was made by, and as of when; see :class:`~tessera.search.answer.Answer`."""

    release: str
    generation: str
    assembly: str
    as_of: dict[str, int]
    took_ms: float
    assembled: Assembled
    stale_s: float | None = None

    def to_value(self) -> dict[str, Any]:
        """The fields of ``/api/context``: ``stale_s`` only where the answer is stale."""
        made = self.assembled
        value: dict[str, Any] = {
            "release": self.release,
            "generation": self.generation,
            "assembly": self.assembly,
            "as_of": self.as_of,
            "took_ms": self.took_ms,
            "budget": made.budget,
            "used": made.used,
            "utilization": made.used / made.budget,
            "hits": made.hits,
            "evidence": made.evidence,
            "pieces": made.pieces,
            "left_out": made.left_out,
        }
        return value if self.stale_s is None else value | {"stale_s": self.stale_s}


async def context_of(
    asked: Asked,
    assembly: Assembly,
    found: Sequence[Found],
    snapshot: Snapshot,
    policy_id: str,
    texts: TextReader,
) -> Assembled:
    """The context made of chunks that were found in a snapshot, best first.

    Raises :class:`~tessera.errors.StaleSnapshotError` where a text is gone: find again in a newer snapshot.
    """
    found = [each for each in found if each.score >= asked.floor]
    leads = leads_of(found, snapshot) if assembly.parents else {}
    seen = {each.place for each in found}
    more = {each.place: each for each in chain.from_iterable(leads.values()) if each.place not in seen}
    held = [*found, *more.values()]
    read = await texts.texts(held)
    hits = [hit_of(each, text, policy_id) for each, text in zip(held, read, strict=True)]
    blanks = await _blanks(held, texts)
    others = _others(hits, snapshot) if assembly.name == "sentences" else {}
    numbers = {each.place: number for number, each in enumerate(held)}
    leading = {number: [numbers[lead.place] for lead in found] for number, found in leads.items()}
    material = _Material(hits, len(found), blanks, others, leading)
    return await asyncio.to_thread(_assembled, asked.budget, assembly, material)


class _Material(NamedTuple):
    """The first ``found`` hits are those that were found, best first; the rest are what leads their sections.

    ``blanks`` and ``leads`` are by the hits' numbers, the leads themselves numbers too.
    """

    hits: Sequence[Hit]
    found: int
    blanks: Mapping[int, str]
    others: Others
    leads: Mapping[int, Sequence[int]]


def tokens(text: str) -> int:
    """How many tokens of ``words@1`` a text has."""
    return len(word_starts(text))


def _assembled(budget: int, assembly: Assembly, material: _Material) -> Assembled:
    passages = [
        Passage(_key(hit), hit.uid, hit.start, hit.end, hit.score, hit.text, material.blanks.get(number, ""))
        for number, hit in enumerate(material.hits)
    ]
    leads = {
        passages[number].uid: [passages[lead] for lead in leading]
        for number, leading in material.leads.items()
    }
    found = passages[: material.found]
    context = assemble(assembly, found, budget, tokens, material.others, leads)
    by_uid = {hit.uid: hit for hit in material.hits}
    pieces = tuple(_placed(piece, [by_uid[uid] for uid in piece.uids]) for piece in context.pieces)
    return Assembled(pieces, budget, context.used, material.found, context.left_out)


async def _blanks(found: Sequence[Found], texts: TextReader) -> dict[int, str]:
    """The blank space between chunks that are neighbours in their document, by the number of the first.

    Chunks with something between them are no neighbours, nor are those too far apart, nor those of a log
    between which lines are missing.
    """
    pairs = [
        (first, before, after)
        for first, before, after in _pairs(found)
        if 0 < after["start_byte"] - before["end_byte"] <= MAX_BLANK
    ]
    stretches = [
        Stretch(
            found[first].shard,
            found[first].document,
            before["end_byte"],
            after["start_byte"],
            after["start"] - before["end"],
        )
        for first, before, after in pairs
    ]
    blanks, logs = {}, []
    for (first, before, after), text in zip(pairs, await texts.stretches(stretches), strict=True):
        if not text.strip(" \t\r\n"):
            blanks[first] = text
            if found[first].shard.topic == LOGS and text.count("\n") > 1:
                logs.append((first, before["end_line"], after["start_line"]))
    for first in await _over_missing_lines(found, logs, texts):
        del blanks[first]
    return blanks


async def _over_missing_lines(
    found: Sequence[Found], logs: Sequence[tuple[int, int, int]], texts: TextReader
) -> list[int]:
    """Those of the chunks, by number, last line and the next one's first, between which lines are missing.

    A log's missing lines stand as empty ones: a piece over them would pass for all there was.
    """
    by_shard: dict[ShardId, dict[str, DocumentEntry]] = defaultdict(dict)
    for first, *_ in logs:
        by_shard[found[first].shard][found[first].document.key] = found[first].document
    gaps: dict[str, tuple[Gap, ...] | None] = {}
    for shard, documents in by_shard.items():
        gaps |= await texts.missing_lines(shard, list(documents.values()))
    over = []
    for first, last_line, next_line in logs:
        known = gaps[found[first].document.key]
        if known is None or any(last_line < lines[0] and lines[1] < next_line for lines in known):
            over.append(first)
    return over


def _pairs(found: Sequence[Found]) -> Iterable[tuple[int, Mapping[str, int], Mapping[str, int]]]:
    """Per document, in its order: number and columns of the chunk that reaches furthest, and the next's."""
    documents: dict[str, list[tuple[int, dict[str, int]]]] = defaultdict(list)
    for number, each in enumerate(found):
        documents[each.document.key].append((number, each.values()))
    for chunks in documents.values():
        chunks.sort(key=lambda chunk: chunk[1]["start"])
        furthest = chunks[0]
        for chunk in chunks[1:]:
            if chunk[1]["start"] > furthest[1]["end"]:
                yield furthest[0], furthest[1], chunk[1]
            furthest = max(furthest, chunk, key=lambda each: each[1]["end"])


def _others(hits: Sequence[Hit], snapshot: Snapshot) -> Others:
    """Spans of all chunks that share something with a hit: only these can hold a sentence of it.

    A log may have a hundred thousand chunks, and each would be compared with each sentence.
    """
    documents: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        documents[_key(hit)].append(hit)
    spans = {}
    for key, held in documents.items():
        rows = snapshot.spans(held[0].source, held[0].doc_id)
        near = np.zeros(len(rows), np.bool_)
        for hit in held:
            near |= (rows[:, 0] < hit.end) & (rows[:, 1] > hit.start)
        spans[key] = [(start, end) for start, end in rows[near].tolist()]
    return spans


def _placed(piece: Piece, hits: Sequence[Hit]) -> ContextPiece:
    """The piece with what is known of its document, from the hits that it was taken from."""
    first = _holder(hits, piece.start)
    return ContextPiece(
        source=first.source,
        doc_id=first.doc_id,
        revision=first.revision,
        content_digest=first.content_digest,
        start=piece.start,
        end=piece.end,
        start_line=line_within(first, piece.start),
        end_line=line_within(_holder(hits, piece.end - 1), piece.end - 1),
        headings=first.headings,
        text=piece.text,
        uids=piece.uids,
        score=piece.score,
    )


def _holder(hits: Sequence[Hit], offset: int) -> Hit:
    """The hit that holds the code point at ``offset``; of several, the one that begins last."""
    return max((hit for hit in hits if hit.start <= offset < hit.end), key=lambda hit: hit.start)


def _key(hit: Hit) -> str:
    return f"{hit.source}/{hit.doc_id}"
