"""docs/metrics.md names every metric as the code has it, and nothing that is not there."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import prometheus_client
import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

import streams
import tessera
from tessera.http import index_metrics, measures

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
UNITS = ("seconds", "bytes", "ratio")
"""Base units of Prometheus, which a name must tell."""


class Told(NamedTuple):
    kind: str
    labels: tuple[str, ...]
    help: str


def in_code() -> dict[str, Told]:
    """All that any module defines: each registers itself when its module is imported."""
    for package in (tessera, streams):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found = {}
    for registry in (prometheus_client.REGISTRY, measures.REGISTRY):
        for each in list(registry._collector_to_names):
            if isinstance(each, MetricWrapperBase) and each._name.startswith("tessera_"):
                name = f"{each._name}_total" if each._type == "counter" else each._name
                found[name] = Told(each._type, tuple(each._labelnames), each._documentation)
    for gauge in index_metrics.DEFINED:
        found[gauge.name] = Told("gauge", gauge.labels, gauge.help)
    return found


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Name, type, unit, labels and help of each row of the page."""
    yield from re.findall(
        r"^\| `(tessera_\w+)` \| (\w+) \| ([^|]+) \| ([^|]*) \| (.*) \|$", PAGE, re.MULTILINE
    )


def on_page() -> dict[str, Told]:
    named = [name for name, *_ in rows()]
    assert len(set(named)) == len(named)
    return {name: Told(kind, tuple(re.findall(r"\w+", labels)), text) for name, kind, _, labels, text in rows()}


METRICS = in_code()


def test_the_page_names_each_metric_with_its_type_labels_and_help() -> None:
    assert on_page() == METRICS


def test_the_page_speaks_of_no_other_metric() -> None:
    parts = {f"{name}{part}" for name in METRICS for part in ("", "_bucket", "_sum", "_count")}
    assert set(re.findall(r"\btessera_\w+", PAGE)) <= parts


def test_the_page_explains_each_label() -> None:
    table = PAGE[PAGE.index("## Labels") : PAGE.index("## The topic")]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    explained = [label for cell in cells for label in re.findall(r"`(\w+)`", cell)]
    assert sorted(explained) == sorted({label for told in METRICS.values() for label in told.labels})


@pytest.mark.parametrize(("name", "unit"), [(name, unit) for name, _, unit, *_ in rows()])
def test_a_name_tells_its_unit(name: str, unit: str) -> None:
    last = name.removesuffix("_total").rpartition("_")[2]
    assert (unit in UNITS or last in UNITS) == (last == unit) or (unit, last) == (last, unit)


@pytest.mark.parametrize("name", METRICS)
def test_names_and_labels_follow_the_conventions(name: str) -> None:
    told = METRICS[name]
    assert re.fullmatch(r"tessera(_[a-z]+)+", name)
    assert told.help.endswith(".")
    assert not {"document", "doc_id", "uid", "path", "query", "principal"} & {*told.labels}
    assert not {"le", "quantile", "job", "instance"} & {*told.labels}, "Prometheus' own"
    assert name.endswith("_total") == (told.kind == "counter")
    assert not name.endswith(("_bucket", "_sum", "_count", "_created"))
    if told.kind == "histogram":
        assert "source" not in told.labels


def test_the_configurations_on_the_page_can_be_read() -> None:
    static, by_dns = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
    assert static == [{"targets": [f"127.0.0.1:{port}" for port in (9100, 9101, 9102)]}]
    assert by_dns[0]["job_name"] == "tessera-worker"
