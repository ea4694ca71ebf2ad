"""Grafana's dashboards: sound as files, and every query of every panel gives data on a real installation."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import httpx
import pytest
from conftest import ROOT, Server, with_prometheus

FILES = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in FILES}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLES = {"$generation": ".*", "$source": ".*", "$__rate_interval": "1m"}

ABSENT = {
    "tessera-recall: Missing embeddings A": "no generation has an embedding contract yet",
    "tessera-migration: Time left A": "the backfill is done",
}
"""What finds no series on this installation, and why."""


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARDS[name]["panels"] if panel["type"] not in ("row", "text")]


def queries() -> dict[str, str]:
    """Each query by dashboard, panel and letter, with the variables' values for all."""
    found = {}
    for name in DASHBOARDS:
        for panel in panels(name):
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in VARIABLES.items():
                    expression = expression.replace(variable, value)
                found[f"{name}: {panel['title']} {target['refId']}"] = expression
    return found


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_sound(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["uid"] == name
    ids = Counter(panel["id"] for panel in dashboard["panels"])
    assert set(ids.values()) == {1}
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels(name):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == SOURCE
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF")[: len(panel["targets"])]
        for target in panel["targets"]:
            assert target["datasource"] == SOURCE
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= names
    titles = Counter(panel["title"] for panel in panels(name))
    assert {title for title, count in titles.items() if count > 1} <= {"Evidence in one chunk"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_no_panel_covers_another(name: str) -> None:
    cells: Counter[tuple[int, int]] = Counter()
    for panel in DASHBOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                cells[x, y] += 1
    assert set(cells.values()) == {1}


def test_every_metric_that_is_shown_is_one_that_is_documented() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    for name, expression in queries().items():
        for metric in re.findall(r"\btessera_\w+", expression):
            family = re.sub(r"_(bucket|sum|count)$", "", metric)
            assert f"`{family}`" in page or f"`{metric}`" in page, name


@with_prometheus
@pytest.mark.servers
def test_every_query_of_every_panel_gives_data(server: Server, operator: httpx.Client) -> None:
    assert server.without_data(queries(), set(ABSENT), operator) <= set(ABSENT)
