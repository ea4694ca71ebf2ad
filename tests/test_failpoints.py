"""Failpoints kill the process at the named step and hit, and nowhere else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tessera import failpoints
from tessera.errors import SettingsError

SCRIPT = """
from tessera.failpoints import failpoint
for number in range(3):
    failpoint("batch.decoded")
    failpoint("batch.staged")
    print(number, flush=True)
"""


def script(value: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != failpoints.VARIABLE}
    if value is not None:
        environment[failpoints.VARIABLE] = value
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.mark.parametrize(
    ("value", "lines"), [("batch.staged", []), ("batch.staged:3", ["0", "1"]), ("batch.decoded:2", ["0"])]
)
def test_the_process_dies_at_the_named_hit(value: str, lines: list[str]) -> None:
    ended = script(value)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == lines


@pytest.mark.parametrize("value", [None, "", "batch.acked"])
def test_nothing_happens_at_points_that_are_not_named(value: str | None) -> None:
    assert script(value).stdout.split() == ["0", "1", "2"]


@pytest.mark.parametrize("value", ["batch.nowhere", "batch.staged:x"])
def test_a_name_or_hit_that_does_not_exist_is_an_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, value)
    with pytest.raises(SettingsError, match=re.escape(value)):
        failpoints.failpoint("batch.decoded")


def test_every_failpoint_in_the_code_is_listed_and_every_listed_one_is_in_the_code() -> None:
    root = Path(failpoints.__file__).parents[1]
    texts = [path.read_text() for folder in ("tessera", "streams") for path in (root / folder).rglob("*.py")]
    called = {name for text in texts for name in re.findall(r'\bfailpoint\("([^"]+)"\)', text)}
    assert called == set(failpoints.NAMES)
