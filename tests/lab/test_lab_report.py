from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plans import PLAN, write_plan

from tessera.cli import main as entry
from tessera.errors import SettingsError
from tessera.lab import report
from tessera.lab.plan import load_plan
from tessera.lab.results import LabResult
from tessera.lab.run import run

FETCHING = ("src", "href", "xlink:href", "srcset", "poster", "action", "data", "formaction")
HOSTILE = "<script>alert('x')</script> & \"more\""


class Page(HTMLParser):
    """What a page would fetch or run, its text, and its ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in FETCHING and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(value or "")

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def result(tmp_path: Path) -> LabResult:
    return run(load_plan(write_plan(tmp_path)))


def test_a_report_opens_without_a_network(result: LabResult) -> None:
    page = report.render(result)
    found = Page(page)
    assert found.fetched == []
    assert not {"script", "link", "iframe", "img", "object", "embed", "base"} & set(found.tags)
    assert "url(http" not in page
    assert "@import" not in page
    assert found.tags.count("svg") == 4 + 2, "four plots, and a line in the legend for each assembly"
    assert len(found.ids) == len(set(found.ids))


def test_a_report_shows_the_misses_with_their_lines_and_borders(result: LabResult) -> None:
    found = Page(report.render(result))
    for policy in result.policies:
        assert policy.misses
        for miss in policy.misses:
            assert miss.case in found.words
            for line in miss.excerpt.lines:
                assert all(part.text in found.words for part in line.fragments)
    assert "chunk 1 begins" in found.words
    assert found.tags.count("mark") >= sum(len(policy.misses) for policy in result.policies)


def test_texts_cannot_break_out_of_the_page(result: LabResult) -> None:
    policies = tuple(
        replace(
            policy, name=f"{HOSTILE} {policy.name}", misses=(replace(policy.misses[0], question=HOSTILE),)
        )
        for policy in result.policies
    )
    page = report.render(replace(result, policies=policies, setup=replace(result.setup, plan=HOSTILE)))
    found = Page(page)
    assert "script" not in found.tags
    assert HOSTILE in found.words


def test_colours_of_plots_are_the_pages(result: LabResult) -> None:
    page = report.render(result)
    assert "#0101" not in page
    assert "var(--kept)" in page
    assert "prefers-color-scheme: dark" in page


def test_only_some_failures_are_shown_and_the_rest_is_counted(
    result: LabResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SHOWN", 1)
    tiny = result.policies[1]
    assert len(tiny.misses) == 4
    assert "3 more; --json has all." in Page(report.render(result)).words


def test_a_missing_library_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(
        SettingsError, match=r"needs matplotlib and jinja2: pip install 'tessera-indexer\[lab\]'"
    ):
        report.require_libraries()


def test_the_command_prints_tables_and_writes_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_plan(tmp_path)
    out = tmp_path / "out.html"
    assert entry.run(["lab", "run", str(path), "--report", str(out), "--budget", "25"]) == 0
    shown = capsys.readouterr().out
    assert "6 cases of 5 questions on 3 documents" in shown
    assert "no reranker" in shown
    assert "joined@1 at 25 tokens" in shown
    assert "at 40 tokens" not in shown
    assert "tiny cuts evidence of level, told, across, cups" in shown
    assert f"report: {out}" in shown
    assert out.read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_plan(tmp_path)
    assert entry.run(["lab", "run", str(path), "--json", "--retriever", "rank-bm25"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["setup"]["retriever"] == "rank-bm25"
    assert [policy["name"] for policy in found["policies"]] == ["paragraph", "tiny"]
    assert found["policies"][0]["reranking"]["stage"] == "none"
    assert set(found["distributions"]) >= {"length", "kinds", "begins", "ends", "script", "family"}


def test_a_gate_that_fails_is_named_with_its_cases_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_plan(tmp_path, PLAN + '[gates]\npolicies = ["paragraph"]\nmin_representability = 1.0\n')
    assert entry.run(["lab", "run", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "FAILED min_representability 1: 0.833 (paragraph); short: across" in shown


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--retriever", "lucene"], 2, "--retriever: there is no 'lucene'; there are tessera, rank-bm25"),
        (["--budget", "0"], 2, "budgets holds 0"),
        (["--report", "nowhere/out.html"], 2, "--report: nowhere/out.html: there is no folder nowhere"),
        (["--report", "texts"], 2, "--report: texts: cannot be written"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    options: list[str], status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = write_plan(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert entry.run(["lab", "run", str(path), *options]) == status
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
