"""The whole of ``tessera up``: real processes, real (embedded) servers, one folder of one's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any

import pytest

pytestmark = pytest.mark.servers

DEADLINE_S = 60.0
Event = dict[str, Any]


class Up:
    """A running ``tessera up --json``: its events in order, each waited for with a deadline."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
        self.environment = environment
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tessera", "up", "--json", "--port", "0", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        assert self._process.stdout is not None
        self._reader = Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._lines.put(line)

    def wait_for(self, event: str, **fields: object) -> Event:
        deadline = time.monotonic() + DEADLINE_S
        seen: list[Event] = []
        while time.monotonic() < deadline:
            try:
                found: Event = json.loads(self._lines.get(timeout=0.1))
            except Empty:
                if self._process.poll() is not None:
                    break
                continue
            seen.append(found)
            if found["event"] == event and fields.items() <= found.items():
                return found
        pytest.fail(f"no {event} {fields} among {seen}")

    def tessera(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command, run in the same folder."""
        return subprocess.run(
            [sys.executable, "-m", "tessera", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def hits(self, query: str) -> list[Event]:
        found = self.tessera("search", query, "--json")
        assert found.returncode == 0, found.stderr
        hits: list[Event] = json.loads(found.stdout)["hits"]
        return hits

    def stop(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        status = self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return status

    def end(self) -> None:
        if self._process.poll() is None:
            self.stop(signal.SIGTERM)


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Up]:
    up = Up(folder, *arguments)
    try:
        yield up
    finally:
        up.end()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_up_indexes_follows_survives_a_dead_worker_and_starts_again(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "first.md").write_text("# First\n\nA note about quokkas.\n")
    (notes / "second.md").write_text("# Second\n\nA note about wombats.\n")

    with running(tmp_path, "--source", "notes=notes") as up:
        ready = up.wait_for("ready")
        indexed = up.wait_for("indexed")
        assert indexed["documents"] > 40
        [hit] = up.hits("quokkas")
        assert (hit["doc_id"], hit["text"]) == ("first.md", "# First\n\nA note about quokkas.")
        with urllib.request.urlopen(f"{ready['http']}/api/search?q=quokkas", timeout=10) as response:
            assert json.load(response)["hits"][0]["uid"] == hit["uid"]

        (notes / "first.md").write_text("# First\n\nA note about platypuses.\n")
        up.wait_for("changed", document="notes/first.md")
        assert up.hits("quokkas") == []
        assert [hit["doc_id"] for hit in up.hits("platypuses")] == ["first.md"]

        refused = up.tessera("up", "--port", "0")
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "is in use by process" in refused.stderr

        os.kill(ready["pids"]["worker"], signal.SIGKILL)
        assert "ended with status -9" in up.wait_for("child", name="worker")["message"]
        (notes / "third.md").write_text("Numbats.\n")
        up.wait_for("changed", document="notes/third.md")
        assert [hit["doc_id"] for hit in up.hits("numbats")] == ["third.md"]

        status = json.loads(up.tessera("status", "--json").stdout)
        assert status["totals"]["lag"] == 0
        assert status["sources"]["notes"]["documents"] == 3
        assert up.stop(signal.SIGINT) == 0
        assert not any(map(runs, ready["pids"].values()))
        assert not (tmp_path / ".tessera" / "address.json").exists()

    (notes / "second.md").unlink()
    with running(tmp_path, "--source", "notes=notes") as up:
        again = up.wait_for("indexed")
        assert again["documents"] == indexed["documents"]  # one came, one went
        assert up.hits("wombats") == []
        assert len(up.hits("platypuses")) == 1
        status = json.loads(up.tessera("status", "--json").stdout)
        assert {shard["epoch"] for shard in status["shards"]} == {1}
        assert up.stop(signal.SIGTERM) == 0


def test_up_says_within_ten_seconds_that_a_broker_cannot_be_reached(tmp_path: Path) -> None:
    started = time.monotonic()
    up = Up(tmp_path, "--broker", "127.0.0.1:1")
    _, errors = up._process.communicate(timeout=DEADLINE_S)
    assert up._process.returncode == 1
    assert "127.0.0.1:1" in errors
    assert errors.count("\n") == 1
    assert time.monotonic() - started < 15
