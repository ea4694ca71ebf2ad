"""Prometheus' files: sound, alerts that fire where they should, queries that find what processes expose."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from conftest import PROMETHEUS_FILES, PROMTOOL, ROOT, Server, with_prometheus

ABSENT = {
    "TesseraMissingEmbeddings": "no generation has an embedding contract yet",
    "TesseraLogGap": "counters of what never happened have no series",
    "TesseraSearchesFail": "no search failed",
}
"""What finds no series on this installation, and why."""

pytestmark = with_prometheus


def rules() -> list[dict[str, Any]]:
    found = []
    for path in sorted((PROMETHEUS_FILES / "rules").glob("*.yml")):
        groups = yaml.safe_load(path.read_text())["groups"]
        found += [rule for group in groups for rule in group["rules"]]
    return found


def promtool(*arguments: object) -> None:
    done = subprocess.run(
        [PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_configuration_and_rules_are_sound(configuration: Path) -> None:
    promtool("check", "config", configuration / "prometheus.yml")


def test_every_alert_fires_where_it_should_and_stays_silent_where_not() -> None:
    file = PROMETHEUS_FILES / "tests" / "alerts.yml"
    promtool("test", "rules", file)
    tests = {each["name"] for each in yaml.safe_load(file.read_text())["tests"]}
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert tests == {f"{alert} {kind}" for alert in alerts for kind in ("fires", "stays silent")}


def test_every_alert_has_its_section_in_the_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    alerts = [rule for rule in rules() if "alert" in rule]
    assert sections == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def operand(expression: str) -> str:
    """The series that an alert looks at, without what it compares them with."""
    return re.split(r"\s(?:==|>|>=|<)\s", expression)[0]


@pytest.mark.servers
def test_every_rule_finds_data_on_a_real_installation(server: Server, operator: httpx.Client) -> None:
    """Real processes scraped by a real server; what finds nothing is on a list, with the reason."""
    wanted = {rule.get("record", rule.get("alert")): operand(rule["expr"]) for rule in rules()}
    assert server.without_data(wanted, set(ABSENT), operator) <= set(ABSENT)
    states = server.client.get("/api/v1/rules").json()["data"]["groups"]
    unhealthy = [rule for group in states for rule in group["rules"] if rule["health"] == "err"]
    assert not unhealthy
