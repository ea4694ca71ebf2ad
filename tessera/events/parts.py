"""Large events: split into several records with one key, and joined again.

Each record of a split event carries the header ``tessera-part``, whose value is the JSON object
``{"group", "index", "count", "size_bytes"}``. The group is the hex SHA-256 of the event's bytes: it tells
apart events that interleave, and is the check of the joined bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import orjson

from tessera.errors import EventError
from tessera.events.change import Part, Record

PART_HEADER: Final = "tessera-part"

MAX_RECORD_BYTES: Final = 900_000
"""Below the 1 MiB that Kafka brokers accept of a record batch by default, with room for key and headers."""

MAX_PARTS: Final = 4096
"""Bounds what a shard must remember of one unfinished event."""

_OVERHEAD_BYTES: Final = 2 * 1024 * 1024
"""Room around the content: identifiers and the longest access list."""

_GROUP: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HEADER_FIELDS: Final = ("group", "index", "count", "size_bytes")

Headers = tuple[tuple[str, bytes], ...]


def max_event_bytes(max_content_bytes: int) -> int:
    """The greatest size of an event with content of this size.

    JSON writes text in at most three times its UTF-8 bytes, however it escapes (``\\u00e9`` is the worst).
    Content of control characters would take six times: such content travels as base64.
    """
    return 3 * max_content_bytes + _OVERHEAD_BYTES


def split_record(value: bytes, limit: int = MAX_RECORD_BYTES) -> list[tuple[Headers, bytes]]:
    """Headers and payload of each record that carries ``value``: one without headers where it fits.

    ``limit`` is the greatest payload in bytes. All records must go to one partition, in this order.
    Raises :class:`EventError` (``too_large``) where more than :data:`MAX_PARTS` would be needed.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1 byte, not {limit}")
    if len(value) <= limit:
        return [((), value)]
    count = -(-len(value) // limit)
    if count > MAX_PARTS:
        message = f"the event has {len(value)} bytes: more than {MAX_PARTS} records of {limit} bytes"
        raise EventError("too_large", message)
    group = hashlib.sha256(value).hexdigest()
    records: list[tuple[Headers, bytes]] = []
    for index in range(count):
        header = {"group": group, "index": index, "count": count, "size_bytes": len(value)}
        payload = value[index * limit : (index + 1) * limit]
        records.append((((PART_HEADER, orjson.dumps(header)),), payload))
    return records


def decode_part(record: Record, max_bytes: int) -> Part:
    """The part in a record that has the header ``tessera-part``. ``max_bytes`` bounds the whole event.

    Raises :class:`EventError` (``invalid_part``, or ``too_large`` for the event's size).
    """
    headers = [value for name, value in record.headers if name == PART_HEADER]
    if len(headers) != 1:
        raise _invalid(f"the record has {len(headers)} headers {PART_HEADER}, not one")
    try:
        fields = orjson.loads(headers[0])
    except orjson.JSONDecodeError as error:
        raise _invalid(f"the header is not JSON: {error}") from None
    if not isinstance(fields, dict) or sorted(fields) != sorted(_HEADER_FIELDS):
        raise _invalid(f"the header must be an object of {', '.join(_HEADER_FIELDS)}")
    group, index, count, size_bytes = (fields[name] for name in _HEADER_FIELDS)
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise _invalid("group is not the hex SHA-256 of the event")
    if not all(type(number) is int for number in (index, count, size_bytes)):
        raise _invalid("index, count and size_bytes must be integers")
    part = Part(group, index, count, size_bytes, record.value or b"")
    _check_part(part, max_bytes)
    return part


def join_parts(parts: Sequence[Part]) -> bytes:
    """The event's bytes, from all its parts in any order.

    Raises :class:`EventError` (``invalid_part``) where parts are missing, doubled, of several events, or do
    not add up to the bytes their group names.
    """
    ordered = sorted(parts, key=lambda part: part.index)
    if not ordered:
        raise _invalid("there are no parts")
    first = ordered[0]
    if any(
        (part.group, part.count, part.size_bytes) != (first.group, first.count, first.size_bytes)
        for part in ordered
    ):
        raise _invalid("the parts are not of one event")
    if [part.index for part in ordered] != list(range(first.count)):
        raise _invalid(f"the parts are not those from 0 to {first.count - 1}, each once")
    value = b"".join(part.payload for part in ordered)
    if len(value) != first.size_bytes:
        raise _invalid(f"the parts have {len(value)} bytes in all, {first.size_bytes} were announced")
    if hashlib.sha256(value).hexdigest() != first.group:
        raise _invalid("the parts' bytes do not have the digest that their group names")
    return value


def _check_part(part: Part, max_bytes: int) -> None:
    """Check what one part can tell by itself."""
    if part.size_bytes > max_bytes:
        message = f"the event has {part.size_bytes} bytes in all, at most {max_bytes} are allowed"
        raise EventError("too_large", message, PART_HEADER)
    if not 1 <= part.count <= MAX_PARTS:
        raise _invalid(f"count is {part.count}, not within 1 to {MAX_PARTS}")
    if not 0 <= part.index < part.count:
        raise _invalid(f"index is {part.index}, not within 0 to {part.count - 1}")
    if not part.payload:
        raise _invalid("the payload is empty")
    # The other parts have at least one byte each.
    if len(part.payload) + part.count - 1 > part.size_bytes:
        raise _invalid(f"{len(part.payload)} bytes of {part.size_bytes} leave none for the other parts")


def _invalid(message: str) -> EventError:
    return EventError("invalid_part", f"{PART_HEADER}: {message}", PART_HEADER)
