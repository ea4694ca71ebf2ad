from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.cli.up import children
from tessera.cli.up.children import Child, last_words
from tessera.embedded.process import DataLock


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[DataLock]:
    lock = DataLock(tmp_path / "up.lock")
    yield lock
    lock.release()


NOW_S = 1_800_000_000.0


def logged(level: str, text: str, seconds_ago: float) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW_S - seconds_ago))
    return f"{at},123 {level} streams: {text}"


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        ([], 1, ""),
        ([logged("INFO", "ready", 1)], -9, ""),
        ([logged("ERROR", "lost the disk", 2), logged("INFO", "merged", 1)], -9, "lost the disk"),
        ([logged("ERROR", "long ago", 60), logged("INFO", "merged", 1)], 70, ""),
        ([logged("CRITICAL", "unknown error", 1), "Traceback …", "KeyError: 'x'"], 70, "KeyError: 'x'"),
        ([logged("INFO", "ready", 1), "tessera worker: no broker"], 1, "tessera worker: no broker"),
        (["something unrelated"], -9, ""),
    ],
)
def test_only_what_can_be_the_reason_of_an_end_is_quoted(
    tmp_path: Path, lines: list[str], status: int, words: str
) -> None:
    log = tmp_path / "worker.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    found = last_words(log, status, NOW_S)
    assert found.endswith(words)
    assert bool(found) == bool(words)


def test_a_child_that_dies_is_started_again_and_told_with_its_last_words(
    tmp_path: Path, lock: DataLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "POLL_S", 0.01)
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 0.01)
    told: list[str] = []
    code = f"""
import pathlib, sys, time
first = pathlib.Path({str(tmp_path / "ran")!r})
if not first.exists():
    first.touch()
    print("the servers are away", flush=True)
    sys.exit(3)
first.with_name("again").touch()
time.sleep(600)
"""

    async def run() -> None:
        child = Child("worker", [sys.executable, "-c", code], tmp_path / "worker.log", lock, {}, told.append)
        assert (child.state, child.pid) == ("stopped", None)
        child.start()
        keeping = asyncio.create_task(child.keep_running())
        async with asyncio.timeout(30):
            while not (tmp_path / "again").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        assert child.state == "running"
        assert child.pid is not None
        assert child.restarts == 1
        await child.stop(10)
        await asyncio.wait_for(keeping, 10)
        assert (child.state, child.pid) == ("stopped", None)

    asyncio.run(run())
    assert len(told) == 1
    assert "worker ended with status 3" in told[0]
    assert "the servers are away" in told[0]


def test_the_pause_grows_while_a_child_keeps_dying(
    tmp_path: Path, lock: DataLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "POLL_S", 0.001)
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(children, "LONGEST_PAUSE_S", 0.03)
    told: list[str] = []

    async def run() -> None:
        child = Child("worker", [sys.executable, "-c", ""], tmp_path / "worker.log", lock, {}, told.append)
        child.start()
        keeping = asyncio.create_task(child.keep_running())
        async with asyncio.timeout(30):
            while len(told) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await child.stop(10)
        await asyncio.wait_for(keeping, 10)

    asyncio.run(run())
    assert all(line.endswith(f"its log is {tmp_path / 'worker.log'}") for line in told)
    pauses = [line.split("starts again in ")[1].split(" s:")[0] for line in told[:3]]
    assert pauses == ["0.01", "0.02", "0.03"]
