"""The values that change events decode to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MediaType = Literal["text/markdown", "text/plain", "text/x-run-log", "text/x-ci-log"]
SourceKind = Literal["documents", "devex", "github"]

MEDIA_TYPES: tuple[MediaType, ...] = ("text/markdown", "text/plain", "text/x-run-log", "text/x-ci-log")
MAX_REVISION = 2**63 - 1
"""Revisions fit a signed 64-bit integer, the widest that Redis counters and numpy indices hold."""


class Record(NamedTuple):
    """One raw record of a change topic, as Kafka delivered it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A half-open range of bytes of the received content that were not UTF-8."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Upsert:
    """The whole content of one document at one revision.

    ``revision`` is None where the log gives it. ``access`` is None where the source's default applies.
    ``undecodable`` lists the byte ranges that stand as U+FFFD in ``content``; ``raw`` is what a connector
    read where there are any, to be sent as ``content_base64``.
    """

    source: str
    doc_id: str
    revision: int | None
    media_type: MediaType
    content: str
    access: tuple[str, ...] | None
    occurred_at: str | None = None
    undecodable: tuple[ByteRange, ...] = ()
    raw: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """A document is gone. ``outright`` (a record with a null value) deletes whatever the held revision."""

    source: str
    doc_id: str
    revision: int | None
    outright: bool = False
    occurred_at: str | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Whole lines that continue a log. ``first_line`` counts from 1; ``content`` ends in LF or is empty."""

    source: str
    doc_id: str
    first_line: int
    content: str
    media_type: MediaType | None = None
    access: tuple[str, ...] | None = None
    occurred_at: str | None = None
    undecodable: tuple[ByteRange, ...] = ()
    raw: bytes | None = field(default=None, compare=False, repr=False)


Change = Upsert | Delete | Append


@dataclass(frozen=True, slots=True)
class Part:
    """One of several records that carry one large event.

    The payloads of parts ``0 .. count - 1`` of a ``group``, joined, are the event's bytes
    (``size_bytes`` in all).
    """

    group: str
    index: int
    count: int
    size_bytes: int
    payload: bytes


def document_key(source: str, doc_id: str) -> str:
    """The Kafka key and the document table's key: ``<source>/<doc_id>``."""
    return f"{source}/{doc_id}"
