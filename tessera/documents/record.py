"""What a shard knows of one document: the value in its document table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import orjson

from tessera.documents.text import BLOCK_BYTES, block_ids
from tessera.errors import CorruptionError
from tessera.events.change import MediaType

FORMAT = 1
EPOCH_STEP = 2**40
"""Offsets that fit one log epoch in a revision: 2**40 records, and 2**23 epochs below 2**63."""

Gap = tuple[int, int]
"""Missing lines of a log: first and last, 1-based, inclusive."""


@dataclass(frozen=True, slots=True)
class IndexedState:
    """What one generation holds of a document.

    ``resume`` (logs only) is where cutting goes on when the log grows, with ``resume_byte`` as the byte
    position of its start; ``uncovered_settled`` counts uncovered ranges before it. Lines and bytes are those
    of the same ranges; a log's missing line counts as a line of no bytes.
    """

    chunks: int = 0
    uncovered: int = 0
    uncovered_settled: int = 0
    resume: Any = None
    resume_byte: int = 0
    uncovered_lines: int = 0
    uncovered_lines_settled: int = 0
    uncovered_bytes: int = 0
    uncovered_bytes_settled: int = 0

    def to_value(self) -> list[Any]:
        """The fields in their order. Records written before lines and bytes were counted end with the fifth;
        so does one that leaves nothing uncovered."""
        measured = [
            self.uncovered_lines,
            self.uncovered_lines_settled,
            self.uncovered_bytes,
            self.uncovered_bytes_settled,
        ]
        first = [self.chunks, self.uncovered, self.uncovered_settled, self.resume, self.resume_byte]
        return first + measured if any(measured) else first


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """One document, live or deleted.

    ``revision`` orders changes; ``order_digest`` breaks ties between equal revisions and covers content,
    media type and access. ``log_revision`` is that of the last record applied. ``lines`` counts lines by
    LF (logs); a log's missing lines stand as empty lines in its text and are listed in ``gaps``.
    ``undecodable`` names byte ranges of the received content (half-open), ``undecodable_count`` counts all.
    """

    revision: int
    order_digest: str
    log_revision: int
    deleted: bool = False
    changed_at_ms: int = 0
    media_type: MediaType = "text/plain"
    access: tuple[str, ...] = ()
    content_digest: str = ""
    text_id: str = ""
    size_bytes: int = 0
    lines: int = 0
    ends_with_newline: bool = True
    is_log: bool = False
    gaps: tuple[Gap, ...] = ()
    undecodable: tuple[tuple[int, int], ...] = ()
    undecodable_count: int = 0
    indexed: Mapping[str, IndexedState] = field(default_factory=dict)

    def text_blobs(self) -> list[str]:
        """Ids of all blobs that hold this document's text, the block digests included."""
        if not self.text_id:
            return []
        return block_ids(self.text_id, self.size_bytes) + self.digest_blobs()

    def digest_blobs(self) -> list[str]:
        """The blob with the digests of a log's full blocks, where there is one."""
        full = self.size_bytes // BLOCK_BYTES
        return [digests_id(self.text_id, full)] if self.is_log and full else []

    def encode(self) -> bytes:
        """The stored form: JSON with a format number."""
        return orjson.dumps({"format": FORMAT, **_fields(self)})

    @classmethod
    def decode(cls, data: bytes, key: str) -> DocumentRecord:
        """Read a stored record; raises CorruptionError naming ``key``."""
        try:
            fields = orjson.loads(data)
            if fields.pop("format") != FORMAT:
                raise CorruptionError(
                    f"the record of document {key!r} was written by another version of Tessera: "
                    "use the version that wrote it, or rebuild the index"
                )
            return _record(fields)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(
                f"the record of document {key!r} cannot be read ({error}): publish the document again"
            ) from error


def decoded_records(
    stored: Iterable[tuple[str, bytes]],
) -> tuple[list[tuple[str, DocumentRecord]], dict[str, str]]:
    """Records by key, and why others cannot be read: one that is damaged must not stop its whole shard."""
    records, lost = [], {}
    for key, data in stored:
        try:
            records.append((key, DocumentRecord.decode(data, key)))
        except CorruptionError as error:
            lost[key] = str(error)
    return records, lost


def digests_id(text_id: str, full_blocks: int) -> str:
    """Blob id of the SHA-256 digests of a log's first ``full_blocks`` blocks, 32 bytes each."""
    return f"digests/{text_id}/{full_blocks}"


def order_digest(content_digest: str, media_type: str, access: tuple[str, ...]) -> str:
    """The digest that orders equal revisions: hex SHA-256 over content digest, media type and access."""
    return sha256(orjson.dumps([content_digest, media_type, sorted(access)])).hexdigest()


def _fields(record: DocumentRecord) -> dict[str, Any]:
    names = DocumentRecord.__dataclass_fields__
    fields = {name: getattr(record, name) for name in names if name != "indexed"}
    fields["indexed"] = {generation: state.to_value() for generation, state in record.indexed.items()}
    return fields


def _record(fields: dict[str, Any]) -> DocumentRecord:
    fields["access"] = tuple(fields["access"])
    fields["gaps"] = tuple((first, last) for first, last in fields["gaps"])
    fields["undecodable"] = tuple((start, end) for start, end in fields["undecodable"])
    fields["indexed"] = {
        generation: IndexedState(*values) for generation, values in fields["indexed"].items()
    }
    return DocumentRecord(**fields)
