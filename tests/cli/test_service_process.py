"""The service as a process: what its server is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from tessera.cli import parts
from tessera.settings import Settings


class ToldError(Exception):
    """The server's configuration was asked for."""


def test_no_header_tells_the_service_who_its_caller_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    def config(_app: object, **given: Any) -> None:
        told.update(given)
        raise ToldError

    @asynccontextmanager
    async def no_store(_settings: Settings) -> AsyncIterator[None]:
        yield

    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(uvicorn, "Config", config)
    monkeypatch.setattr(parts, "opened_store", no_store)
    monkeypatch.setattr(parts, "_heal", nothing)
    settings = Settings(broker="b:1", redis="redis://r/0")
    with socket.socket() as listening, pytest.raises(ToldError):
        asyncio.run(parts._serve(settings, listening, as_json=False))
    assert told["proxy_headers"] is False
