"""What is refused before a route sees it: foreign hosts and origins, strangers' bodies, endless ones."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tessera.http.failures import RefusedError, failure

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """ASGI middleware. ``loopback``: the service is bound to loopback, where the caller may be the operator.

    ``identify`` raises for an ``Authorization`` header that names nobody. Routes ask it too, but a body is
    read and parsed before: whoever reaches the service could fill its memory and hold up every query.

    There, a web page in the user's browser must not become the operator: a name that an attacker's DNS
    points to 127.0.0.1 fails the check of ``Host``, a script of another site that of ``Origin``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        loopback: bool,
        max_body_bytes: int,
        identify: Callable[[str | None], object],
    ) -> None:
        self._app = app
        self._identify = identify
        self._loopback = loopback
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a sound request on; answer any other."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope["method"], Headers(scope=scope))
        except RefusedError as error:
            await failure(error.status, error.code, str(error))(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, self._max_body_bytes), send)

    def _check(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._loopback and _name(host) not in LOOPBACK_NAMES:
            raise RefusedError(
                421, "foreign_host", f"Host {host!r} is not this machine: use 127.0.0.1 or localhost"
            )
        origin = headers.get("origin")
        if method not in SAFE_METHODS and origin is not None and not _is_from(origin, host):
            raise RefusedError(
                403, "foreign_origin", "requests that change something must come from this service"
            )
        if method not in SAFE_METHODS:
            self._identify(headers.get("authorization"))
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > self._max_body_bytes:
            raise _too_large(self._max_body_bytes)


def _is_from(origin: str, host: str) -> bool:
    """Whether an ``Origin`` is that of the host; one that is malformed is nobody's."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _bounded(receive: Receive, limit: int) -> Receive:
    """``receive`` that counts the body: a chunked request tells no length beforehand."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise _too_large(limit)
        return message

    return counted


def _too_large(limit: int) -> RefusedError:
    return RefusedError(413, "too_large", f"the body is over {limit:,} bytes: send fewer events at once")
