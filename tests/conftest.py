"""Servers that several packages' tests share: one of each for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import RedisCluster, RedisServer, redis_cluster, redis_server


@pytest.fixture(scope="session")
def redis_server_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis-compatible server for all tests, which take a namespace each."""
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="session")
def redis_cluster_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """One cluster of three nodes for all tests."""
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
