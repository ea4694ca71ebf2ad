"""The chunk ids of the bundled logs are pinned: no change of the Markdown rule may move them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bundled import BundledFile, bundled_files

from tessera.ingestion import chunk_text
from tessera.policies import load_policy

GOLDEN = Path(__file__).parent
HEADING = re.compile(r"^#{1,6}[ \t]+\S")
LOGS = [file for file in bundled_files() if file.source != "handbook"]
RUN_LOGS = [file for file in LOGS if file.source == "devex"]


@pytest.mark.parametrize("source", ["devex", "github"])
def test_ids_and_lines_of_bundled_logs_are_those_on_record(source: str) -> None:
    policy = load_policy("paragraph")
    found = {
        file.doc_id: {
            chunk.id: [chunk.start_line, chunk.end_line]
            for chunk in policy.chunk(file.text, file.stem, media_type=file.media_type)
        }
        for file in LOGS
        if file.source == source
    }
    assert found == json.loads((GOLDEN / f"{source}_chunks.json").read_text())


@pytest.mark.parametrize("file", LOGS, ids=lambda file: file.doc_id)
def test_no_line_of_a_bundled_log_is_a_heading(file: BundledFile) -> None:
    assert not [line for line in file.text.removeprefix("\ufeff").split("\n") if HEADING.match(line)]


@pytest.mark.parametrize("file", RUN_LOGS, ids=lambda file: file.doc_id)
def test_run_logs_hold_marks_that_a_laxer_rule_would_take_for_headings(file: BundledFile) -> None:
    assert re.search(r"^##\[section\]", file.text, re.MULTILINE)
    assert re.search(r"^#[a-z]", file.text, re.MULTILINE)


@pytest.mark.parametrize("file", RUN_LOGS, ids=lambda file: file.doc_id)
def test_run_logs_are_cut_the_same_with_and_without_the_markdown_rule(file: BundledFile) -> None:
    without_rule = [block for block in re.split(r"\n(?:[ \t\r]*\n)+", file.text.strip("\n")) if block]
    assert [chunk.text for chunk in chunk_text(file.text, file.stem)] == without_rule


def test_the_markdown_rule_moves_ids_where_a_log_does_hold_a_heading() -> None:
    text = "start\n\n# a comment alone\n\nend\n"
    assert [chunk.text for chunk in chunk_text(text, "run")] == ["start", "# a comment alone\n\nend"]
