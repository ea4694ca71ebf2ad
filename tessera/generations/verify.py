"""Verifying a candidate generation: the same documents as the serving one, held as its policy cuts them.

Every shard: both complete, with equal fingerprints, in one reading of its head; then each document's record
against the chunks in the segments of both. A sample of documents: stored text against digest, and cut anew
against spans, bytes, headings and lengths. What was written to meanwhile is passed over and counted: a
document is judged only where its record read the same before its chunks were read and after.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np

from tessera.documents.digests import document_digest, log_digest
from tessera.documents.record import DocumentRecord
from tessera.documents.text import block_ids, decompress
from tessera.errors import CorruptionError, RefusedError
from tessera.generations.differences import (
    DocumentDifference,
    cut_fault,
    document_difference,
    split_and_joined,
)
from tessera.generations.inventory import HeldChunks, read_inventory
from tessera.generations.report import (
    GenerationCounts,
    ShardParity,
    SourceComparison,
    VerifyReport,
    shard_parity,
)
from tessera.shards.building import LiveGeneration
from tessera.shards.cutting import cut_whole
from tessera.shards.fingerprint import add, contribution
from tessera.shards.generations import load_generations
from tessera.store.base import NO_FINGERPRINT, Head, ShardId, ShardStore

FAULTS_SHOWN: Final = 10
"""Faults of one kind that are told in full: one lost segment must not fill the registry and the terminal."""

DIFFERING_SHOWN: Final = 25
"""Documents looked at beside the sample, since one generation leaves more of them uncovered."""


async def verify(
    store: ShardStore,
    shards: Sequence[ShardId],
    candidate: str,
    baseline: str,
    *,
    sample: int = 50,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> VerifyReport:
    """Compare ``candidate`` with ``baseline`` in these shards; changes nothing.

    ``sample`` documents are cut anew, always the same for a ``seed``. ``on_progress`` is told steps done and
    steps in all: shards, then documents. Raises :class:`~tessera.errors.RefusedError` where both are one, and
    :class:`~tessera.errors.CorruptionError` where the registry knows one of them not.
    """
    if candidate == baseline:
        raise RefusedError(
            "same_generation", f"{candidate} cannot be verified against itself", "name the serving generation"
        )
    generations = await load_generations(store, [candidate, baseline])
    survey = _Survey(store, generations, sample, seed)
    steps = len(shards) + sample
    for done, shard in enumerate(shards):
        on_progress(done, steps)
        await survey.shard(shard)
    chosen = survey.chosen()
    for done, document in enumerate(chosen, len(shards)):
        on_progress(min(done, steps), steps)
        await survey.body(document)
    on_progress(steps, steps)
    return survey.report()


class _Document(NamedTuple):
    """A live document that stood still while its chunks were read; ``rank`` orders samples."""

    rank: bytes
    shard: ShardId
    key: str
    stored: bytes
    record: DocumentRecord
    held: Mapping[str, HeldChunks | None]


@dataclass(slots=True)
class _Faults:
    """Faults by kind, the first few of each told in full."""

    told: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, message: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= FAULTS_SHOWN:
            self.told.append(message)

    def reasons(self) -> tuple[str, ...]:
        more = [
            f"{count - FAULTS_SHOWN} more documents {kind}"
            for kind, count in sorted(self.counts.items())
            if count > FAULTS_SHOWN
        ]
        return (*self.told, *more)


class _Survey:
    """What is found while shards, then sampled documents, are looked at."""

    def __init__(
        self, store: ShardStore, generations: Sequence[LiveGeneration], sample: int, seed: int
    ) -> None:
        self._store = store
        self._generations = generations
        self._candidate, self._baseline = (generation.name for generation in generations)
        self._sample, self._seed = sample, seed
        self._parities: list[ShardParity] = []
        self._faults = _Faults()
        self._totals: dict[str, Counter[str]] = {}
        self._picked: list[_Document] = []
        self._differing: list[_Document] = []
        self._live = self._sampled = self._moved = 0
        self._differences: list[DocumentDifference] = []

    async def shard(self, shard: ShardId) -> None:
        """Check the shard's head, and where that holds its documents against its segments."""
        head = await self._store.head(shard)
        parity = shard_parity(shard, head, self._candidate, self._baseline)
        self._parities.append(parity)
        if head is None or parity.faults:
            return
        try:
            await self._documents(shard, head)
        except CorruptionError as error:
            self._faults.add("cannot be read", str(error))

    async def _documents(self, shard: ShardId, head: Head) -> None:
        names = (self._candidate, self._baseline)
        before = dict(await self._store.scan_documents(shard))
        held = {name: await read_inventory(self._store, shard, name) for name in names}
        after = dict(await self._store.scan_documents(shard))
        still: list[_Document] = []
        for key in sorted(before.keys() | after.keys() | held[names[0]].keys() | held[names[1]].keys()):
            stored = after.get(key)
            record = None if stored is None else DocumentRecord.decode(stored, key)
            live = record is not None and not record.deleted
            if live and record is not None:
                self._count(key, record)
            chunks = {name: held[name].get(key) for name in names}
            if before.get(key) != stored:
                self._moved += 1
            elif not live or record is None or stored is None:
                self._require_none(shard, key, chunks)
            elif self._is_sound(shard, key, record, chunks):
                still.append(_Document(self._rank(key), shard, key, stored, record, chunks))
        self._pick(still)
        if before == after:
            self._require_fingerprint(shard, head, await self._store.head(shard), after)

    def _require_none(self, shard: ShardId, key: str, held: Mapping[str, HeldChunks | None]) -> None:
        for name, chunks in held.items():
            if chunks is not None:
                self._faults.add(
                    "are deleted and still have chunks",
                    f"shard {shard}: {name} holds {len(chunks.rows)} chunks of {key!r}, which is not held",
                )

    def _is_sound(
        self, shard: ShardId, key: str, record: DocumentRecord, held: Mapping[str, HeldChunks | None]
    ) -> bool:
        """Whether both generations hold just the chunks that the document's record says."""
        faults = [(name, _record_fault(record, name, chunks)) for name, chunks in held.items()]
        for name, fault in faults:
            if fault:
                self._faults.add(
                    "have other chunks than their records say", f"shard {shard}: {key!r} in {name}: {fault}"
                )
        return not any(fault for _, fault in faults)

    def _require_fingerprint(
        self, shard: ShardId, head: Head, head_after: Head | None, stored: Mapping[str, bytes]
    ) -> None:
        """Sum the documents anew, where nothing was committed meanwhile."""
        if head_after is None or head_after.seq != head.seq:
            return
        records = ((key, DocumentRecord.decode(data, key)) for key, data in stored.items())
        total = sum(
            contribution(key, record.revision, record.content_digest)
            for key, record in records
            if not record.deleted
        )
        kept, found = head.standings[self._baseline].fingerprint, add(NO_FINGERPRINT, total)
        if kept != found:
            self._faults.add(
                "are not in the fingerprint",
                f"shard {shard}: its fingerprint is {kept}, its documents give {found}; "
                "rebuild the generations",
            )

    def _count(self, key: str, record: DocumentRecord) -> None:
        totals = self._totals.setdefault(key.partition("/")[0], Counter())
        totals["documents"] += 1
        totals["parse_failures"] += record.undecodable_count
        for name in (self._candidate, self._baseline):
            state = record.indexed.get(name)
            if state is not None:
                totals[f"chunks:{name}"] += state.chunks
                totals[f"uncovered:{name}"] += state.uncovered

    def _pick(self, documents: Sequence[_Document]) -> None:
        """Keep the documents of lowest rank: a sample that no order of shards changes."""
        self._live += len(documents)
        for document in documents:
            split, joined = split_and_joined(document.held[self._baseline], document.held[self._candidate])
            totals = self._totals[document.key.partition("/")[0]]
            totals["split"] += len(split)
            totals["joined"] += len(joined)
        self._picked = _lowest(self._sample, [*self._picked, *documents])
        uneven = (document for document in documents if self._is_uneven(document.record))
        self._differing = _lowest(DIFFERING_SHOWN, [*self._differing, *uneven])

    def _is_uneven(self, record: DocumentRecord) -> bool:
        return record.indexed[self._baseline].uncovered != record.indexed[self._candidate].uncovered

    def _rank(self, key: str) -> bytes:
        return sha256(f"{self._seed}\0{key}".encode("utf-8", "surrogatepass")).digest()

    def chosen(self) -> list[_Document]:
        """The sample, and documents that one generation leaves uncovered more than the other."""
        picked = {(document.shard, document.key) for document in self._picked}
        return self._picked + [d for d in self._differing if (d.shard, d.key) not in picked]

    async def body(self, document: _Document) -> None:
        """Cut one document anew and compare; pass it over where its text went meanwhile."""
        try:
            data = await _read_text(self._store, document)
            if data is None:
                [stored] = await self._store.documents(document.shard, [document.key])
                if stored != document.stored:
                    self._moved += 1
                    return
                raise CorruptionError(
                    f"shard {document.shard}: blocks of the text of {document.key!r} are gone: "
                    "publish the document again"
                )
            faults = await asyncio.to_thread(self._body_faults, document, data)
        except CorruptionError as error:
            self._faults.add("have damaged texts", str(error))
            return
        self._sampled += 1
        for fault in faults:
            self._faults.add(
                "are not as their policy cuts them", f"shard {document.shard}: {document.key!r}{fault}"
            )
        if not faults:
            self._note_difference(document, data)

    def _body_faults(self, document: _Document, data: bytes) -> list[str]:
        record = document.record
        digest = log_digest(data) if record.is_log else document_digest(data)
        if digest != record.content_digest:
            return [f": its text has digest {digest}, not {record.content_digest}"]
        doc_id = document.key.partition("/")[2]
        faults = []
        for generation in self._generations:
            cut = cut_whole(doc_id, record, data, generation.policy)
            fault = cut_fault(document.held[generation.name], cut.chunks, data, generation.analyzer)
            if not fault and cut.state.uncovered != record.indexed[generation.name].uncovered:
                fault = f"it leaves {cut.state.uncovered} ranges uncovered, not what its record says"
            if fault:
                faults.append(f" in {generation.name}: {fault}")
        return faults

    def _note_difference(self, document: _Document, data: bytes) -> None:
        held = document.held
        found = document_difference(
            document.key,
            data.decode(),
            document.record.is_log,
            held[self._baseline],
            held[self._candidate],
        )
        if found.only_baseline or found.only_candidate or found.split or found.joined:
            self._differences.append(found)

    def report(self) -> VerifyReport:
        """The report on all that was looked at."""
        reasons = [fault for parity in self._parities for fault in parity.faults]
        reasons += self._faults.reasons()
        if self._live and self._sample and not self._sampled and not reasons:
            reasons.append("no sampled document stood still long enough to be checked; verify again")
        return VerifyReport(
            self._candidate,
            self._baseline,
            passed=not reasons,
            reasons=tuple(reasons),
            shards=tuple(self._parities),
            sources={name: self._source(totals) for name, totals in sorted(self._totals.items())},
            sampled=self._sampled,
            moved=self._moved,
            seed=self._seed,
            differences=tuple(self._differences),
        )

    def _source(self, totals: Counter[str]) -> SourceComparison:
        baseline, candidate = (
            GenerationCounts(totals[f"chunks:{name}"], totals[f"uncovered:{name}"])
            for name in (self._baseline, self._candidate)
        )
        return SourceComparison(
            totals["documents"],
            totals["parse_failures"],
            baseline,
            candidate,
            totals["split"],
            totals["joined"],
        )


def _record_fault(record: DocumentRecord, generation: str, held: HeldChunks | None) -> str:
    state = record.indexed.get(generation)
    if state is None:
        return "the generation does not hold it"
    ordinals = [] if held is None else held.column("ordinal").tolist()
    if ordinals != np.arange(state.chunks).tolist():
        return f"it has chunks numbered {ordinals[:FAULTS_SHOWN]}..., its record says 0 to {state.chunks - 1}"
    if held is None:
        return ""
    for name in ("revision", "content_digest", "access", "media_type", "text_id", "size_bytes"):
        ours, theirs = getattr(record, name), getattr(held.entry, name)
        if ours != theirs:
            return f"the index has {name} {theirs!r}, its record {ours!r}"
    return ""


async def _read_text(store: ShardStore, document: _Document) -> bytes | None:
    """The text's bytes; None where a block of it is gone."""
    ids = block_ids(document.record.text_id, document.record.size_bytes)
    blobs = await store.blobs(document.shard, ids)
    found = [(blob, blob_id) for blob, blob_id in zip(blobs, ids, strict=True) if blob is not None]
    if len(found) != len(ids):
        return None
    return b"".join(decompress(blob, blob_id) for blob, blob_id in found)


def _lowest(count: int, documents: Iterable[_Document]) -> list[_Document]:
    return nsmallest(count, documents, key=lambda document: document.rank)
