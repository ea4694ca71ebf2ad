"""Strict decoding of change events: pure, and every refusal is an :class:`EventError` with a stable reason.

The reasons are listed in :mod:`tessera.events.reasons`. Messages name fields and sizes, never content.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final

import orjson

from tessera.errors import EventError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import (
    MAX_REVISION,
    MEDIA_TYPES,
    Append,
    ByteRange,
    Change,
    Delete,
    MediaType,
    Part,
    Record,
    Upsert,
    document_key,
)
from tessera.events.content import decode_content
from tessera.events.identity import check_doc_id, check_source, split_key
from tessera.events.parts import PART_HEADER, decode_part, max_event_bytes
from tessera.events.topics import partition_of, topic_of

EVENT_VERSION: Final = 1
DAMAGED_HEADER: Final = "tessera-damaged"
"""Marks a record that stands for one whose batch in the log cannot be decoded; its value says why."""

MAX_CONTENT_BYTES: Final = 32 * 1024 * 1024
"""Default bound of one event's content; beyond it one document could exhaust a worker's memory."""

MAX_PRINCIPALS: Final = 1000
MAX_PRINCIPAL_BYTES: Final = 1024
"""Access lists are copied into every segment that holds the document: these bound what one can cost."""

APPEND_MEDIA_TYPES: Final[tuple[MediaType, ...]] = ("text/plain", "text/x-run-log", "text/x-ci-log")
"""What can grow line by line: a heading appended to Markdown would change chunks already closed."""

_COMMON: Final = frozenset({"v", "op", "source", "doc_id", "occurred_at"})
_CONTENT: Final = frozenset({"content", "content_base64", "media_type", "access"})
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "upsert": _COMMON | _CONTENT | {"revision"},
    "delete": _COMMON | {"revision"},
    "append": _COMMON | _CONTENT | {"first_line"},
}
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,18})?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)

_Fields = Mapping[str, Any]


def decode_record(record: Record, max_content_bytes: int = MAX_CONTENT_BYTES) -> Change | Part:
    """The change that a record carries, or the part of one.

    A null value is an outright :class:`Delete` of the document the key names. A record with the header
    ``tessera-part`` is a :class:`Part`; once joined, its event goes through :func:`decode_joined`.

    Raises :class:`EventError`.
    """
    for name, why in record.headers:
        if name == DAMAGED_HEADER:
            shown = why.decode(errors="backslashreplace")
            raise EventError("damaged_batch", f"the batch that held the record cannot be decoded: {shown}")
    if record.key is None:
        raise EventError("missing_key", "the record has no key; it must be <source>/<doc_id>", "key")
    if any(name == PART_HEADER for name, _ in record.headers):
        split_key(record.key)
        return decode_part(record, max_event_bytes(max_content_bytes))
    if record.value is None:
        source, doc_id = split_key(record.key)
        return Delete(source, doc_id, revision=None, outright=True)
    return decode_joined(record.key, record.value, max_content_bytes)


def decode_joined(key: bytes, value: bytes, max_content_bytes: int = MAX_CONTENT_BYTES) -> Change:
    """The change in a whole event's bytes, whose key must be that of its document.

    Raises :class:`EventError`.
    """
    change = decode_value(value, max_content_bytes)
    expected = document_key(change.source, change.doc_id)
    if key != expected.encode():
        raise EventError("key_mismatch", f"the event is for {expected!r}, the record's key is not", "key")
    return change


def decode_value(value: bytes, max_content_bytes: int = MAX_CONTENT_BYTES) -> Change:
    """The change in the JSON of one event, whatever its key.

    Content of an append that does not end in LF gets one. Raises :class:`EventError`.
    """
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise EventError("invalid_json", f"the value is not JSON in UTF-8: {error}") from None
    if not isinstance(fields, dict):
        raise EventError("not_an_object", f"the value is a JSON {_type_name(fields)}, not an object")
    op = _check_shape(fields)
    source = check_source(_text(fields, "source"))
    doc_id = check_doc_id(_text(fields, "doc_id"))
    return _DECODERS[op](source, doc_id, fields, max_content_bytes)


def check_routing(change: Change, catalog: SourceCatalog, topic: str) -> None:
    """Check a change against what is declared about its source.

    Raises :class:`EventError`: ``wrong_topic``, ``append_to_documents`` or ``revision_missing``.
    """
    source = catalog[change.source]
    expected = topic_of(source.kind)
    if topic != expected:
        raise EventError(
            "wrong_topic",
            f"source {change.source!r} is of kind {source.kind} and travels on {expected}, not on {topic}",
            "source",
        )
    if isinstance(change, Append):
        if not source.is_log:
            raise EventError(
                "append_to_documents",
                f"source {change.source!r} is of kind {source.kind}: its documents are replaced by upserts",
                "op",
            )
    elif source.revision_from == "event" and change.revision is None and not _outright(change):
        raise EventError(
            "revision_missing",
            f"source {change.source!r} is declared with revision_from = 'event'; give the event a revision",
            "revision",
        )


def check_partition(record: Record, partitions: int) -> None:
    """Check that a record's key belongs to its partition among ``partitions``.

    Raises :class:`EventError` (``missing_key``, ``wrong_partition``): a producer with another partitioner
    would put copies of one document into two shards.
    """
    if record.key is None:
        raise EventError("missing_key", "the record has no key; it must be <source>/<doc_id>", "key")
    expected = partition_of(record.key, partitions)
    if record.partition != expected:
        raise EventError(
            "wrong_partition",
            f"the record's key belongs to partition {expected} of {partitions}, not {record.partition}; "
            "produce with murmur2, Kafka's default partitioner",
            "key",
        )


def _outright(change: Change) -> bool:
    return isinstance(change, Delete) and change.outright


def _check_shape(fields: _Fields) -> str:
    """The operation, where version and field names are right for it."""
    version = _value(fields, "v", int)
    if version != EVENT_VERSION:
        raise EventError("unsupported_version", f"v is {version}; this build reads {EVENT_VERSION}", "v")
    op = _text(fields, "op")
    allowed = _FIELDS.get(op)
    if allowed is None:
        raise EventError("unknown_op", f"op is {op[:40]!a}; it must be one of {', '.join(_FIELDS)}", "op")
    unknown = sorted(fields.keys() - allowed)
    if unknown:
        name = ascii(unknown[0][:80])
        raise EventError(
            "unknown_field", f"{op} has no field {name}; it has {', '.join(sorted(allowed))}", name
        )
    return op


def _upsert(source: str, doc_id: str, fields: _Fields, max_content_bytes: int) -> Upsert:
    content, undecodable = _content(fields, max_content_bytes)
    return Upsert(
        source,
        doc_id,
        revision=_revision(fields),
        media_type=_media_type(fields, MEDIA_TYPES),
        content=content,
        access=_access(fields),
        occurred_at=_occurred_at(fields),
        undecodable=undecodable,
    )


def _delete(source: str, doc_id: str, fields: _Fields, _max_content_bytes: int) -> Delete:
    return Delete(source, doc_id, revision=_revision(fields), occurred_at=_occurred_at(fields))


def _append(source: str, doc_id: str, fields: _Fields, max_content_bytes: int) -> Append:
    content, undecodable = _content(fields, max_content_bytes)
    if content and not content.endswith("\n"):
        content += "\n"
    return Append(
        source,
        doc_id,
        first_line=_integer(fields, "first_line", minimum=1),
        content=content,
        media_type=_media_type(fields, APPEND_MEDIA_TYPES) if "media_type" in fields else None,
        access=_access(fields),
        occurred_at=_occurred_at(fields),
        undecodable=undecodable,
    )


_DECODERS: Final[Mapping[str, Callable[[str, str, _Fields, int], Change]]] = {
    "upsert": _upsert,
    "delete": _delete,
    "append": _append,
}


def _content(fields: _Fields, max_bytes: int) -> tuple[str, tuple[ByteRange, ...]]:
    """The content as text, with the byte ranges of it that were not UTF-8."""
    if "content_base64" not in fields:
        text = _text(fields, "content")
        size = len(text) if text.isascii() else len(text.encode())
        _check_size(size, max_bytes, "content")
        return text, ()
    if "content" in fields:
        raise EventError("content_twice", "give content or content_base64, not both", "content")
    encoded = _text(fields, "content_base64")
    # At least this many bytes: refused before they are decoded.
    _check_size(len(encoded) // 4 * 3 - 2, max_bytes, "content_base64")
    try:
        content = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:  # binascii.Error among them
        raise EventError("invalid_base64", f"content_base64: {error}", "content_base64") from None
    _check_size(len(content), max_bytes, "content_base64")
    return decode_content(content)


def _check_size(size: int, max_bytes: int, field: str) -> None:
    if size > max_bytes:
        raise EventError("too_large", f"{field} has {size} bytes, at most {max_bytes} are allowed", field)


def _revision(fields: _Fields) -> int | None:
    return _integer(fields, "revision", minimum=0) if "revision" in fields else None


def _integer(fields: _Fields, name: str, minimum: int) -> int:
    number: int = _value(fields, name, int)
    if not minimum <= number <= MAX_REVISION:
        raise EventError("out_of_range", f"{name} is {number}, not within {minimum} to {MAX_REVISION}", name)
    return number


def _media_type(fields: _Fields, allowed: tuple[MediaType, ...]) -> MediaType:
    given = _text(fields, "media_type")
    for media_type in allowed:
        if given == media_type:
            return media_type
    message = f"media_type is {given[:80]!a}; {fields['op']} takes {', '.join(allowed)}"
    raise EventError("invalid_media_type", message, "media_type")


def _access(fields: _Fields) -> tuple[str, ...] | None:
    """The access list; None where it is left out, so that the source's default applies."""
    if "access" not in fields:
        return None
    principals: list[Any] = _value(fields, "access", list)
    if len(principals) > MAX_PRINCIPALS:
        message = f"access has {len(principals)} entries, at most {MAX_PRINCIPALS} are allowed"
        raise EventError("invalid_access", message, "access")
    for index, principal in enumerate(principals):
        if not isinstance(principal, str):
            message = f"access[{index}] is a JSON {_type_name(principal)}, not a string"
            raise EventError("wrong_type", message, "access")
        if not 0 < len(principal.encode()) <= MAX_PRINCIPAL_BYTES:
            message = f"access[{index}] must have 1 to {MAX_PRINCIPAL_BYTES} bytes of UTF-8"
            raise EventError("invalid_access", message, "access")
    return tuple(principals)


def _occurred_at(fields: _Fields) -> str | None:
    """The time as it was given, once it is known to be one (RFC 3339, section 5.6; leap seconds allowed)."""
    if "occurred_at" not in fields:
        return None
    given = _text(fields, "occurred_at")
    found = _RFC3339.fullmatch(given)
    try:
        if found:
            date.fromisoformat(found[1])
            return given
    except ValueError:
        pass  # a day that the calendar does not have: refused below like any other
    message = f"occurred_at is {given[:40]!a}, not an RFC 3339 time like 2026-06-28T09:00:00Z"
    raise EventError("invalid_time", message, "occurred_at")


def _text(fields: _Fields, name: str) -> str:
    text: str = _value(fields, name, str)
    return text


def _value(fields: _Fields, name: str, expected: type) -> Any:
    """The field's value, of exactly this type: JSON's true is no integer."""
    if name not in fields:
        raise EventError("missing_field", f"{name} is missing", name)
    value = fields[name]
    if type(value) is not expected:
        wanted = _TYPE_NAMES[expected]
        raise EventError("wrong_type", f"{name} is a JSON {_type_name(value)}, not {wanted}", name)
    return value


_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number with a fraction or beyond 64 bits",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _type_name(value: object) -> str:
    return _TYPE_NAMES[type(value)]
