"""``GET /api/search``."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from tessera.http.access import Principals
from tessera.http.measures import searching
from tessera.http.schema import AnswerBody, errors
from tessera.http.services import Serving

router = APIRouter(tags=["search"])


@router.get("/api/search", response_model=AnswerBody, responses=errors(401, 403, 422, 503))
async def search(
    services: Serving,
    principals: Principals,
    q: Annotated[str, Query(description="What to search for.", max_length=10_000)],
    k: Annotated[int, Query(description="How many hits.")] = 10,
    source: Annotated[str | None, Query(description="Only hits from this source.")] = None,
    generation: Annotated[str | None, Query(description="Another generation than the served one.")] = None,
) -> Response:
    """The best chunks for a query, over everything committed before it, that the caller may see."""
    with searching(services.searcher.release) as search:
        answer = await services.search(q, k, principals, source, generation)
        search.release, search.hits = answer.release, len(answer.hits)
    # Written by hand: the answer is checked against its model in tests, not on every request.
    return Response(orjson.dumps(answer.to_value()), media_type="application/json")
