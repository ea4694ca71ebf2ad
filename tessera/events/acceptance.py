"""Change events as somebody hands them in: checked by the rules of arrival, kept as they stand."""

from __future__ import annotations

from tessera.events.catalog import SourceCatalog
from tessera.events.decoding import check_routing, decode_value
from tessera.events.encoding import Event
from tessera.events.topics import topic_of


def accepted_event(value: bytes, catalog: SourceCatalog, max_content_bytes: int) -> Event:
    """The event in these bytes, unchanged, once it is known that no worker will refuse it for what it says.

    Raises :class:`~tessera.errors.EventError`.
    """
    change = decode_value(value, max_content_bytes)
    check_routing(change, catalog, topic_of(catalog[change.source].kind))
    return Event(change.source, change.doc_id, value)
