"""``tessera worker`` and ``tessera serve``: one part each, for production."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tessera.cli.servers import opened_store
from tessera.cli.terminal import print_json
from tessera.errors import SettingsError, UnavailableError
from tessera.kafka.security import security_of
from tessera.logs import configure_logging
from tessera.settings import CONFIG_VARIABLE, Settings, load_settings, redacted
from tessera.store.base import ShardStore
from tessera.tracing import start_tracing

logger = logging.getLogger(__name__)

GRACE_S = 5
"""Requests still running after this are cut off: a stop must not wait for a client that reads slowly."""

HEAL_S = 3.0
"""A broker that is away must not keep searchers from starting."""

MAX_CONCURRENT = 512
"""Connections beyond it are answered 503: a crowd must not exhaust the memory of the process."""


def worker(flags: Mapping[str, Any], config: Path | None, *, as_json: bool) -> NoReturn:
    """Become a stream worker: this process is replaced, so that signals reach the worker itself."""
    settings = load_settings(flags, config=config)
    if as_json:
        print_json({"broker": settings.broker, "redis": redacted(settings.redis), "pid": os.getpid()})
    environment = {**os.environ, **settings.environment()}
    if config is not None:
        environment[CONFIG_VARIABLE] = str(config)
    # -m streams and no import: the engine's side never depends on the stream layer.
    os.execve(sys.executable, [sys.executable, "-m", "streams"], environment)  # noqa: S606 - no shell is involved


def serve(flags: Mapping[str, Any], config: Path | None, *, as_json: bool) -> None:
    """Run the HTTP service until SIGTERM or SIGINT."""
    settings = load_settings(flags, config=config)
    from tessera.http.access import check_exposure

    check_exposure(settings)
    with _bound(settings.host, settings.port) as listening:
        asyncio.run(_serve(settings, listening, as_json=as_json))


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the address; :class:`SettingsError` where it cannot be had."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(f"{host}: no address to bind ({error.strerror}): check --host") from None
    with listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
        except OSError as error:
            raise SettingsError(
                f"{host}:{port} cannot be bound ({error.strerror}): choose another --port"
            ) from None
        yield listening


async def _heal(settings: Settings, store: ShardStore) -> None:
    """Bring the registry up to the control log; where the broker is away, searching goes on without it."""
    from tessera.generations.control import ControlLog, KafkaLog

    try:
        async with asyncio.timeout(HEAL_S):
            await ControlLog(KafkaLog(settings.broker, security_of(settings)), settings.namespace).reapply(
                store
            )
    except (SettingsError, UnavailableError, TimeoutError) as error:
        logger.warning("the control log was not looked at: %s", error or "the broker does not answer")


async def _serve(settings: Settings, listening: socket.socket, *, as_json: bool) -> None:
    import uvicorn

    from tessera.http.app import create_app

    configure_logging(settings.log_format, own_level=logging.WARNING)
    stop_tracing = start_tracing("tessera-serve")
    async with opened_store(settings) as store:  # one that cannot be reached is told before anything listens
        await _heal(settings, store)

    app = create_app(settings)

    class Server(uvicorn.Server):
        """Leaves signals to us: uvicorn raises them again once it has stopped, which looks like a crash."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Ends the streams of events first: connections are waited for, and those would never end."""
            await app.state.feed.close()
            await super().shutdown(sockets)

    server = Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # whoever is on this machine could have its steps recorded as another's
            limit_concurrency=MAX_CONCURRENT,
            timeout_graceful_shutdown=GRACE_S,
        )
    )

    def stop() -> None:
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    host = f"[{settings.host}]" if ":" in settings.host.strip("[]") else settings.host
    url = f"http://{host}:{listening.getsockname()[1]}"
    if as_json:
        print_json({"http": url})
    else:
        print(f"serving {url} (API at {url}/docs)", flush=True)
    try:
        await server.serve(sockets=[listening])
    finally:
        stop_tracing()
