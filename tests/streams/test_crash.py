"""The short form of ``bench/crash.py``: workers killed and the store's power cut while events stream in."""

from __future__ import annotations

import asyncio

import pytest

from bench.crash import Ordeal, run


@pytest.mark.servers
@pytest.mark.timeout(180)
def test_nothing_is_lost_and_nothing_is_there_twice_after_crashes_and_a_power_loss() -> None:
    outcome = asyncio.run(
        run(Ordeal(events=2_000, documents=100, logs=10, kills=2, power_losses=1, seed=7, timeout_s=90))
    )
    assert outcome.faults == ()
    assert outcome.bytes_cut > 0
    assert outcome.worker_starts == 3, outcome.worker_logs
    assert outcome.documents > 50
