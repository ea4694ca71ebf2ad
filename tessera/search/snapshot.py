"""A generation at one moment: immutable, so a query works on one state from its first step to its last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tessera.index.segment import COLUMNS, I64, DocumentEntry
from tessera.releases import Scorer
from tessera.search.kernel import best_chunks
from tessera.search.part import Part, is_visible
from tessera.search.scoring import weigh
from tessera.store.base import ShardId

_ORDINAL = COLUMNS.index("ordinal")
_HEADING = COLUMNS.index("heading")
_SPAN = [COLUMNS.index("start"), COLUMNS.index("end")]


class Found(NamedTuple):
    """One chunk of a snapshot and its score."""

    score: float
    part: Part
    chunk: int

    @property
    def document(self) -> DocumentEntry:
        """The document's current entry."""
        return self.part.segment.documents[int(self.part.index.document[self.chunk])]

    @property
    def ordinal(self) -> int:
        """The chunk's number within its document."""
        return int(self.part.segment.columns[self.chunk, _ORDINAL])

    def values(self) -> dict[str, int]:
        """The chunk's :data:`~tessera.index.segment.COLUMNS` by name."""
        return dict(zip(COLUMNS, self.part.segment.columns[self.chunk].tolist(), strict=True))

    @property
    def rank(self) -> tuple[float, str, str, int]:
        """Sorts hits: falling score, then (source, doc_id, ordinal)."""
        entry = self.document
        return -self.score, entry.source, entry.doc_id, self.ordinal

    @property
    def place(self) -> tuple[str, int]:
        """The document's key and the chunk's number in it: which chunk it is, in whatever part."""
        return self.document.key, self.ordinal

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings above the chunk, outermost first."""
        return self.part.segment.headings[int(self.part.segment.columns[self.chunk, _HEADING])]

    @property
    def shard(self) -> ShardId:
        """The shard that holds the document."""
        return self.part.origins[int(self.part.origin[self.chunk])].shard


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All parts of a generation, greatest first, and the last applied offset of each shard.

    ``absent`` are shards that do not write the generation, ``incomplete`` those where documents are still to
    be backfilled: it answers for all documents only where both are empty.
    """

    parts: tuple[Part, ...]
    applied: Mapping[ShardId, int]
    absent: tuple[ShardId, ...] = ()
    incomplete: tuple[ShardId, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every document of every shard is in it."""
        return not self.lacking

    @property
    def lacking(self) -> tuple[ShardId, ...]:
        """The shards whose documents are not all in it."""
        return self.absent + self.incomplete

    @property
    def as_of(self) -> dict[str, int]:
        """The last applied offset per ``<topic>/<partition>``."""
        return {str(shard): offset for shard, offset in self.applied.items()}

    def search(
        self,
        counts: Counter[str],
        k: int,
        scorer: Scorer,
        principals: frozenset[str] | None,
        source: str | None,
    ) -> list[Found]:
        """The best ``k`` chunks that the principals may see, best first."""
        chunks = sum(part.live_chunks for part in self.parts)
        length = sum(part.live_length for part in self.parts)
        weights = weigh(counts, chunks, self._frequency)
        if not weights:
            return []
        best: list[Found] = []
        floor = 0.0
        for part in self.parts:
            scores, numbers = best_chunks(
                part, weights, scorer, length / chunks, k, part.eligible(principals, source), floor
            )
            if len(scores):
                found = [
                    Found(*hit)
                    for hit in zip(scores.tolist(), [part] * len(scores), numbers.tolist(), strict=True)
                ]
                best = sorted(best + found, key=lambda hit: hit.rank)[:k] if best else found
                floor = best[-1].score if len(best) == k else 0.0
        return best

    def document(self, source: str, doc_id: str, principals: frozenset[str] | None) -> list[Found]:
        """The document's live chunks by ordinal; empty where it has none or the principals may not see it."""
        found = []
        for part in self.parts:
            row = part.segment.document_row(source, doc_id)
            if row is not None and is_visible(part.segment.documents[row].access, principals):
                found += [Found(0.0, part, chunk) for chunk in part.live_chunks_of(row)]
        return sorted(found, key=lambda hit: hit.rank)

    def chunk(
        self, source: str, doc_id: str, ordinal: int, principals: frozenset[str] | None
    ) -> Found | None:
        """The document's live chunk of this number; None where there is none or it is not visible."""
        for part in self.parts:
            row = part.segment.document_row(source, doc_id)
            if row is not None and is_visible(part.segment.documents[row].access, principals):
                chunks = part.live_chunks_of(row)
                for place in np.flatnonzero(part.segment.columns[chunks, _ORDINAL] == ordinal):
                    return Found(0.0, part, chunks[place])
        return None

    def spans(self, source: str, doc_id: str) -> I64:
        """Start and end of the document's live chunks, a row each, in no order."""
        found = [np.empty((0, 2), np.int64)]
        for part in self.parts:
            row = part.segment.document_row(source, doc_id)
            if row is not None:
                found.append(part.segment.columns[part.live_chunks_of(row)][:, _SPAN].astype(np.int64))
        return np.concatenate(found)

    def documents(self) -> int:
        """How many documents have a live chunk."""
        return len({entry[:2] for part in self.parts for entry in part.live_entries()})

    def _frequency(self, term: str) -> int:
        frequency = 0
        for part in self.parts:
            row = part.index.rows.get(term)
            if row is not None:
                frequency += int(part.frequencies[row])
        return frequency
