"""What this process has measured of searches, in a form that a page can chart."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from tessera.http.measures import REGISTRY

_SEARCHES: Final = "tessera_search_seconds"
_COUNTED: Final = {
    "tessera_searches_total": "outcome",
    "tessera_search_refusals_total": "reason",
    "tessera_quotes_total": "outcome",
    "tessera_outcomes_total": "outcome",
}
"""Counters shown beside, where the service has them, and the label they are told apart by."""

_NAMES: Final = (*(f"{_SEARCHES}_{part}" for part in ("bucket", "sum", "count")), *_COUNTED)


def search_figures() -> dict[str, Any]:
    """Searches since this process began: ``count``, ``sum_s``, and ``buckets``, the cumulative counts of
    those that took at most so many seconds, each over all releases; ``releases``: counts by release;
    ``counters``: counts by name and outcome or reason.
    """
    count = sum_s = 0.0
    buckets: defaultdict[str, float] = defaultdict(float)
    releases: defaultdict[str, float] = defaultdict(float)
    counters: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for metric in REGISTRY.restricted_registry(_NAMES).collect():
        for sample in metric.samples:
            if sample.name in _COUNTED:
                counters[sample.name][sample.labels.get(_COUNTED[sample.name], "")] += sample.value
            elif sample.name == f"{_SEARCHES}_bucket":
                buckets[sample.labels["le"]] += sample.value
            elif sample.name == f"{_SEARCHES}_sum":
                sum_s += sample.value
            elif sample.name == f"{_SEARCHES}_count":
                count += sample.value
                releases[sample.labels.get("release", "")] += sample.value
    return {"count": count, "sum_s": sum_s, "buckets": buckets, "releases": releases, "counters": counters}
