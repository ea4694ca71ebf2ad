"""Who ranks the chunks: Tessera's own search, or the package ``rank-bm25`` as a reference.

Both score by BM25 with the scorer's ``k1`` and ``b`` and Lucene's idf, on the analyzer's terms, with ties in
the order of (source, doc_id, ordinal): their figures may differ by the rounding of sums, and in no other way.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from tessera.errors import SettingsError
from tessera.index.analyzer import Analyzer
from tessera.index.builder import build_segment
from tessera.index.codec import encode
from tessera.index.segment import ChunkEntry, DocumentEntry
from tessera.lab.corpus import Corpus
from tessera.lab.cuts import PolicyCut
from tessera.lab.plan import RetrieverName
from tessera.releases import Scorer
from tessera.search.part import Origin, part_of
from tessera.search.scoring import query_terms
from tessera.search.snapshot import Snapshot
from tessera.store.base import ShardId

SCORER: Final = Scorer()
"""What a release has where nobody chose another."""

_LAB: Final = Origin(ShardId("lab", 0), "lab")


class Hit(NamedTuple):
    """A chunk by its number in the cut, and its score, above 0."""

    chunk: int
    score: float


class Retriever(Protocol):
    """Ranks the chunks of one cut."""

    def find(self, question: str, k: int) -> list[Hit]:
        """The best ``k``, best first. :class:`~tessera.errors.QueryError` for what cannot be asked."""


class TesseraRetriever:
    """The segment, the kernel and the snapshot that serve a release, in memory.

    ``stored_bytes`` is the size of the segment as the store would hold it: postings, terms and provenance.
    """

    def __init__(self, cut: PolicyCut, corpus: Corpus, analyzer: Analyzer) -> None:
        documents: list[tuple[DocumentEntry, list[ChunkEntry]]] = []
        for key, chunks in cut.by_document.items():
            held = corpus[key]
            entry = DocumentEntry(
                held.source, held.doc_id, 1, held.content_digest, ("*",), held.media_type, "", 0, 1
            )
            documents.append((entry, [chunk.entry for chunk in chunks]))
        segment = build_segment(documents, analyzer)
        self.stored_bytes = len(encode(segment))
        none_dead = np.zeros(segment.chunks, np.bool_)
        part = part_of([(segment, none_dead, [_LAB], np.zeros(segment.chunks, np.uint32))])
        self._snapshot = Snapshot((part,), {})
        self._analyzer = analyzer

    def find(self, question: str, k: int) -> list[Hit]:
        """As :class:`Retriever` says; a segment numbers its chunks as the cut does."""
        counts = query_terms(question, k, self._analyzer)
        found = self._snapshot.search(counts, k, SCORER, None, None)
        return [Hit(hit.chunk, hit.score) for hit in found]


class RankBm25Retriever:
    """``BM25Okapi`` of rank-bm25, with Lucene's idf in place of its own, which can be negative."""

    def __init__(self, cut: PolicyCut, analyzer: Analyzer) -> None:
        terms = [analyzer.terms(chunk.entry.indexed_text) for chunk in cut.chunks]
        self._ranked = _okapi()(terms, k1=SCORER.k1, b=SCORER.b)
        self._analyzer = analyzer

    def find(self, question: str, k: int) -> list[Hit]:
        """As :class:`Retriever` says."""
        counts = query_terms(question, k, self._analyzer)
        scores = self._ranked.get_scores(list(counts.elements()))
        best = np.argsort(-scores, kind="stable")[:k]
        return [Hit(int(chunk), float(scores[chunk])) for chunk in best if scores[chunk] > 0]


def _okapi() -> Any:
    try:
        from rank_bm25 import BM25Okapi
    except ImportError as error:
        raise SettingsError(
            "--retriever rank-bm25: that package is not installed: pip install 'tessera-indexer[lab]'"
        ) from error

    class LuceneOkapi(BM25Okapi):  # type: ignore[misc]
        """``ln(1 + (N - n + 0.5) / (n + 0.5))`` is never negative."""

        def _calc_idf(self, nd: dict[str, int]) -> None:
            size = self.corpus_size
            self.idf = {term: math.log(1 + (size - n + 0.5) / (n + 0.5)) for term, n in nd.items()}

    return LuceneOkapi


def retriever_named(name: RetrieverName, cut: PolicyCut, corpus: Corpus, analyzer: Analyzer) -> Retriever:
    """The retriever of this name over a cut; SettingsError where its package is missing."""
    if name == "rank-bm25":
        return RankBm25Retriever(cut, analyzer)
    return TesseraRetriever(cut, corpus, analyzer)
