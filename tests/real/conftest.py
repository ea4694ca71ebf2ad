"""Tests that need the servers that users run: ``make test-kafka``."""

from __future__ import annotations

from pathlib import Path

import pytest
from authority import Authority

from bench.backends import ARE_REAL


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of them elsewhere."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not ARE_REAL:
            item.add_marker(pytest.mark.skip(reason="needs Apache Kafka and redis-server: make test-kafka"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Certificates for servers on loopback, and for clients."""
    return Authority(tmp_path_factory.mktemp("certificates"))
