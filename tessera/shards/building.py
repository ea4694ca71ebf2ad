"""From loaded drafts and decoded records to the plan of one commit. Pure: no store, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from tessera.documents.draft import Draft
from tessera.documents.record import DocumentRecord
from tessera.documents.storage import HeldText, StoredText, store_text
from tessera.errors import EventError
from tessera.index.analyzer import Analyzer, RememberingAnalyzer
from tessera.index.builder import build_segment
from tessera.index.codec import encode
from tessera.index.segment import ChunkEntry, DocumentEntry, segment_blob
from tessera.policies import ChunkPolicy
from tessera.shards.counting import difference
from tessera.shards.cutting import cut_document
from tessera.shards.loading import Assembled, Loaded
from tessera.shards.records import Arrival, Poison
from tessera.shards.sampling import Span, count_whole, sample_spans
from tessera.shards.standings import moved
from tessera.store.base import Head, SegmentMeta, Standing, Tombstone


@dataclass(frozen=True, slots=True)
class LiveGeneration:
    """A generation that every commit of the shard writes."""

    name: str
    policy: ChunkPolicy
    analyzer: Analyzer


@dataclass(slots=True)
class GenerationPlan:
    """What a batch writes in one generation. ``blob`` is the encoded segment, None where no chunk is new."""

    segment: SegmentMeta | None = None
    blob: bytes | None = None
    tombstones: tuple[Tombstone, ...] = ()


@dataclass(slots=True)
class CutFigures:
    """What was cut for one generation: tokens of each new chunk, and those shared with the one before it.

    ``whole`` and ``split`` count by source the sampled spans that lie in one chunk, and those that do not.
    """

    tokens: list[int] = field(default_factory=list)
    overlaps: list[int] = field(default_factory=list)
    whole: Counter[str] = field(default_factory=Counter)
    split: Counter[str] = field(default_factory=Counter)

    def add(self, chunks: Sequence[ChunkEntry]) -> None:
        """Count the chunks of one document, in its order."""
        self.tokens += [chunk.end_token - chunk.start_token for chunk in chunks]
        self.overlaps += [max(0, before.end_token - chunk.start_token) for before, chunk in pairwise(chunks)]

    def merge(self, other: CutFigures) -> None:
        """Count what the other has as well."""
        self.tokens += other.tokens
        self.overlaps += other.overlaps
        self.whole.update(other.whole)
        self.split.update(other.split)

    def add_samples(
        self, source: str, spans: Sequence[Span], chunks: Sequence[ChunkEntry], base: int
    ) -> None:
        """Count sampled spans of a document whose text begins at byte ``base``."""
        whole, split = count_whole(spans, chunks, base)
        self.whole[source] += whole
        self.split[source] += split


class ParseFault(NamedTuple):
    """Content that could not be read as it stands: of which source, for which parser, and why."""

    source: str
    parser: str
    reason: str


@dataclass(slots=True)
class Plan:
    """Everything one commit writes besides offset and dead letters, and what is measured of it.

    ``cut`` has figures by generation; ``parse_faults`` counts documents.
    """

    documents: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, bytes | None] = field(default_factory=dict)
    generations: dict[str, GenerationPlan] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    expire: list[str] = field(default_factory=list)
    unlink: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    poison: list[Poison] = field(default_factory=list)
    standings: dict[str, Standing] = field(default_factory=dict)
    changes: int = 0
    stale: int = 0
    chunks_added: int = 0
    cut: dict[str, CutFigures] = field(default_factory=dict)
    parse_faults: Counter[ParseFault] = field(default_factory=Counter)


def apply_changes(arrivals: Sequence[Arrival], loaded: Loaded, plan: Plan) -> None:
    """Apply the changes to their drafts in order of arrival; what a draft refuses becomes poison."""
    for arrival in arrivals:
        try:
            applied = loaded.drafts[arrival.key].apply(arrival.change, arrival.stamp)
        except EventError as error:
            plan.poison.append(Poison.of(arrival.record, arrival.stamp, error))
            continue
        if applied:
            plan.changes += 1
        else:
            plan.stale += 1


def build_plan(
    plan: Plan, loaded: Loaded, head: Head, generations: Sequence[LiveGeneration], applied: int, now_ms: int
) -> None:
    """Store and cut every changed draft, and build one segment per live generation, into ``plan``.

    ``now_ms`` (Unix milliseconds) is when deleted documents begin to be remembered for the horizon.
    """
    held_texts = loaded.texts
    changed = [draft for _, draft in sorted(loaded.drafts.items()) if draft.changed]
    stored = {draft.key: store_text(draft, held_texts.get(draft.key)) for draft in changed}
    for text in stored.values():
        plan.blobs.update(text.blobs)
        plan.expire += text.replaced
        plan.unlink += text.gone
    records = {key: text.record for key, text in stored.items()}
    if len(generations) > 1:
        remembering = {each.analyzer.identity: RememberingAnalyzer(each.analyzer) for each in generations}
        generations = [replace(each, analyzer=remembering[each.analyzer.identity]) for each in generations]
    samples = {draft.key: samples_of(draft, records[draft.key]) for draft in changed}
    for generation in generations:
        _build_generation(plan, changed, stored, records, held_texts, samples, head, generation, applied)
    names = [generation.name for generation in generations]
    standings = dict(head.standings)
    if loaded.recount is not None:
        standings.update(loaded.recount.standings)
        plan.counters.update(loaded.recount.corrections)
    for draft in changed:
        record = records[draft.key]
        indexed = {name: record.indexed[name] for name in names if name in record.indexed}
        record = replace(record, indexed=indexed, changed_at_ms=now_ms)
        plan.documents[draft.key] = record.encode()
        plan.counters.update(difference(draft.declaration.name, draft.held, record, names))
        if record.undecodable_count > (draft.held.undecodable_count if draft.held is not None else 0):
            plan.parse_faults[ParseFault(draft.declaration.name, record.media_type, "not_utf8")] += 1
        for name in names:
            standings[name] = moved(standings[name], name, draft.key, draft.held, record)
    plan.standings = standings


def samples_of(draft: Draft, record: DocumentRecord) -> list[Span]:
    """Spans of the draft's text that are looked for in its chunks."""
    if draft.text is None:
        return []
    return sample_spans(draft.key, record.content_digest, draft.text.data(), is_log=record.is_log)


def plan_parts(plan: Plan, assembled: Assembled) -> None:
    """Keep the parts of unfinished events as blobs; drop those of finished ones."""
    for key, assembly in assembled.assemblies.items():
        if not assembly.changed:
            continue
        plan.parts[key] = assembly.encode()
        plan.unlink += [blob for blob in assembly.dropped if blob in assembled.stored_parts]
        for group in assembly.groups.values():
            for index, blob in group.stored.items():
                if blob not in assembled.stored_parts:
                    plan.blobs[blob] = group.loaded[index]


def _build_generation(
    plan: Plan,
    changed: Sequence[Draft],
    stored: Mapping[str, StoredText],
    records: dict[str, DocumentRecord],
    held_texts: Mapping[str, HeldText],
    samples: Mapping[str, Sequence[Span]],
    head: Head,
    generation: LiveGeneration,
    applied: int,
) -> None:
    tombstones: list[Tombstone] = []
    pieces: list[tuple[DocumentEntry, list[ChunkEntry]]] = []
    for draft in changed:
        record = records[draft.key]
        state = draft.held.indexed.get(generation.name) if draft.held is not None else None
        if draft.text is None:
            if draft.history_lost or (state is not None and state.chunks):
                tombstones.append(Tombstone(draft.key, 0))
            continue
        held = held_texts.get(draft.key)
        cut = cut_document(draft, record, held, state, generation.policy)
        figures = plan.cut.setdefault(generation.name, CutFigures())
        figures.add(cut.chunks)
        base = held.start_byte if held is not None and not draft.fresh else 0
        figures.add_samples(draft.declaration.name, samples[draft.key], cut.chunks, base)
        if cut.dead or draft.history_lost:
            tombstones.append(Tombstone(draft.key, cut.from_ordinal))
        records[draft.key] = replace(record, indexed={**record.indexed, generation.name: cut.state})
        pieces.append((document_entry(draft, stored[draft.key].record, head.seq + 1), cut.chunks))
    plan.generations[generation.name] = _segment_plan(plan, pieces, tombstones, head, generation, applied)


def document_entry(draft: Draft, record: DocumentRecord, seq: int) -> DocumentEntry:
    """What the index keeps of a document beside its chunks."""
    return DocumentEntry(
        draft.declaration.name,
        draft.doc_id,
        record.revision,
        record.content_digest,
        record.access,
        record.media_type,
        record.text_id,
        record.size_bytes,
        seq,
    )


def _segment_plan(
    plan: Plan,
    pieces: list[tuple[DocumentEntry, list[ChunkEntry]]],
    tombstones: list[Tombstone],
    head: Head,
    generation: LiveGeneration,
    applied: int,
) -> GenerationPlan:
    chunks = sum(len(entries) for _, entries in pieces)
    if not chunks:
        return GenerationPlan(tombstones=tuple(tombstones))
    segment_id = f"{head.seq + 1:x}-{head.fence:x}-{applied:x}"
    blob = encode(build_segment(pieces, generation.analyzer))
    plan.blobs[segment_blob(generation.name, segment_id)] = blob
    plan.chunks_added += chunks
    meta = SegmentMeta(segment_id, watermark=0, chunks=chunks, size_bytes=len(blob))
    return GenerationPlan(meta, blob, tuple(tombstones))
