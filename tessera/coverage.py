"""What of the sources no chunk holds, and what could not be read: the ranges with their lines.

Counts are of what the asker may see. Documents are read one by one while the index moves on; one that changes
meanwhile is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from tessera.documents.record import DocumentRecord, decoded_records
from tessera.errors import QueryError
from tessera.ingestion import UncoveredRange, covered_by_one, lf_lines, uncovered_ranges
from tessera.search import Searcher
from tessera.search.part import is_visible
from tessera.search.pinned import PinnedGeneration
from tessera.search.snapshot import Found
from tessera.search.stored import Stored, document_text, stored_document
from tessera.shards.deadletters import all_shards
from tessera.store.base import ShardStore

MAX_DOCUMENTS: Final = 1000
"""Documents told of in one answer: each is read from the store as a whole."""

SHOWN_RANGES: Final = 50
"""Ranges told per document and kind: one can have a hole in every line."""

SHOWN_LINES: Final = 5
"""Lines shown of a range: its numbers lead to the rest."""

LINE_CHARACTERS: Final = 400
"""Characters shown of a line: a log can hold one of a megabyte."""

ATTEMPTS: Final = 5

REPLACEMENT: Final = "\ufffd"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines ``start_line`` to ``end_line`` (from 1, inclusive), code points ``start`` to before ``end``.

    ``lines`` are the first :data:`SHOWN_LINES`, cut to :data:`LINE_CHARACTERS`. ``missing``: lines of a log
    that have not arrived, which have no text.
    """

    start: int
    end: int
    start_line: int
    end_line: int
    lines: tuple[str, ...]
    missing: bool = False


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """Why bytes could not be read, and where.

    ``ranges`` are byte ranges of the content as it was received, the first of ``count``; ``places`` are lines
    of the text with a character put in their place.
    """

    reason: str
    count: int
    ranges: tuple[tuple[int, int], ...]
    places: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class DocumentCoverage:
    """One document: what no chunk of the generation holds, and where another one differs.

    ``only_here`` and ``only_there`` are ranges that just one of both generations covers, empty where no other
    was asked for. ``ranges`` counts all uncovered ranges, of which the first :data:`SHOWN_RANGES` are told.
    """

    source: str
    doc_id: str
    revision: int
    media_type: str
    ranges: int
    uncovered: tuple[Stretch, ...]
    failure: ParseFailure | None
    only_here: tuple[Stretch, ...] = ()
    only_there: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceCoverage:
    """One source in numbers; ``uncovered`` counts ranges, ``parse_failures`` ranges of unreadable bytes."""

    documents: int = 0
    incomplete: int = 0
    uncovered: int = 0
    missing_ranges: int = 0
    parse_failures: int = 0


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of the sources a generation covers. ``more`` documents have something to tell, and no room here.

    ``against`` is the generation it was compared with, None for none. ``moved`` documents changed meanwhile.
    """

    generation: str
    against: str | None
    sources: Mapping[str, SourceCoverage]
    documents: tuple[DocumentCoverage, ...]
    more: int
    moved: int

    def to_value(self) -> dict[str, Any]:
        """The coverage as JSON values."""
        return {
            "generation": self.generation,
            "against": self.against,
            "sources": {name: asdict(source) for name, source in self.sources.items()},
            "documents": [asdict(document) for document in self.documents],
            "more": self.more,
            "moved": self.moved,
        }


async def read_coverage(
    store: ShardStore,
    searcher: Searcher,
    generation: str,
    *,
    against: str | None = None,
    source: str | None = None,
    principals: frozenset[str] | None = None,
    limit: int = 50,
) -> Coverage:
    """The coverage of ``source``, or of all, by ``generation``, for what ``principals`` may see.

    Raises :class:`~tessera.errors.QueryError` for a ``limit`` out of bounds and as searching a generation by
    name does.
    """
    if not 0 <= limit <= MAX_DOCUMENTS:
        raise QueryError(f"limit is 0 to {MAX_DOCUMENTS}, not {limit}")
    if against == generation:
        raise QueryError(f"{against!r} cannot be compared with itself: name another generation")
    names = [generation] if against is None else [generation, against]
    records = await _visible_records(store, source, principals)
    telling = [key for key, record in records if _tells(record, names)]
    async with searcher.pinned(names) as pinned:
        sides = [pinned[name] for name in names]
        found = [await _document(store, sides, key, principals) for key in islice(telling, limit)]
    documents = tuple(each for each in found if each is not None)
    return Coverage(
        generation,
        against,
        _sources(records, generation),
        documents,
        more=len(telling) - len(found),
        moved=len(found) - len(documents),
    )


async def _visible_records(
    store: ShardStore, source: str | None, principals: frozenset[str] | None
) -> list[tuple[str, DocumentRecord]]:
    """Live documents by key, in its order; records that cannot be read are the matter of verify."""
    prefix = "" if source is None else f"{source}/"
    found: list[tuple[str, DocumentRecord]] = []
    for shard in await all_shards(store):
        records, _ = decoded_records(await store.scan_documents(shard, prefix))
        found += [
            (key, each) for key, each in records if not each.deleted and is_visible(each.access, principals)
        ]
    return sorted(found, key=lambda each: each[0])


def _tells(record: DocumentRecord, generations: Sequence[str]) -> bool:
    """Whether there is something to tell of the document."""
    uncovered = [record.indexed[name].uncovered for name in generations if name in record.indexed]
    return bool(record.undecodable_count or record.gaps or any(uncovered))


def _sources(records: Iterable[tuple[str, DocumentRecord]], generation: str) -> dict[str, SourceCoverage]:
    totals: dict[str, Counter[str]] = {}
    for key, record in records:
        counts = totals.setdefault(key.partition("/")[0], Counter())
        state = record.indexed.get(generation)
        uncovered = state.uncovered if state is not None else 0
        counts["documents"] += 1
        counts["incomplete"] += bool(uncovered or record.undecodable_count)
        counts["uncovered"] += uncovered
        counts["missing_ranges"] += len(record.gaps)
        counts["parse_failures"] += record.undecodable_count
    return {name: SourceCoverage(**counts) for name, counts in totals.items()}


async def _document(
    store: ShardStore, sides: Sequence[PinnedGeneration], key: str, principals: frozenset[str] | None
) -> DocumentCoverage | None:
    """The document, read until record, text and chunks agree; None where it went or has moved on."""
    source, _, doc_id = key.partition("/")
    for _ in range(ATTEMPTS):
        stored = await stored_document(store, source, doc_id)
        if stored is None or stored.record.deleted or not is_visible(stored.record.access, principals):
            return None
        text = await document_text(store, stored)
        chunks = [side.document(source, doc_id, principals) for side in sides]
        of_record = all(
            (hit.document.revision, hit.document.content_digest)
            == (stored.record.revision, stored.record.content_digest)
            for found in chunks
            for hit in found
        )
        if text is not None and of_record:
            return _told(source, doc_id, stored, text, [_spans(found) for found in chunks])
    return None


class _Span(NamedTuple):
    """A chunk's span, code points, half-open."""

    start: int
    end: int


def _spans(found: Sequence[Found]) -> list[_Span]:
    values = [hit.values() for hit in found]
    return [_Span(each["start"], each["end"]) for each in values]


def _told(
    source: str, doc_id: str, stored: Stored, text: str, chunks: Sequence[Sequence[_Span]]
) -> DocumentCoverage:
    record = stored.record
    lines = text if record.is_log else lf_lines(text)
    shown = _Lines(lines)
    here, there = chunks[0], chunks[1] if len(chunks) > 1 else None
    missing = [shown.missing(first, last) for first, last in record.gaps]
    uncovered = uncovered_ranges(lines, here)
    stretches = [*(shown.stretch(each) for each in uncovered[:SHOWN_RANGES]), *missing[:SHOWN_RANGES]]
    return DocumentCoverage(
        source,
        doc_id,
        record.revision,
        record.media_type,
        len(uncovered) + len(missing),
        tuple(sorted(stretches, key=lambda each: each.start)),
        _failure(record, lines, shown),
        () if there is None else shown.stretches(covered_by_one(lines, here, there)),
        () if there is None else shown.stretches(covered_by_one(lines, there, here)),
    )


def _failure(record: DocumentRecord, lines: str, shown: _Lines) -> ParseFailure | None:
    if not record.undecodable_count:
        return None
    places = islice((line for line in shown.with_character(REPLACEMENT)), SHOWN_RANGES)
    ranges = record.undecodable[:SHOWN_RANGES]
    return ParseFailure("not_utf8", record.undecodable_count, ranges, tuple(places))


class _Lines:
    """The lines of a text that end at LF, by number from 1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]

    def stretches(self, ranges: Sequence[UncoveredRange]) -> tuple[Stretch, ...]:
        """The first :data:`SHOWN_RANGES` of these ranges."""
        return tuple(self.stretch(each) for each in ranges[:SHOWN_RANGES])

    def stretch(self, found: UncoveredRange) -> Stretch:
        """A range with its lines."""
        last = min(found.end_line, found.start_line + SHOWN_LINES - 1)
        lines = tuple(self._line(number) for number in range(found.start_line, last + 1))
        return Stretch(found.start, found.end, found.start_line, found.end_line, lines)

    def missing(self, first: int, last: int) -> Stretch:
        """Lines of a log that have not arrived: each stands as an empty one."""
        return Stretch(self._starts[first - 1], self._starts[last], first, last, (), missing=True)

    def with_character(self, character: str) -> Iterable[Stretch]:
        """The lines that hold the character."""
        for number, start in enumerate(self._starts, start=1):
            end = self._starts[number] if number < len(self._starts) else len(self._text)
            if self._text.find(character, start, end) >= 0:
                yield Stretch(start, end, number, number, (self._line(number),))

    def _line(self, number: int) -> str:
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self._text)
        return self._text[start : min(end, start + LINE_CHARACTERS)].rstrip("\r\n")
