"""The life of a generation on the command line: real processes, embedded servers, the bundled corpora."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from test_up import Up, running, until

pytestmark = pytest.mark.servers

NOTE = "# Quokkas\n\nA quokka sleeps in the shade.\n\n# Numbats\n\nA numbat eats nothing but termites.\n"


def case_file(folder: Path) -> Path:
    start = NOTE.index("nothing but")
    evidence = NOTE[start : start + 20]
    case = {
        "id": "numbats",
        "question": "what does a numbat eat",
        "source": "notes",
        "doc_id": "a.md",
        "start": start,
        "end": start + 20,
        "digest": f"sha256:{hashlib.sha256(evidence.encode()).hexdigest()}",
    }
    path = folder / "cases.json"
    path.write_text(json.dumps({"thresholds": {"min_recall": 1.0}, "cases": [case]}))
    return path


def generation(up: Up, *arguments: str) -> Any:
    [value] = up.json("generation", *arguments)
    return value


def refusal(up: Up, *arguments: str) -> str:
    failed = up.tessera("generation", *arguments)
    assert failed.returncode == (2 if "neither built in" in failed.stderr else 1), failed.stdout
    assert failed.stderr.count("\n") == 1
    return failed.stderr


def told(up: Up, *arguments: str) -> str:
    done = up.tessera("generation", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_creation_to_contraction(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text(NOTE)
    with running(tmp_path, "--source", "notes=notes") as up:
        up.wait_for("indexed")
        assert "g1          serving" in told(up, "list")
        assert "very same contract" in refusal(up, "create", "--policy", "paragraph")
        assert "neither built in" in refusal(up, "create", "--policy", "nothing")
        created = generation(up, "create", "--policy", "window-200", "--analyzer", "english")
        assert (created["name"], created["contract"]["analyzer"][:10]) == ("g2", "english@1/")
        (tmp_path / "narrow.toml").write_text('name = "narrow"\n[documents]\nparser = "window"\nsize = 9\n')
        assert "still building" in refusal(up, "create", "--policy", "narrow.toml")
        assert "state: it is building" in refusal(up, "cutover", "g2")
        filled = generation(up, "backfill", "g2", "--rate", "1000")
        assert (filled["done"], filled["documents"]) == (True, filled["of"])

        assert "none: `tessera generation compare" in told(up, "cutover", "g2", "--dry-run")
        assert "g2 holds what g1 holds" in told(up, "verify", "g2")
        compared = told(up, "compare", "g1", "g2", "--cases", str(case_file(tmp_path)))
        assert "passed min_recall 1: 1" in compared
        assert "g2 is gated until" in compared

        plan = generation(up, "cutover", "g2", "--dry-run")
        assert any(change.startswith("analyzer words@1/") for change in plan["changes"])
        assert "english@1" in told(up, "list")
        assert (plan["done"], plan["allowed"]) == (False, True)
        done = told(up, "cutover", "g2", "--retention", "0s")
        assert "done: release r2 serves g2, read back" in done
        assert up.json("search", "numbats")[0]["generation"] == "g2"
        assert "done: release r1 serves g1, read back" in told(up, "rollback", "--why", "trying it")
        assert up.json("search", "numbat")[0]["release"] == "r1"
        assert generation(up, "cutover", "g2", "--retention", "0s")["to_release"]["release"] == "r3"

        (notes / "a.md").write_text(NOTE.replace("termites", "ants"))
        until(lambda: len(up.hits("ants")) == 1)
        assert "g2' is served" in refusal(up, "contract", "g2")
        assert "held" in told(up, "hold", "g1", "--why", "audit")
        assert "a hold is on 'g1': audit" in refusal(up, "contract", "g1")
        told(up, "release-hold", "g1")
        assert generation(up, "contract", "g1")["state"] == "contracted"
        assert "never used again" in refusal(up, "create", "--policy", "paragraph", "--name", "g1")
        assert "no release before" in refusal(up, "rollback")
        shown = told(up, "show", "g2")
        for action in ("create", "rate", "verified", "compared", "cutover", "rollback"):
            assert f" {action} by " in shown
        assert {each["generation"]: each["state"] for each in generation(up, "list")} == {
            "g1": "contracted",
            "g2": "serving",
        }
        status = up.json("status")[0]
        assert (status["release"], status["totals"]["lag"]) == ("r3", 0)
        cite_what_is_assembled(up, tmp_path, (notes / "a.md").read_text())
        status = up.json("status")[0]
        assert (status["release"], status["assembly"]) == ("r4", "sentences@1")
        assert "assembly sentences@1 becomes joined@1" in told(up, "rollback")


def cite_what_is_assembled(up: Up, folder: Path, text: str) -> None:
    """The assembly becomes a release of its own, and its quotes are checked."""
    assert up.json("context", "numbat", "--budget", "100")[0]["assembly"] == "joined@1"
    changed = told(up, "cutover", "g2", "--assembly", "sentences")
    assert "assembly joined@1 becomes sentences@1" in changed
    assert "done: release r4 serves g2, read back" in changed
    assert (
        "no assembly 'best'; there are joined, sections, sentences"
        in up.tessera("generation", "cutover", "g2", "--assembly", "best").stderr
    )
    assert "contexts by sentences@1" in told(up, "show", "g2")
    [context] = up.json("context", "what does a numbat eat", "--budget", "40", "--source", "notes")
    assert (context["release"], context["assembly"]) == ("r4", "sentences@1")
    [piece] = context["pieces"]
    assert piece["text"] == text[piece["start"] : piece["end"]]
    assert "1 of 1 token (100%)" in up.tessera("context", "numbat", "--budget", "1").stdout
    quote = {name: piece[name] for name in ("revision", "content_digest", "score")}
    quotes = [{"uid": piece["uids"][0], "quote": "nothing but ants", **quote}]
    (folder / "quotes.json").write_text(json.dumps({"quotes": quotes}))
    [grounded] = up.json("ground", str(folder / "quotes.json"))
    assert (grounded["evidence"], grounded["quotes"][0]["verdict"]) == (True, "supported")
    for name, content, words in [
        ("over.json", {"quotes": quotes, "floor": 1000}, "no evidence: 1 of 1 quote supported"),
        ("none.json", {"quotes": [{**quotes[0], "quote": "everything"}]}, "absent    notes/a.md@"),
    ]:
        (folder / name).write_text(json.dumps(content))
        failed = up.tessera("ground", str(folder / name))
        assert failed.returncode == 1
        assert words in failed.stdout
    (folder / "bad.json").write_text("{}")
    assert "bad.json: quotes: Field required" in up.tessera("ground", str(folder / "bad.json")).stderr


def test_a_rebuild_reads_everything_again_from_the_log(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        documents = up.wait_for("indexed")["documents"]
        planned = up.tessera("generation", "rebuild", "--from-log")
        assert planned.returncode == 1
        assert "offsets 0 to" in planned.stdout
        assert "give --yes" in planned.stderr
        assert up.json("status")[0]["totals"]["documents"] == documents
        told(up, "rebuild", "--from-log", "--yes")
        until(
            lambda: all(shard["epoch"] == 1 and shard["lag"] == 0 for shard in up.json("status")[0]["shards"])
        )
        assert up.json("status")[0]["totals"]["documents"] == documents
