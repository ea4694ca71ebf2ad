"""docs/reference.md names every command, option and setting, and the examples it leads to are sound."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tessera.cli.main import app
from tessera.generations.cases import evidence_digest, load_cases
from tessera.generations.checks import WAIVABLE
from tessera.policies import BUILT_IN, load_policy
from tessera.settings import Settings
from tessera.sources.kinds import media_type

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CORPORA = ROOT / "tessera" / "sources" / "corpora"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
REFERENCE = (DOCS / "reference.md").read_text(encoding="utf-8")
COMMON = {"--broker", "--redis", "--data-dir", "--config", "--json", "--help"}
KINDS = {"handbook": "documents", "devex": "devex", "github": "github"}


def commands(command: Any = None, path: str = "tessera") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by the words it is called with."""
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    for name, each in (inner or {}).items():
        yield from commands(each, f"{path} {name}")


def rows() -> list[list[str]]:
    """The cells of every row of every table of the reference."""
    lines = [line for line in REFERENCE.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize(("path", "command"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_every_command_is_in_the_reference_with_just_its_own_options(path: str, command: Any) -> None:
    found = [row for row in rows() if re.fullmatch(rf"`{path}( [^a-z]*)?`", row[0])]
    assert len(found) == 1, f"{path} has {len(found)} rows in docs/reference.md"
    _, what, options = found[0]
    own = {
        max(parameter.opts, key=len)
        for parameter in command.params
        if parameter.param_type_name == "option" and not COMMON & set(parameter.opts)
    }
    assert set(re.findall(r"`(-[a-z-]+)`", options)) == own
    assert what == command.help


def test_the_reference_names_no_command_that_is_not_there() -> None:
    named = {re.match(r"`([a-z -]*[a-z])", row[0])[1] for row in rows() if row[0].startswith("`tessera")}  # type: ignore[index]
    assert named == {path for path, _ in commands()}


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_reference_with_its_default_and_description(name: str) -> None:
    field = Settings.model_fields[name]
    default = field.default
    shown = (
        {None: "", True: "true", False: "false"}.get(default)
        if default is None or default is True or default is False
        else str(default)
    )
    if isinstance(default, tuple):
        shown = ",".join(default)
    [row] = [row for row in rows() if row[0] == f"`{name}`"]
    assert row[1:] == [f"`{shown}`" if shown else "", field.description]


def test_the_reference_names_every_check_that_can_be_waived() -> None:
    assert re.findall(r"`([a-z_]+)`", REFERENCE.rpartition("A waiver")[2]) == list(WAIVABLE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere_and_shown_commands_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        led_to = page.parent / target if target else page
        assert led_to.exists(), target
        if anchor:
            assert anchor in headings(led_to.read_text(encoding="utf-8")), anchor
    known = {path for path, _ in commands()}
    for line in re.findall(r"^\$ (?:\.venv/bin/)?(tessera [^\n]*)", text, re.MULTILINE):
        assert any(line == path or line.startswith(f"{path} ") for path in known), line


def headings(text: str) -> set[str]:
    """Anchors of a page's headings."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_case_that_the_migration_shows_is_one_of_the_examples() -> None:
    text = (DOCS / "migration.md").read_text(encoding="utf-8")
    shown = re.search(r'"id": "(.*?)".*?"start": (\d+), "end": (\d+)', text, re.DOTALL)
    assert shown is not None
    cases = {case.id: case for case in load_cases(DOCS / "examples" / "cases.json").cases}
    assert (cases[shown[1]].start, cases[shown[1]].end) == (int(shown[2]), int(shown[3]))


def test_evidence_of_the_example_cases_is_what_the_bundled_corpora_say() -> None:
    cases = load_cases(DOCS / "examples" / "cases.json")
    for case in cases.cases:
        text = (CORPORA / KINDS[case.source] / case.doc_id).read_text(encoding="utf-8")
        assert evidence_digest(text[case.start : case.end]) == case.digest, case.id
    assert {case.source for case in cases.cases} == set(KINDS)


@pytest.mark.parametrize("policy", BUILT_IN)
def test_built_in_policies_represent_the_evidence_of_the_example_cases(policy: str) -> None:
    for case in load_cases(DOCS / "examples" / "cases.json").cases:
        text = (CORPORA / KINDS[case.source] / case.doc_id).read_text(encoding="utf-8")
        kind = media_type(KINDS[case.source], case.doc_id)  # type: ignore[arg-type]
        assert kind is not None
        chunks = load_policy(policy).chunk(text, "s", kind)
        assert any(chunk.start <= case.start and case.end <= chunk.end for chunk in chunks), case.id
