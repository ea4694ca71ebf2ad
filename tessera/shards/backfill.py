"""Backfill: writing documents that are there already into a generation that a shard has adopted.

Each slice reads some records and their stored texts, cuts them by the generation's policy and commits one
segment with the records, marked as written. So the marks in the records are the cursor: a kill between any
two steps loses at most one slice, and a document that a live change has written meanwhile is passed over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tessera.documents.draft import Draft
from tessera.documents.log import LogText
from tessera.documents.record import DocumentRecord, decoded_records
from tessera.documents.text import block_ids, decompress
from tessera.errors import CorruptionError
from tessera.events.catalog import SourceCatalog
from tessera.index.builder import build_segment
from tessera.index.codec import encode
from tessera.index.segment import ChunkEntry, DocumentEntry, segment_blob
from tessera.limits import Limits
from tessera.shards.building import CutFigures, LiveGeneration, document_entry, samples_of
from tessera.shards.counting import indexed_counts
from tessera.shards.cutting import cut_document
from tessera.shards.standings import moved
from tessera.store.base import Head, SegmentMeta, ShardId, ShardStore, Standing

SLICE_S = 0.025
"""What a slice aims to last: live batches wait for the one that is under way."""

LARGEST_SLICE = 256
"""Documents in a slice at most: beyond it, commits grow without becoming cheaper per document."""

SLICE_BYTES = 1024 * 1024
"""Bytes of text in a slice at most, one document always: 256 of 32 MiB would take the whole worker's memory,
and live batches would wait for minutes."""

LAG_BACKOFF = 200
"""Records of lag from which a backfill waits: live changes come first."""


@dataclass(slots=True)
class Backfill:
    """One generation's backfill in one shard.

    ``keys`` are still to be written, None until they are listed (``listed_at``, monotonic seconds). ``lost``
    are documents whose stored text cannot be read, and why.
    """

    generation: str
    keys: list[str] | None = None
    lost: dict[str, str] = field(default_factory=dict)
    listed_at: float = 0.0
    size: int = 16
    allowance: float = 0.0
    asked_at: float = field(default_factory=time.monotonic)

    def take(self, rate: float | None) -> list[str]:
        """The next slice's keys, as many as time and ``rate`` (documents a second) allow; maybe none."""
        keys = self.keys or []
        count = min(self.size, len(keys))
        if rate is not None:
            now = time.monotonic()
            self.allowance = min(self.allowance + (now - self.asked_at) * rate, max(1.0, rate))
            self.asked_at = now
            count = min(count, int(self.allowance))
            self.allowance -= count
        taken = keys[len(keys) - count :]
        del keys[len(keys) - count :]
        return taken

    def give_back(self, keys: Sequence[str]) -> None:
        """Take these keys next: their slice had no room for them."""
        assert self.keys is not None
        self.keys += keys
        self.allowance += len(keys)

    def measured(self, seconds: float, documents: int) -> None:
        """Fit the next slice to :data:`SLICE_S`."""
        if documents:
            fitting = int(documents * SLICE_S / max(seconds, 1e-4))
            self.size = max(1, min(LARGEST_SLICE, 2 * self.size, fitting))


@dataclass(frozen=True, slots=True)
class Slice:
    """What one slice writes. ``segment`` is None where no document has a chunk.

    ``lost`` are documents that cannot be written, and why; ``left`` those beyond :data:`SLICE_BYTES`;
    ``figures`` tell what was cut.
    """

    documents: dict[str, bytes]
    segment: SegmentMeta | None
    blob: bytes
    standing: Standing
    counters: dict[str, int]
    lost: dict[str, str]
    left: tuple[str, ...] = ()
    figures: CutFigures = field(default_factory=CutFigures)

    def staged(self, generation: str) -> dict[str, bytes]:
        """Blobs to stage and keep."""
        return {} if self.segment is None else {segment_blob(generation, self.segment.id): self.blob}


async def missing_keys(
    store: ShardStore, shard: ShardId, generation: str
) -> tuple[list[str], dict[str, str]]:
    """Keys of live documents that the generation does not hold, last first: slices take from the end.

    And those whose records cannot be read, with the reason: what they hold may be missing as well.
    """
    records, lost = decoded_records(await store.scan_documents(shard))
    found = [key for key, each in records if not each.deleted and generation not in each.indexed]
    return found[::-1], lost


async def build_slice(
    store: ShardStore,
    head: Head,
    generation: LiveGeneration,
    keys: Sequence[str],
    catalog: SourceCatalog,
    limits: Limits,
) -> Slice:
    """Read and cut the documents of one slice; those deleted or written meanwhile are passed over."""
    stored = zip(keys, await store.documents(head.shard, keys), strict=True)
    records, lost = decoded_records((key, data) for key, data in stored if data is not None)
    held = [(key, each) for key, each in records if not each.deleted and generation.name not in each.indexed]
    drafts: list[Draft] = []
    size_bytes = 0
    left: list[str] = []
    for key, record in held:
        size_bytes += record.size_bytes
        if drafts and size_bytes > SLICE_BYTES:
            left.append(key)
            continue
        try:
            text = await _read_text(store, head.shard, key, record)
        except CorruptionError as error:
            lost[key] = str(error)
        else:
            drafts.append(_draft(key, record, text, catalog, limits))
    piece = await asyncio.to_thread(_cut_slice, drafts, lost, head, generation)
    return replace(piece, left=tuple(left))


async def _read_text(store: ShardStore, shard: ShardId, key: str, record: DocumentRecord) -> bytes:
    ids = block_ids(record.text_id, record.size_bytes)
    blobs = await store.blobs(shard, ids)
    for blob_id, blob in zip(ids, blobs, strict=True):
        if blob is None:
            raise CorruptionError(
                f"blob {blob_id} of {key!r} in shard {shard} is gone: publish the document again"
            )
    return b"".join(decompress(blob, name) for blob, name in zip(blobs, ids, strict=True) if blob is not None)


def _draft(key: str, record: DocumentRecord, text: bytes, catalog: SourceCatalog, limits: Limits) -> Draft:
    source, _, doc_id = key.partition("/")
    draft = Draft(catalog[source], doc_id, record, limits)
    whole = LogText(text, True, record.lines, record.size_bytes, record.ends_with_newline, record.gaps)
    draft.hold_text(whole, begins_anew=False)
    return draft


def _cut_slice(
    drafts: Sequence[Draft], lost: dict[str, str], head: Head, generation: LiveGeneration
) -> Slice:
    standing = head.standings[generation.name]
    documents: dict[str, bytes] = {}
    counters: dict[str, int] = {}
    pieces: list[tuple[DocumentEntry, list[ChunkEntry]]] = []
    figures = CutFigures()
    for draft in drafts:
        record = draft.held
        assert record is not None
        try:
            cut = cut_document(draft, record, None, None, generation.policy)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - as for a live record: unforeseen, it belongs to its document
            lost[draft.key] = f"cutting it raised {type(error).__name__}: report it with the document"
            continue
        # Marks of generations given up go with the first backfill after them.
        indexed = {name: state for name, state in record.indexed.items() if name in head.live}
        written = replace(record, indexed={**indexed, generation.name: cut.state})
        documents[draft.key] = written.encode()
        standing = moved(standing, generation.name, draft.key, record, written)
        pieces.append((document_entry(draft, record, head.seq + 1), cut.chunks))
        figures.add(cut.chunks)
        figures.add_samples(draft.declaration.name, samples_of(draft, record), cut.chunks, 0)
        for what, amount in indexed_counts(cut.state).items():
            name = f"{what}:{generation.name}:{draft.declaration.name}"
            counters[name] = counters.get(name, 0) + amount
    chunks = sum(len(cut) for _, cut in pieces)
    if not chunks:
        return Slice(documents, None, b"", standing, counters, lost, figures=figures)
    blob = encode(build_segment(pieces, generation.analyzer))
    segment = SegmentMeta(f"b{head.seq + 1:x}-{head.fence:x}", 0, chunks, len(blob))
    return Slice(documents, segment, blob, standing, counters, lost, figures=figures)
