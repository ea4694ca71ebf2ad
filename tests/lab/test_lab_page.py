"""What docs/lab.md shows of the example is what the example prints, times aside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera.cli import main as entry

ROOT = Path(__file__).parents[2]
TIME = re.compile(r"\b\d+\.\d\d\b")


def untimed(line: str) -> str:
    return " ".join(TIME.sub("#", line).split())


def test_the_page_shows_what_the_example_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert entry.run(["lab", "run", "docs/examples/lab.toml"]) == 0
    printed = {untimed(line) for line in capsys.readouterr().out.splitlines()}
    page = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    section = page[page.index("### 3. Run it") : page.index("## Audit declared cuts")]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    outputs = [block for language, block in blocks if language in ("", "console")]
    shown = [line for block in outputs for line in block.splitlines() if line and line[0] not in "$…"]
    assert len(shown) > 40
    assert [line for line in shown if untimed(line) not in printed] == []


def test_the_page_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    examples = ROOT / "docs" / "examples"
    assert (examples / "sections.toml").read_text(encoding="utf-8") in page
    assert (examples / "questions.jsonl").read_text(encoding="utf-8").splitlines()[0] in page
    plan = (examples / "lab.toml").read_text(encoding="utf-8")
    shown = re.search(r"```toml\n(documents = .*?)\n\n", page, re.DOTALL)
    assert shown is not None
    assert shown[1] in plan
