"""The service does what its OpenAPI description says, whatever it is asked: over a real connection."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from test_generations_api import MemoryLog
from test_service import HANDBOOK, FakePublisher, index_with

from tessera.http.app import create_app
from tessera.settings import Settings
from tessera.store.base import ShardId

STORE = asyncio.run(index_with(HANDBOOK))
APP = create_app(Settings(broker="b:1", redis="redis://r/0"), lambda: STORE)
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
ENDLESS = "/api/events"


def nothing_unforeseen(_context: object, response: schemathesis.Response, _case: schemathesis.Case) -> None:
    """A server that is away is described (503); an error that nobody foresaw is not."""
    assert response.status_code != 500, response.text


CHECKS = [
    nothing_unforeseen,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    """A broker that takes everything and a control topic in memory."""

    async def ends(_: str, shards: Sequence[ShardId], **_security: object) -> dict[ShardId, int]:
        return dict.fromkeys(shards, 5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tessera.http.services.Publisher", FakePublisher)
        patch.setattr("tessera.http.services.KafkaLog", MemoryLog)
        patch.setattr("tessera.overview.high_watermarks", ends)
        patch.setattr("tessera.generations.operations.high_watermarks", ends)
        yield


@pytest.fixture(scope="module")
def url(servers: None) -> Iterator[str]:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    server = _Server(uvicorn.Config(APP, log_level="critical"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.mark.filterwarnings("ignore")
@SCHEMA.exclude(path=ENDLESS).parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_is_described(case: schemathesis.Case, url: str) -> None:
    case.call_and_validate(base_url=url, checks=CHECKS)
