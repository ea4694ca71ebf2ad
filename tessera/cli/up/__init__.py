"""``tessera up``: all of it in one terminal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tessera.cli.terminal import console
from tessera.cli.up.screen import Screen, machine, plain
from tessera.cli.up.session import Plan, Session
from tessera.cli.up.sources import bundled_folders, user_folders
from tessera.embedded.broker import EmbeddedBroker
from tessera.embedded.process import DataLock, free_port
from tessera.embedded.redis import EmbeddedRedis
from tessera.embedded.server import EmbeddedServer
from tessera.errors import SettingsError
from tessera.http.access import check_exposure
from tessera.settings import Settings, load_settings


def run(
    flags: Mapping[str, Any], config: Path | None, *, folders: Sequence[str], workers: int, as_json: bool
) -> None:
    """Start everything and return once it has been told to stop and has stopped."""
    watched = (*bundled_folders(), *user_folders(folders))
    settings = load_settings(
        flags,
        config=config,
        require=(),
        extra_sources=[folder.declaration for folder in watched],
        join_running=False,
    )
    check_exposure(settings)
    with ExitStack() as stack:
        settings, lock = _settled(settings, stack)
        settings, servers = _with_servers(settings, stack)
        plan = Plan(settings, watched, workers, config, servers)
        out = console()
        if as_json or not out.is_terminal:
            asyncio.run(Session(plan, lock, machine if as_json else plain).run())
        else:
            screen = Screen(out)
            session = Session(plan, lock, screen)
            with screen.shown(session.state):
                asyncio.run(session.run())


def _settled(settings: Settings, stack: ExitStack) -> tuple[Settings, DataLock]:
    """The settings with a data folder that is ours alone and a port that is free."""
    data_dir = settings.data_dir.expanduser().absolute()
    try:
        (data_dir / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"{data_dir}: cannot be made ({error.strerror}): choose another --data-dir"
        ) from None
    lock = DataLock(data_dir / "up.lock")
    stack.callback(lock.release)
    port = settings.port or free_port()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.host == "127.0.0.1":
            try:
                probe.bind((settings.host, port))
            except OSError:
                raise SettingsError(
                    f"port {port} is in use: choose another --port (0 takes a free one)"
                ) from None
    return settings.model_copy(update={"data_dir": data_dir, "port": port}), lock


def _with_servers(settings: Settings, stack: ExitStack) -> tuple[Settings, tuple[EmbeddedServer, ...]]:
    """The settings with embedded servers in place of those not named, and those servers."""
    found: dict[str, object] = {}
    servers: list[EmbeddedServer] = []
    if not settings.redis:
        redis = stack.enter_context(EmbeddedRedis(settings.data_dir / "redis"))
        found["redis"] = redis.url
        servers.append(redis)
    if not settings.broker:
        broker = stack.enter_context(EmbeddedBroker(settings.data_dir / "broker"))
        found |= {"broker": broker.address, "embedded": True, "kafka_protocol": "PLAINTEXT"}
        servers.append(broker)
    return settings.model_copy(update=found), tuple(servers)
