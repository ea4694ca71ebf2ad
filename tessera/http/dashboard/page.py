"""The page at ``/`` and its files. They hold no data: what they show, the browser asks the API for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FILES: Final = Path(__file__).parent / "static"
PATH: Final = "/dashboard"

HEADERS: Final = {
    # Nothing runs but the package's own files, nothing is sent elsewhere, no other site frames the buttons.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked for anew each time and answered 304: an upgraded service is never shown by its old page.
    "Cache-Control": "no-cache",
}

router = APIRouter()


class DashboardFiles(StaticFiles):
    """The page's files, with :data:`HEADERS`."""

    def __init__(self) -> None:
        super().__init__(directory=FILES)

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """The file, or 304 where the browser has it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """The dashboard."""
    return FileResponse(FILES / "index.html", headers=HEADERS)
