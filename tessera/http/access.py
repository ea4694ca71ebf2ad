"""Who is calling, and what that caller may do and see.

With no token configured the service must be bound to a loopback address, and whoever reaches it is the
operator. With tokens a caller shows one of them as ``Authorization: Bearer …``. The operator sees
everything; the read token sees what its principals (setting ``read_principals``) may see.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import compare_digest
from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import SecretStr

from tessera.errors import SettingsError
from tessera.http.failures import RefusedError
from tessera.settings import Settings

EVERYONE = "*"


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller. ``principals`` None is the operator, who sees everything."""

    principals: frozenset[str] | None

    @property
    def is_operator(self) -> bool:
        """Whether the caller may change things."""
        return self.principals is None


OPERATOR = Caller(None)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposure(settings: Settings) -> None:
    """Refuse an address that others can reach while no token guards it (:class:`SettingsError`)."""
    if settings.read_token is None and settings.operator_token is None and not is_loopback(settings.host):
        raise SettingsError(
            f"refusing to bind {settings.host} without a token: whoever reaches it would be the operator; "
            "set TESSERA_OPERATOR_TOKEN and TESSERA_READ_TOKEN, or bind to 127.0.0.1"
        )


def identify(settings: Settings, authorization: str | None) -> Caller:
    """The caller that an ``Authorization`` header names; :class:`RefusedError` 401 where it names none."""
    if settings.read_token is None and settings.operator_token is None:
        return OPERATOR
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise RefusedError(
            401, "unauthorized", "a token is needed: send the header Authorization: Bearer <token>"
        )
    if _matches(settings.operator_token, token):
        return OPERATOR
    if _matches(settings.read_token, token):
        return Caller(frozenset(settings.read_principals) | {EVERYONE})
    raise RefusedError(401, "unauthorized", "the token is neither the read token nor the operator token")


def _matches(secret: SecretStr | None, token: str) -> bool:
    # Constant time: how long a comparison takes must not tell how much of the token was right.
    return secret is not None and compare_digest(secret.get_secret_value().encode(), token.strip().encode())


async def current_caller(request: Request) -> Caller:
    """The caller of this request."""
    settings: Settings = request.app.state.settings
    return identify(settings, request.headers.get("authorization"))


async def operator(caller: Annotated[Caller, Depends(current_caller)]) -> Caller:
    """The caller, who must be the operator (403 otherwise)."""
    if not caller.is_operator:
        raise RefusedError(403, "forbidden", "this needs the operator token; the read token may only read")
    return caller


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
Operator = Annotated[Caller, Depends(operator)]
Principals = Annotated[frozenset[str] | None, Depends(visible_principals)]
