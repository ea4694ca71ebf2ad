"""``POST /api/changes``."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request

from tessera.errors import EventError
from tessera.events.acceptance import accepted_event
from tessera.events.encoding import Event
from tessera.http.access import Operator
from tessera.http.failures import RefusedError
from tessera.http.schema import EVENTS_BODY, PositionBody, errors
from tessera.http.services import Serving
from tessera.settings import Settings
from tessera.tracing import publishing

router = APIRouter(tags=["changes"])

MAX_EVENTS = 10_000
"""Positions of all events are held until the last one is acknowledged."""


@router.post(
    "/api/changes",
    status_code=202,
    response_model=list[PositionBody],
    responses=errors(401, 403, 413, 415, 422, 503),
    openapi_extra=EVENTS_BODY,
)
async def publish(request: Request, services: Serving, caller: Operator) -> list[PositionBody]:
    """Publish one change event, or a list of them, and tell where each one went once the broker has all.

    All are checked before the first is sent. They are searchable as soon as their shard has applied them.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # Also keeps out what a foreign page may send without asking: forms and plain text.
        raise RefusedError(415, "unsupported_media_type", "send the header Content-Type: application/json")
    events = _events(await request.body(), services.settings)
    with publishing(len(events), request.headers):
        positions = await services.publish(events)
    return [PositionBody(**position._asdict()) for position in positions]


def _events(body: bytes, settings: Settings) -> list[Event]:
    """The events in a body. Raises RefusedError 422 that names the event and the field at fault."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RefusedError(422, "invalid_json", f"the body is not JSON: {error}", field="") from None
    if not isinstance(parsed, list):
        return [accepted_event(body, settings.catalog, settings.max_document_bytes)]
    if not 0 < len(parsed) <= MAX_EVENTS:
        raise RefusedError(422, "out_of_range", f"send 1 to {MAX_EVENTS:,} events at once", field="")
    events = []
    for index, fields in enumerate(parsed):
        try:
            value = orjson.dumps(fields)
            events.append(accepted_event(value, settings.catalog, settings.max_document_bytes))
        except EventError as error:
            message = f"event {index}: {error}; nothing was published"
            raise RefusedError(422, error.reason, message, field=error.field, event=index) from None
    return events
