"""The digest by which a record of a Kafka log is known again."""

from __future__ import annotations

import hashlib

from tessera.events.change import Record

_NULL = b"\xff" * 8
"""In the place of a length: no key or value has 2^64 - 1 bytes."""


def record_digest(record: Record) -> str:
    """Hex SHA-256 (64 digits) of the record's offset, timestamp, key and value.

    Equal whenever the same record is read again. A log made anew with the same content differs by the
    timestamps its records were given. Topic, partition and headers are left out: where a record is found
    does not make it another one, and client libraries hand headers over in different shapes.
    """
    digest = hashlib.sha256()
    digest.update(_eight_bytes(record.offset))
    digest.update(_eight_bytes(record.timestamp_ms))
    for field in (record.key, record.value):
        if field is None:
            digest.update(_NULL)
        else:
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
    return digest.hexdigest()


def _eight_bytes(number: int) -> bytes:
    """Two's complement of any integer, modulo 2^64: what producers choose as a time must never raise."""
    return (number % 2**64).to_bytes(8, "big")
