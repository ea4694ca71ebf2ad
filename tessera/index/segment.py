"""Segments: immutable blocks of chunks and postings of one shard in one generation.

In memory a segment is a set of numpy arrays; documents are sorted by (source, doc_id), chunks by
(document, ordinal), terms by code point, postings by chunk within a term. So a chunk's local number
follows the order that breaks ties of scores.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tessera.store.base import segment_blob as segment_blob

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
HeadingPath = tuple[str, ...]
"""Titles, outermost first."""


class DocumentEntry(NamedTuple):
    """What every chunk of a document shares, as of the commit ``seq`` that wrote the entry.

    ``text_id`` and ``size_bytes`` locate the text (:mod:`tessera.documents.text`). A log that grows has
    entries in several segments; the one with the greatest ``seq`` is the current one.
    """

    source: str
    doc_id: str
    revision: int
    content_digest: str
    access: tuple[str, ...]
    media_type: str
    text_id: str
    size_bytes: int
    seq: int

    @property
    def key(self) -> str:
        """``<source>/<doc_id>``."""
        return f"{self.source}/{self.doc_id}"


class ChunkEntry(NamedTuple):
    """One chunk to be indexed. All spans are half-open, lines 1-based and inclusive.

    ``start``/``end`` are code points, ``start_byte``/``end_byte`` bytes of the document's UTF-8 text,
    ``start_token``/``end_token`` tokens of the policy's tokenizer. ``indexed_text`` is what is analyzed:
    the chunk's text with the policy's parent context, if any, before it.
    """

    ordinal: int
    start: int
    end: int
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int
    start_token: int
    end_token: int
    headings: HeadingPath
    indexed_text: str


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A decoded segment.

    Shapes: D documents, C chunks, H distinct heading paths, T terms, P postings.

    * ``documents``: D entries; ``headings``: H paths; ``terms``: T sorted strings.
    * ``columns``: C x 12 unsigned 32-bit integers, one column per name in :data:`COLUMNS`.
    * ``term_start``: T + 1 offsets into the postings; ``posting_chunk``, ``posting_tf``: P.
    """

    documents: tuple[DocumentEntry, ...]
    headings: tuple[HeadingPath, ...]
    terms: tuple[str, ...]
    columns: U32
    term_start: I64
    posting_chunk: U32
    posting_tf: U32

    @property
    def chunks(self) -> int:
        """C, the number of chunks."""
        return len(self.columns)

    def column(self, name: str) -> U32:
        """One column of :data:`COLUMNS`, C values (a view)."""
        return self.columns[:, COLUMNS.index(name)]

    def document_row(self, source: str, doc_id: str) -> int | None:
        """The row of a document in ``documents``, None where it has no chunk here."""
        row = bisect_left(self.documents, (source, doc_id))
        if row < len(self.documents) and self.documents[row][:2] == (source, doc_id):
            return row
        return None

    def document_starts(self) -> I64:
        """D + 1 offsets into the chunks: document d has those from ``[d]`` to before ``[d + 1]``."""
        return np.searchsorted(self.column("document"), np.arange(len(self.documents) + 1)).astype(np.int64)


COLUMNS = (
    "document",
    "ordinal",
    "start",
    "end",
    "start_byte",
    "end_byte",
    "start_line",
    "end_line",
    "start_token",
    "end_token",
    "heading",
    "length",
)
"""Columns of :attr:`Segment.columns`: document and heading are row numbers; length is in analyzed terms."""
