"""Bounds that keep one document, one batch or one client from taking the whole worker."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What the writer of a shard accepts.

    ``max_document_bytes`` bounds the UTF-8 text of one document: a log that grew without end would
    otherwise be held whole while a gap in it is filled. ``max_open_groups`` bounds the unfinished
    multi-record documents per key: a producer that crashes half-way would otherwise leave parts for ever.
    ``batch_records`` and ``batch_bytes`` (of values) bound what is worked on, and written, at once.
    ``max_recorded_ranges`` bounds the undecodable ranges kept per document; their count is always exact.
    """

    max_document_bytes: int = 32 * MIB
    max_open_groups: int = 4
    max_recorded_ranges: int = 64
    tombstone_horizon_s: int = 7 * 24 * 3600
    batch_records: int = 500
    batch_bytes: int = 16 * MIB
    batch_linger_s: float = 0.05
