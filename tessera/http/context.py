"""``GET /api/context``, ``POST /api/ground`` and ``POST /api/outcomes``."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from tessera.http.access import Principals, Reader
from tessera.http.measures import OUTCOMES, QUOTES, UTILIZATION, searching
from tessera.http.schema import ContextBody, GroundingBody, GroundRequest, OutcomeRequest, errors
from tessera.http.services import Serving
from tessera.search.context import Asked

router = APIRouter(tags=["context"])


@router.get("/api/context", response_model=ContextBody, responses=errors(401, 403, 422, 503))
async def context(
    services: Serving,
    principals: Principals,
    q: Annotated[str, Query(description="What to find evidence for.", max_length=10_000)],
    budget: Annotated[int, Query(description="Tokens (words@1) at most, 1 to 100,000.")],
    k: Annotated[
        int | None, Query(description="Hits to look at; left out: as many as the assembly does.")
    ] = None,
    floor: Annotated[float, Query(description="Hits that score less are none.")] = 0.0,
    source: Annotated[str | None, Query(description="Only from this source.")] = None,
    generation: Annotated[str | None, Query(description="Another generation than the served one.")] = None,
) -> Response:
    """A context of verbatim pieces within a budget, made as the release says of what the caller may see."""
    with searching(services.searcher.release) as search:
        answer = await services.searcher.context(Asked(q, budget, k, floor), principals, source, generation)
        search.release, search.hits = answer.release, answer.assembled.hits
    UTILIZATION.labels(answer.assembly).observe(answer.assembled.used / answer.assembled.budget)
    return Response(orjson.dumps(answer.to_value()), media_type="application/json")


@router.post("/api/ground", response_model=GroundingBody, responses=errors(401, 403, 413, 422, 503))
async def ground(body: GroundRequest, services: Serving, principals: Principals) -> Response:
    """Whether quotes stand, verbatim, in the chunks they are cited from, as these are now."""
    quotes = body.to_quotes()
    answer = await services.searcher.ground(quotes, body.floor, principals, body.generation)
    for grounded in answer.quotes:
        QUOTES.labels(grounded.verdict).inc()
    return Response(orjson.dumps(answer.to_value()), media_type="application/json")


@router.post("/api/outcomes", status_code=204, responses=errors(401, 413, 422))
async def outcomes(body: OutcomeRequest, caller: Reader) -> None:
    """Count how answers ended, as their callers judge it: shown in metrics and on the dashboard."""
    for outcome in body.outcomes:
        OUTCOMES.labels(outcome).inc()
