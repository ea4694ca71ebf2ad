"""docs/metrics.md names every metric as the code has it, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.metrics import MetricWrapperBase

from tessera import metrics
from tessera.http import index_metrics, measures

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
UNITS = ("_seconds", "_bytes", "_ratio", "_timestamp_seconds")
OF_NUMBERS = {"tessera_batch_records", "tessera_chunk_tokens", "tessera_chunk_overlap_tokens"}


class Told(NamedTuple):
    kind: str
    labels: tuple[str, ...]
    help: str


def in_code() -> dict[str, Told]:
    found = {}
    for module in (metrics, measures):
        for each in vars(module).values():
            if isinstance(each, MetricWrapperBase):
                name = f"{each._name}_total" if each._type == "counter" else each._name
                found[name] = Told(each._type, tuple(each._labelnames), each._documentation)
    for gauge in index_metrics.DEFINED:
        found[gauge.name] = Told("gauge", gauge.labels, gauge.help)
    return found


def on_page() -> dict[str, Told]:
    rows = re.findall(r"^\| `(tessera_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len({name for name, *_ in rows}) == len(rows)
    return {name: Told(kind, tuple(re.findall(r"\w+", labels)), text) for name, kind, labels, text in rows}


METRICS = in_code()


def test_the_page_names_each_metric_with_its_type_labels_and_help() -> None:
    assert on_page() == METRICS


@pytest.mark.parametrize("name", METRICS)
def test_names_and_labels_follow_the_conventions(name: str) -> None:
    told = METRICS[name]
    assert re.fullmatch(r"tessera_[a-z_]+", name)
    assert told.help.endswith(".")
    assert not {"document", "doc_id", "uid", "query", "principal"} & {*told.labels}
    if told.kind == "counter":
        assert name.endswith("_total")
    else:
        assert not name.endswith("_total")
    if told.kind == "histogram":
        assert name.endswith(UNITS) or name in OF_NUMBERS
        assert "source" not in told.labels
