from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from tessera.addresses import Address, write_address
from tessera.cli import main as entry
from tessera.cli.up.sources import bundled_folders, user_folders
from tessera.errors import SettingsError, SourceError
from tessera.events.catalog import SourceDeclaration
from tessera.sources.bundled import BUNDLED

EVENT = {
    "v": 1,
    "op": "upsert",
    "source": "notes",
    "doc_id": "a.md",
    "media_type": "text/markdown",
    "content": "x",
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TESSERA_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands() -> dict[str, object]:
    found: dict[str, object] = {}

    def walk(path: str, command: object) -> None:
        children = getattr(command, "commands", None)
        if children is None:
            found[path] = command
        else:
            for name, child in children.items():
                walk(f"{path} {name}".strip(), child)

    walk("", typer.main.get_command(entry.app))
    return found


COMMANDS = commands()


def test_every_command_of_the_interface_is_there() -> None:
    assert set(COMMANDS) == {
        "up", "worker", "serve", "ingest", "publish", "search", "context", "coverage", "ground", "chunk",
        "audit", "lab run", "lab case",
        "token add", "token list", "token revoke", "status", "shard adopt-log",
        "deadletter list", "deadletter show", "deadletter replay", "deadletter discard",
        *(f"generation {name}" for name in (
            "create", "list", "show", "backfill", "pause", "resume", "verify", "compare", "abandon",
            "rebuild", "cutover", "rollback", "hold", "release-hold", "contract",
        )),
    }  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run([*path.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Example: tessera {path}" in " ".join(shown.split())
    assert "--json" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["search"], "see tessera search --help"),
        (["search", "x", "-k", "many"], "see tessera search --help"),
        (["search", "x"], "no Redis is named"),
        (["generation", "create"], "see tessera generation create --help"),
        (["generation", "cutover", "g2", "--expires", "1h"], "--expires goes with --waive"),
        (["generation", "rebuild"], "give --from-log"),
        (["status"], "no Kafka broker is named"),
        (["shard", "adopt-log", "--redis", "redis://127.0.0.1:1/0"], "name the shards"),
        (["shard", "adopt-log", "documents", "--redis", "redis://127.0.0.1:1/0"], "write TOPIC/PARTITION"),
        (["chunk", "x.md", "--media-type", "text/html"], "--media-type"),
        (["up", "--source", "notes"], "is not NAME=PATH[,KIND]"),
        (["up", "--source", "notes=.,bogus"], "kind 'bogus'; the kinds are documents, devex, github"),
        (["search", "x", "--as", " "], "--as: a principal is not empty"),
        (["serve", "--host", "192.0.2.1", "--broker", "b:1", "--redis", "redis://r/0"], "refusing to bind"),
        (["search", "x", "--redis", "http://r"], "--redis: http is not one of"),
    ],
)
def test_wrong_use_is_told_in_one_line_with_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(arguments) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    "arguments", [["search", "x"], ["deadletter", "list"], ["status", "--broker", "127.0.0.1:1"]]
)
def test_a_server_that_is_not_there_is_told_with_its_address_and_status_1(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    assert entry.run([*arguments, "--redis", "redis://user:hunter2@127.0.0.1:1/0"]) == 1
    assert time.monotonic() - started < 10
    shown = capsys.readouterr().err
    assert "127.0.0.1:1" in shown
    assert shown.count("\n") == 1
    assert "hunter2" not in shown


def test_help_comes_fast_because_nothing_heavy_is_imported() -> None:
    code = "import sys, tessera.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"redis", "aiokafka", "pydantic_settings", "fastapi", "uvicorn", "numpy", "faust", "streams"}
    assert heavy.isdisjoint(done.stdout.split())


def test_chunk_shows_ranges_headings_and_nothing_that_drives_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.md").write_text("# Title\n\nBody \x1b[31mred\n\nMore\n")
    assert entry.run(["chunk", "a.md"]) == 0
    shown = capsys.readouterr().out
    assert "a:chunk0" in shown
    assert "lines 1-3" in shown
    assert "\\x1b[31mred" in shown
    assert "\x1b[31mred" not in shown
    assert entry.run(["chunk", "a.md", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    text = Path("a.md").read_text()
    assert [chunk["text"] for chunk in report["chunks"]] == [
        text[c["start"] : c["end"]] for c in report["chunks"]
    ]
    assert report["uncovered"] == []


def test_chunk_tells_the_media_type_by_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name, expected in [("a.md", "text/markdown"), ("a.txt", "text/plain"), ("a.log", "text/x-run-log")]:
        Path(name).write_text("x\n")
        assert entry.run(["chunk", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["media_type"] == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 3 is not JSON: "),
        (json.dumps(EVENT | {"revision": -1}), "line 3, field 'revision': "),
        (json.dumps({"v": 1, "op": "delete", "source": "a/b", "doc_id": "x"}), "line 3, field 'source': "),
        ('{"v": 1, "op": "append", "source": "notes", "doc_id": "x", "first_line": 1, "content": ""}',
         "(append_to_documents)"),
    ],
)  # fmt: skip
def test_publish_names_line_and_field_before_anything_is_sent(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("changes.jsonl").write_text(f"{json.dumps(EVENT)}\n\n{line}\n")
    servers = ["--broker", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0"]
    assert entry.run(["publish", "changes.jsonl", *servers]) == 1
    shown = capsys.readouterr().err
    assert "changes.jsonl, " in shown
    assert words in shown
    assert "nothing was published" in shown


def test_chunk_says_what_to_do_about_an_unknown_policy(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.md").write_text("x\n")
    assert entry.run(["chunk", "a.md", "--policy", "bogus"]) == 2
    assert "give a built-in name or a TOML file" in capsys.readouterr().err


def test_ingest_leaves_alone_what_a_running_up_keeps_in_step(capsys: pytest.CaptureFixture[str]) -> None:
    redis = "redis://127.0.0.1:1/0"
    Path("data").mkdir()
    address = Address(os.getpid(), "127.0.0.1:1", redis, "http://127.0.0.1:1", kept={"notes": "/my/notes"})
    write_address(Path("data"), address)
    assert entry.run(["ingest", ".", "--source", "notes", "--data-dir", "data"]) == 1
    told = capsys.readouterr().err
    assert "in step with /my/notes: use another --source" in told
    assert told.count("\n") == 1
    # Another index is another matter: only its server is missing here.
    other = ["--redis", "redis://127.0.0.1:2/0"]
    assert entry.run(["ingest", ".", "--source", "notes", "--data-dir", "data", *other]) == 1
    assert "127.0.0.1:2" in capsys.readouterr().err


def test_ingest_refuses_a_kind_that_the_workers_do_not_know_of(capsys: pytest.CaptureFixture[str]) -> None:
    servers = ["--broker", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0"]
    assert entry.run(["ingest", ".", "--source", "ci", "--kind", "github", *servers]) == 2
    assert "declare [sources.ci]" in capsys.readouterr().err
    assert entry.run(["ingest", "nowhere", "--source", "ci", *servers]) == 1
    assert "nowhere is not a folder" in capsys.readouterr().err


def test_folders_are_given_as_name_and_path_and_kind() -> None:
    Path("my logs,old").mkdir()
    [plain, logs] = user_folders(["notes=.", "ci=my logs,old,github"])
    assert plain.path == Path.cwd()
    assert plain.declaration == SourceDeclaration("notes", "documents", "event", ("*",))
    assert logs.path.name == "my logs,old"
    assert logs.declaration == SourceDeclaration("ci", "github", "log", ("*",))
    for wrong in ("notes", "=.", "notes=", "a/b=."):
        with pytest.raises(SettingsError):
            user_folders([wrong])
    with pytest.raises(SettingsError, match="taken"):
        user_folders(["handbook=."])
    with pytest.raises(SourceError):
        user_folders(["notes=nowhere"])


def test_the_bundled_corpora_are_there() -> None:
    folders = bundled_folders()
    assert [folder.declaration.name for folder in folders] == list(BUNDLED)
    assert all(any(folder.path.iterdir()) for folder in folders)
