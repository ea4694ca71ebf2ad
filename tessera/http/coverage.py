"""``GET /api/coverage``."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from tessera.coverage import MAX_DOCUMENTS, read_coverage
from tessera.generations.bootstrap import read_registry
from tessera.http.access import Principals
from tessera.http.schema import CoverageBody, errors
from tessera.http.services import Serving

router = APIRouter(tags=["documents"])


@router.get("/api/coverage", response_model=CoverageBody, responses=errors(401, 403, 422, 503))
async def coverage(
    services: Serving,
    principals: Principals,
    source: Annotated[str | None, Query(description="Only this source.")] = None,
    generation: Annotated[str | None, Query(description="Another generation than the served one.")] = None,
    against: Annotated[str | None, Query(description="Tell what only one of both covers.")] = None,
    limit: Annotated[int, Query(description="Documents told of at most.", ge=0, le=MAX_DOCUMENTS)] = 50,
) -> Response:
    """What no chunk holds and what could not be read, with the lines, of what the caller may see."""
    named = generation or (await read_registry(services.store)).serving.name
    found = await read_coverage(
        services.store,
        services.searcher,
        named,
        against=against,
        source=source,
        principals=principals,
        limit=limit,
    )
    return Response(orjson.dumps(found.to_value()), media_type="application/json")
