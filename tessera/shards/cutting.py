"""Cutting one changed document for one generation, from its start or from where a log's open chunk begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tessera.documents.draft import Draft
from tessera.documents.identity import document_stem
from tessera.documents.log import Region, regions
from tessera.documents.record import DocumentRecord, IndexedState
from tessera.documents.storage import HeldText
from tessera.index.segment import ChunkEntry, HeadingPath
from tessera.ingestion import Chunk, Resume, lf_lines, uncovered_ranges
from tessera.policies import ChunkPolicy


class Uncovered(NamedTuple):
    """What no chunk holds: ranges, their lines, and their bytes of UTF-8."""

    ranges: int = 0
    lines: int = 0
    size_bytes: int = 0

    def plus(self, other: Uncovered) -> Uncovered:
        """Both together."""
        return Uncovered(
            self.ranges + other.ranges, self.lines + other.lines, self.size_bytes + other.size_bytes
        )


NOTHING = Uncovered()


@dataclass(frozen=True, slots=True)
class Cut:
    """The chunks of a document that are new, and its state in the generation afterwards.

    Chunks from ``from_ordinal`` on that were indexed before are dead; ``dead`` counts them.
    """

    chunks: list[ChunkEntry]
    state: IndexedState
    from_ordinal: int
    dead: int


def cut_document(
    draft: Draft,
    record: DocumentRecord,
    held: HeldText | None,
    state: IndexedState | None,
    policy: ChunkPolicy,
) -> Cut:
    """Cut a changed draft; ``state`` is what the generation held of it before, None for nothing. Pure."""
    assert draft.text is not None
    if draft.fresh or held is None or state is None or state.resume is None:
        begin, begin_byte, settled, data = Resume.begin(), 0, NOTHING, draft.text.data()
    else:
        begin, begin_byte = Resume.from_json(state.resume), state.resume_byte
        settled = Uncovered(
            state.uncovered_settled, state.uncovered_lines_settled, state.uncovered_bytes_settled
        )
        data = draft.text.data()[begin_byte - held.start_byte :]
    before = state.chunks if state is not None else 0
    gaps = tuple(gap for gap in record.gaps if gap[1] >= begin.start_line)
    run = _Run(policy, document_stem(draft.doc_id), record, begin, begin_byte, settled)
    for region in regions(data, begin.start_line, gaps):
        run.cut(region)
    return Cut(run.chunks, run.state(), begin.ordinal, max(0, before - begin.ordinal))


def cut_whole(doc_id: str, record: DocumentRecord, data: bytes, policy: ChunkPolicy) -> Cut:
    """Cut a held document anew from all its text: what a generation of this policy must hold of it. Pure."""
    run = _Run(policy, document_stem(doc_id), record, Resume.begin(), 0, NOTHING)
    for region in regions(data, 1, record.gaps):
        run.cut(region)
    return Cut(run.chunks, run.state(), 0, 0)


class _Run:
    """Cutting region after region, carrying the parser's state across the gaps between them.

    The place where the next cut begins is the start of the last chunk, in whatever region: so every append
    writes its document's newest piece, which carries what the index knows of the whole document.
    """

    def __init__(
        self,
        policy: ChunkPolicy,
        stem: str,
        record: DocumentRecord,
        begin: Resume,
        begin_byte: int,
        settled: Uncovered,
    ) -> None:
        self._policy, self._stem, self._media_type = policy, stem, record.media_type
        self._is_log = record.is_log
        self._base_byte = begin_byte
        self._begin, self._open, self._open_byte = begin, begin, begin_byte
        self._settled, self._unsettled, self._settled_before_open = settled, NOTHING, settled
        self._end: Resume | None = None
        self.chunks: list[ChunkEntry] = []

    def cut(self, region: Region) -> None:
        if self._end is not None:
            self._step_over_gap(region)
        text = region.data.decode()
        start_byte = self._base_byte + region.start_byte
        cut = self._policy.cut(text, self._stem, self._media_type, self._begin, is_log=self._is_log)
        self.chunks += entries(cut.chunks, text, self._begin, start_byte)
        lines = text if self._is_log else lf_lines(text)
        self._unsettled = NOTHING
        for gap in uncovered_ranges(lines, cut.chunks, self._begin):
            size_bytes = len(text[gap.start - self._begin.start : gap.end - self._begin.start].encode())
            one = Uncovered(1, gap.end_line - gap.start_line + 1, size_bytes)
            if gap.start >= cut.open.start:
                self._unsettled = self._unsettled.plus(one)
            else:
                self._settled = self._settled.plus(one)
        self._end = cut.end
        if cut.chunks:
            self._open, self._settled_before_open = cut.open, self._settled
            self._open_byte = start_byte + len(text[: cut.open.start - self._begin.start].encode())

    def _step_over_gap(self, region: Region) -> None:
        """Go on behind the missing lines; each stands as one LF, and the gap itself is uncovered."""
        assert self._end is not None
        missing = region.start_line - self._end.start_line
        self._begin = self._end.after_gap(
            self._end.start + missing, region.start_line, self._end.start_token, self._end.ordinal
        )
        self._settled = self._settled.plus(self._unsettled).plus(Uncovered(1, missing, 0))
        self._unsettled = NOTHING

    def state(self) -> IndexedState:
        assert self._end is not None
        uncovered, before_open = self._settled.plus(self._unsettled), self._settled_before_open
        return IndexedState(
            chunks=self._end.ordinal,
            uncovered=uncovered.ranges,
            uncovered_settled=before_open.ranges,
            resume=self._open.to_json() if self._is_log else None,
            resume_byte=self._open_byte if self._is_log else 0,
            uncovered_lines=uncovered.lines,
            uncovered_lines_settled=before_open.lines if self._is_log else 0,
            uncovered_bytes=uncovered.size_bytes,
            uncovered_bytes_settled=before_open.size_bytes if self._is_log else 0,
        )


MAX_TITLE = 200
"""Code points of a title in a heading path as it is stored and answered: a title can be a megabyte, and each
hit below it would bring it again. The chunk that holds the heading has all of it."""


def _shown(headings: HeadingPath) -> HeadingPath:
    if max(map(len, headings), default=0) <= MAX_TITLE:
        return headings
    return tuple(title[:MAX_TITLE] for title in headings)


def entries(chunks: Iterable[Chunk], text: str, begin: Resume, start_byte: int) -> Iterator[ChunkEntry]:
    """Chunks with the byte spans the index keeps; ``text`` is the source from ``begin`` on."""
    ascii_only = text.isascii()
    position, byte = begin.start, start_byte
    for ordinal, chunk in enumerate(chunks, begin.ordinal):
        if ascii_only:
            first, last = start_byte + chunk.start - begin.start, start_byte + chunk.end - begin.start
        else:
            if chunk.start < position:
                position, byte = begin.start, start_byte
            first = byte + len(text[position - begin.start : chunk.start - begin.start].encode())
            last = first + len(chunk.text.encode())
            position, byte = chunk.start, first
        yield ChunkEntry(
            ordinal,
            chunk.start,
            chunk.end,
            first,
            last,
            chunk.start_line,
            chunk.end_line,
            chunk.start_token or 0,
            chunk.end_token or 0,
            _shown(chunk.headings),
            f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text,
        )
