"""How errors leave the service: ``{"error": {"code", "message"}}`` and a status that tells whose fault."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from tessera import errors
from tessera.errors import EventError, InputError, StaleSnapshotError, TesseraError, UnavailableError

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request that is answered with this status, code and message."""

    def __init__(self, status: int, code: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details


def failure(status: int, code: str, message: str, **details: object) -> JSONResponse:
    """The response of an error; ``details`` stand beside code and message."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    body = {"error": {"code": code, "message": message, **details}}
    return JSONResponse(body, status_code=status, headers=headers)


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` in one form."""
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(TesseraError, _tessera)
    app.add_exception_handler(Exception, _unexpected)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return failure(error.status, error.code, str(error), **error.details)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "missing" and first["loc"] == ("body",):
        return failure(422, "invalid_request", "a JSON body is needed, {} at least", field="")
    if first["type"] == "json_invalid":
        return failure(422, "invalid_json", f"the body is not JSON: {first['ctx']['error']}", field="")
    if first["loc"] == ("body",):
        wanted = "a JSON object, sent with the header Content-Type: application/json"
        return failure(422, "invalid_request", f"the body must be {wanted}", field="")
    field = ".".join(str(part) for part in first["loc"] if part not in ("query", "path", "body"))
    return failure(422, "invalid_request", f"{field}: {first['msg']}", field=field)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # the framework's word for a body that is not even text
        return failure(422, "invalid_json", "the body is not JSON in UTF-8", field="")
    codes = {404: "not_found", 405: "method_not_allowed"}
    message = f"no such route: {request.url.path}" if error.status_code == 404 else str(error.detail)
    return failure(error.status_code, codes.get(error.status_code, "http_error"), message)


async def _tessera(request: Request, error: Exception) -> Response:
    if isinstance(error, EventError):
        return failure(422, error.reason, str(error), field=error.field)
    if isinstance(error, errors.RefusedError):
        status = 404 if error.reason == "unknown" else 409
        return failure(status, error.reason, str(error), next_step=error.next_step)
    if isinstance(error, InputError):
        return failure(422, "invalid_request", str(error))
    if isinstance(error, (UnavailableError, StaleSnapshotError)):
        return failure(503, "unavailable", str(error))
    logger.error("%s %s failed: %s", request.method, request.url.path, error)
    return failure(500, "internal", str(error))


async def _unexpected(request: Request, error: Exception) -> Response:
    # The server logs the traceback; its text could hold anything, so the caller does not get it.
    return failure(500, "internal", "an unexpected error; the service's log has its traceback")
