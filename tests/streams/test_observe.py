from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from tessera.metrics import observe_all


@given(st.lists(st.floats(0, 20) | st.sampled_from([0.0, 1.0, 5.0, 10.0, math.inf]), max_size=30))
def test_many_values_at_once_count_as_one_by_one(values: list[float]) -> None:
    registry = CollectorRegistry()
    together, alone = (
        Histogram(name, "h", ("label",), buckets=(1, 5, 10), registry=registry).labels("x")
        for name in ("together", "alone")
    )
    observe_all(together, values)
    for value in values:
        alone.observe(value)
    found = [
        [
            (sample[0], sample[1], round(sample[2], 6))
            for sample in each._child_samples()
            if sample[0] != "_created"
        ]
        for each in (together, alone)
    ]
    assert found[0] == found[1]
