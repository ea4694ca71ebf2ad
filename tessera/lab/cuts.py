"""What a policy makes of all documents: chunks as the index of a generation would hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tessera.documents.identity import document_stem
from tessera.index.segment import ChunkEntry
from tessera.ingestion import Resume
from tessera.lab.corpus import Corpus, LabDocument
from tessera.lab.ranges import Span
from tessera.policies import ChunkPolicy
from tessera.policies.words import word_count
from tessera.shards.cutting import entries


@dataclass(frozen=True, slots=True)
class LabChunk:
    """A chunk of document ``key``; tokens are of ``words@1``, ``indexed_tokens`` with its parent context."""

    key: str
    entry: ChunkEntry
    tokens: int
    indexed_tokens: int

    @property
    def span(self) -> Span:
        """Code points, half-open."""
        return self.entry.start, self.entry.end

    def holds(self, key: str, start: int, end: int) -> bool:
        """Whether the span lies whole in it."""
        return self.key == key and self.entry.start <= start and end <= self.entry.end


@dataclass(frozen=True)
class PolicyCut:
    """A policy's chunks in the order of (source, doc_id, ordinal): a chunk's number is its place in it."""

    policy: ChunkPolicy
    chunks: Sequence[LabChunk]

    @cached_property
    def by_document(self) -> Mapping[str, list[LabChunk]]:
        """Each document's chunks in its order."""
        found: dict[str, list[LabChunk]] = {}
        for chunk in self.chunks:
            found.setdefault(chunk.key, []).append(chunk)
        return found

    @cached_property
    def spans(self) -> Mapping[str, list[Span]]:
        """Each document's spans of chunks."""
        return {key: [chunk.span for chunk in chunks] for key, chunks in self.by_document.items()}

    def represents(self, key: str, start: int, end: int) -> bool:
        """Whether some chunk holds the span whole."""
        return any(chunk.holds(key, start, end) for chunk in self.by_document.get(key, ()))


def cut_corpus(policy: ChunkPolicy, corpus: Corpus) -> PolicyCut:
    """Cut every document by the policy."""
    return PolicyCut(policy, [chunk for document in corpus.values() for chunk in _cut(policy, document)])


def _cut(policy: ChunkPolicy, document: LabDocument) -> list[LabChunk]:
    begin = Resume.begin()
    stem = document_stem(document.doc_id)
    cut = policy.cut(document.text, stem, document.media_type, begin, is_log=document.is_log)
    return [
        LabChunk(
            document.key,
            entry,
            word_count(document.text[entry.start : entry.end]),
            word_count(entry.indexed_text),
        )
        for entry in entries(cut.chunks, document.text, begin, 0)
    ]
