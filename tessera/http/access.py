"""Who is calling, and what that caller may do and see.

With no token configured the service must be bound to a loopback address, and whoever reaches it is the
operator. With tokens a caller shows one of them as ``Authorization: Bearer …``; who it names is told by the
:class:`~tessera.callers.Directory`. The operator sees everything, others what their principals may see.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Query, Request

from tessera.callers.caller import EVERYONE, OPERATOR, Caller, Role
from tessera.callers.directory import Directory, is_guarded
from tessera.errors import SettingsError
from tessera.http.failures import RefusedError
from tessera.logs import AUDIT
from tessera.settings import Settings

logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposure(settings: Settings) -> None:
    """Refuse an address that others can reach while no token guards it (:class:`SettingsError`)."""
    if not is_guarded(settings) and not is_loopback(settings.host):
        raise SettingsError(
            f"refusing to bind {settings.host} without a token: whoever reaches it would be the operator; "
            "set TESSERA_OPERATOR_TOKEN and TESSERA_READ_TOKEN, or bind to 127.0.0.1"
        )


def identify(directory: Directory, authorization: str | None) -> Caller:
    """The caller that an ``Authorization`` header names; :class:`RefusedError` 401 where it names none."""
    if directory.is_open:
        return OPERATOR
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise RefusedError(
            401, "unauthorized", "a token is needed: send the header Authorization: Bearer <token>"
        )
    try:
        caller = directory.identify(token.strip())
    except SettingsError as error:
        # Where the file lies is no caller's business.
        logger.error("callers cannot be told: %s", error)
        raise RefusedError(
            503, "callers_unknown", "tokens cannot be checked: see the service's log"
        ) from None
    if caller is None:
        raise RefusedError(401, "unauthorized", "the token names nobody, or is no longer good")
    return caller


async def current_caller(request: Request) -> Caller:
    """The caller of this request."""
    return identify(request.app.state.callers, request.headers.get("authorization"))


def _requires(caller: Caller, role: Role, request: Request) -> Caller:
    if not caller.may(role):
        _note(logging.WARNING, "refused", caller, request)
        raise RefusedError(403, "forbidden", f"this needs the role {role}; the token is a {caller.role}'s")
    return caller


async def monitor(request: Request, caller: Annotated[Caller, Depends(current_caller)]) -> Caller:
    """The caller, who may see counts of everything (403 otherwise)."""
    return _requires(caller, "monitor", request)


async def operator(request: Request, caller: Annotated[Caller, Depends(current_caller)]) -> Caller:
    """The caller, who must be the operator (403 otherwise); what it asks for is noted."""
    _requires(caller, "operator", request)
    _note(logging.INFO, "asked for", caller, request)
    return caller


def _note(level: int, what: str, caller: Caller, request: Request) -> None:
    """A line of the audit log. Of a step of a generation's life, the control log also holds the reason."""
    client = request.client.host if request.client is not None else "unknown"
    path = quote(request.url.path)  # as it can stand in a line, whatever was asked for
    extra = {
        "actor": caller.name,
        "role": caller.role,
        "client": client,
        "operation": f"{request.method} {path}",
    }
    audit.log(level, "%s %s by %s (%s) at %s", request.method, path, caller.name, what, client, extra=extra)


async def visible_principals(
    caller: Annotated[Caller, Depends(current_caller)],
    on_behalf_of: Annotated[
        list[str] | None,
        Query(
            alias="as", description="Ask on behalf of these principals; they can only narrow what is seen."
        ),
    ] = None,
) -> frozenset[str] | None:
    """What this request may see: the caller's principals, narrowed to those it asks for."""
    return narrowed(caller, on_behalf_of or ())


def narrowed(caller: Caller, asked: Sequence[str]) -> frozenset[str] | None:
    """The caller's principals, or those asked for and everyone's; 403 where the caller lacks one of them."""
    if not asked:
        return caller.principals
    if not all(map(str.strip, asked)):
        raise RefusedError(422, "invalid_request", "as: a principal is not empty", field="as")
    wanted = frozenset(asked) | {EVERYONE}
    if caller.principals is not None and not wanted <= caller.principals:
        raise RefusedError(403, "forbidden", "the token does not hold all of these principals")
    return wanted


Reader = Annotated[Caller, Depends(current_caller)]
Monitor = Annotated[Caller, Depends(monitor)]
Operator = Annotated[Caller, Depends(operator)]
Principals = Annotated[frozenset[str] | None, Depends(visible_principals)]
