"""How things stand: status, metrics, health."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tessera.errors import TesseraError
from tessera.http.access import Monitor
from tessera.http.failures import failure
from tessera.http.measures import exposition
from tessera.http.schema import errors
from tessera.http.services import Serving

router = APIRouter(tags=["status"])

READY_S = 2.0
"""A readiness probe that hangs tells less than one that says no."""


@router.get("/api/status", responses=errors(401, 403, 503))
async def status(services: Serving, caller: Monitor) -> dict[str, Any]:
    """Shards with applied offset, end of log, lag, epoch and fence; generations; sources; dead letters."""
    return await services.overview()


@router.get("/metrics", response_class=PlainTextResponse, responses=errors(401, 403, 503))
async def metrics(services: Serving, caller: Monitor) -> Response:
    """Metrics in Prometheus' text format."""
    text = exposition(await services.overview())
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """200 while the process answers."""
    return {"status": "alive"}


@router.get("/readyz", responses=errors(503))
async def readyz(services: Serving) -> Response:
    """200 once the index is loaded and the store answers, 503 otherwise."""
    if not services.warm:
        return failure(503, "not_ready", "the index is not loaded yet")
    try:
        await asyncio.wait_for(services.store.ping(), READY_S)
    except (TesseraError, TimeoutError) as error:
        return failure(503, "not_ready", str(error) or "the store does not answer")
    return JSONResponse({"status": "ready"})
