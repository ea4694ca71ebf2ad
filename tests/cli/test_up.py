"""The whole of ``tessera up``: real processes, real (embedded) servers, one folder of one's own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any

import httpx
import pytest

from tessera.addresses import read_address
from tessera.events.catalog import SourceCatalog
from tessera.kafka.publisher import Publisher

pytestmark = pytest.mark.servers

DEADLINE_S = 60.0
Event = dict[str, Any]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}


def tessera(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tessera", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        input=given,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


class Up:
    """A running ``tessera up --json``: its events in order, each waited for with a deadline."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tessera", "up", "--json", "--port", "0", *arguments],
            cwd=folder,
            env=environment(),
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

    def tessera(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Another command, run in the same folder."""
        return tessera(self.folder, *arguments, given=given)

    def json(self, *arguments: str, given: str = "") -> list[Any]:
        """The lines of JSON that another command prints."""
        done = self.tessera(*arguments, "--json", given=given)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def hits(self, query: str) -> list[Event]:
        [answer] = self.json("search", query)
        hits: list[Event] = answer["hits"]
        return hits

    def stop(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        status = self._process.wait(DEADLINE_S)
        self._close()
        return status

    def _close(self) -> None:
        self._reader.join(DEADLINE_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def ended(self) -> tuple[int, str]:
        """Wait for its end; its exit status and what it wrote to standard error."""
        status = self._process.wait(DEADLINE_S)
        assert self._process.stderr is not None
        told = self._process.stderr.read()
        self._close()
        return status, told

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
        answer = httpx.get(f"{ready['http']}/api/search?q=quokkas", timeout=10, trust_env=False)
        assert answer.json()["hits"][0]["uid"] == hit["uid"]

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
    failed = tessera(tmp_path, "up", "--port", "0", "--broker", "127.0.0.1:1")
    assert failed.returncode == 1
    assert "127.0.0.1:1" in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert time.monotonic() - started < 15


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline


def test_commands_find_a_running_up_and_publish_ingest_and_tend_dead_letters(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        up.wait_for("ready")
        event = {"v": 1, "op": "upsert", "source": "wiki", "doc_id": "a.md", "media_type": "text/plain"}
        lines = [json.dumps(event | {"content": "Echidnas.\n"}), json.dumps(event | {"op": "upsrt"})]
        refused = up.tessera("publish", "-", given="\n".join(lines))
        assert refused.returncode == 1
        assert "standard input, line 2, field 'op'" in refused.stderr
        [position] = up.json("publish", "-", given=lines[0])
        assert position["line"] == 1
        assert position["topic"] == "tessera.documents"
        until(lambda: [hit["source"] for hit in up.hits("echidnas")] == ["wiki"])
        assert up.json("search", "echidnas", "--as", "group:staff")[0]["hits"] == []

        folder = tmp_path / "more"
        folder.mkdir()
        (folder / "b.md").write_text("Bandicoots.\n")
        [report] = up.json("ingest", "more", "--source", "more")
        assert (report["published"], report["deleted"]) == (1, 0)
        assert len(up.hits("bandicoots")) == 1
        assert up.json("ingest", "more", "--source", "more")[0]["published"] == 0
        (folder / "b.md").unlink()
        assert up.json("ingest", "more", "--source", "more")[0]["deleted"] == 1
        until(lambda: up.hits("bandicoots") == [])

        asyncio.run(produce(tmp_path, b"wiki/c.md", b"not JSON"))
        until(lambda: len(up.json("deadletter", "list")[0]) == 1)
        [[letter]] = up.json("deadletter", "list")
        assert (letter["reason"], letter["key"]) == ("invalid_json", "wiki/c.md")
        [shown] = up.json("deadletter", "show", letter["id"])
        assert base64.b64decode(shown["value_base64"]) == b"not JSON"
        assert up.json("deadletter", "replay") == [{"replayed": [letter["id"]], "refused": {}}]
        until(lambda: [each["id"] != letter["id"] for each in up.json("deadletter", "list")[0]] == [True])
        [[again]] = up.json("deadletter", "list")
        assert up.json("deadletter", "discard", again["id"]) == [{"discarded": again["id"]}]
        assert up.json("deadletter", "list") == [[]]
        assert up.tessera("deadletter", "show", again["id"]).returncode == 1

        unknown = up.tessera("shard", "adopt-log", "tessera.documents/99")
        assert (unknown.returncode, "there is no shard" in unknown.stderr) == (2, True)
        for command in ("search echidnas", "status", "deadletter list"):
            assert up.tessera(*command.split()).returncode == 0


def test_up_outlives_its_valkey_and_a_name_that_is_not_utf8_and_ends_on_hangup(
    tmp_path: Path,
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "picture.png").touch()
    with running(tmp_path, "--source", "notes=notes") as up:
        assert "notes: 1 file was skipped" in up.wait_for("skipped", source="notes")["message"]
        up.wait_for("indexed")
        (notes / os.fsdecode(b"caf\xe9\n.pdf")).touch()
        problem = up.wait_for("problem", source="notes")["message"]
        assert "caf\\xe9" in problem
        assert "its name is not UTF-8; rename it" in problem

        kept = up.tessera("ingest", str(tmp_path), "--source", "handbook")
        assert kept.returncode == 1
        assert "keeps source 'handbook' in step with" in kept.stderr
        healthy = up.tessera("shard", "adopt-log", "--all")
        assert healthy.returncode == 2
        assert "with --yes" in healthy.stderr
        hint = up.tessera("search", "notice", "--source", "nosuch")
        assert (hint.returncode, "there is no source 'nosuch'" in hint.stderr) == (0, True)

        os.kill(server_pid(tmp_path / ".tessera" / "redis" / "redis.lock"), signal.SIGKILL)
        up.wait_for("recovered")
        (notes / "after.md").write_text("Cassowaries.\n")
        up.wait_for("changed", document="notes/after.md")
        assert [hit["doc_id"] for hit in up.hits("cassowaries")] == ["after.md"]
        assert {shard["epoch"] for shard in up.json("status")[0]["shards"]} == {0}
        assert up.stop(signal.SIGHUP) == 0
        assert not (tmp_path / ".tessera" / "address.json").exists()


def test_up_stops_all_of_it_when_its_broker_is_gone(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        pids = up.wait_for("ready")["pids"]
        os.kill(server_pid(tmp_path / ".tessera" / "broker" / "broker.lock"), signal.SIGKILL)
        up.wait_for("stopping")
        status, told = up.ended()
        assert status == 1
        assert "the embedded broker ended with status -9, and what it held is gone" in told
        assert told.count("\n") == 1
        assert not any(map(runs, pids.values()))
        assert not (tmp_path / ".tessera" / "address.json").exists()


def server_pid(lock: Path) -> int:
    """The process, not our child, that holds this lock file open: the server that inherited it."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and "tessera" not in (folder / "cmdline").read_bytes().decode():
            with suppress(OSError):
                if any(open_file.resolve() == lock for open_file in (folder / "fd").iterdir()):
                    return int(folder.name)
    pytest.fail(f"no server holds {lock}")


async def produce(folder: Path, key: bytes, value: bytes) -> None:
    """A record that no Tessera command would let through."""
    address = read_address(folder / ".tessera")
    assert address is not None
    async with Publisher(address.broker, SourceCatalog(), {}) as publisher:
        await publisher.publish_record("tessera.documents", key, value)
