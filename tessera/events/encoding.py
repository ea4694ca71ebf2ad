"""Change events as they travel: the JSON of one change, and the records that carry it."""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

import orjson

from tessera.errors import EventError
from tessera.events.change import Append, Change, Delete, Upsert, document_key
from tessera.events.decoding import EVENT_VERSION, MAX_CONTENT_BYTES, decode_value
from tessera.events.identity import check_doc_id, check_source
from tessera.events.parts import max_event_bytes, split_record

__all__ = ["Event", "encode_change", "encode_event", "split_record"]

_OPS: Final = {Upsert: "upsert", Delete: "delete", Append: "append"}


class Event(NamedTuple):
    """One change ready to be sent: whose it is, and its bytes (None: an outright delete)."""

    source: str
    doc_id: str
    value: bytes | None

    @property
    def key(self) -> bytes:
        """The record's key: ``<source>/<doc_id>`` in UTF-8."""
        return document_key(self.source, self.doc_id).encode()


def encode_event(change: Change, max_content_bytes: int = MAX_CONTENT_BYTES) -> Event:
    """The event of a change: its JSON, or for an outright delete a null value. See :func:`encode_change`."""
    if isinstance(change, Delete) and change.outright:
        return Event(check_source(change.source), check_doc_id(change.doc_id), None)
    return Event(change.source, change.doc_id, encode_change(change, max_content_bytes))


def encode_change(change: Change, max_content_bytes: int = MAX_CONTENT_BYTES) -> bytes:
    """The JSON of a change. What it returns, :func:`~tessera.events.decoding.decode_value` takes.

    Content that was not UTF-8 (``undecodable`` is not empty) travels as the bytes in ``raw``. An outright
    delete has no JSON: see :func:`encode_event`.

    Raises :class:`EventError`: ``too_large`` and every reason decoding would give.
    """
    if isinstance(change, Delete) and change.outright:
        raise ValueError("an outright delete is a record with a null value, see encode_event")
    value = _encode(change)
    # One set of rules: what would be refused on arrival is refused here, by the same code.
    decoded = decode_value(value, max_content_bytes)
    if not isinstance(change, Delete) and change.undecodable and decoded != change:
        raise ValueError("`raw` does not hold the bytes that the change was made from")
    return value


def _encode(change: Upsert | Append | Delete) -> bytes:
    """The JSON of a change, its content as base64 where text would lose bytes or take too many."""
    fields = _fields(change)
    if isinstance(change, Delete):
        return _json(fields)
    if not change.undecodable:
        value = _json(fields | {"content": change.content})
        content = change.content.encode()
        if len(value) <= max_event_bytes(len(content)):
            return value
    elif change.raw is not None:
        content = change.raw
    else:
        message = "the content held bytes that are not UTF-8 and `raw` does not have them"
        raise EventError("undecodable_content", message, "content")
    return _json(fields | {"content_base64": base64.b64encode(content).decode()})


def _fields(change: Change) -> dict[str, Any]:
    """All fields but the content; None is left out."""
    fields: dict[str, Any] = {
        "v": EVENT_VERSION,
        "op": _OPS[type(change)],
        "source": change.source,
        "doc_id": change.doc_id,
        "occurred_at": change.occurred_at,
    }
    if isinstance(change, Append):
        fields["first_line"] = change.first_line
    else:
        fields["revision"] = change.revision
    if not isinstance(change, Delete):
        fields["media_type"] = change.media_type
        fields["access"] = change.access
    return {name: value for name, value in fields.items() if value is not None}


def _json(fields: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError as error:
        raise EventError("not_encodable", f"the event cannot be encoded: {error}") from None
