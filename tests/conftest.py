"""What all tests share: servers, one of each for the whole run, and logging as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from servers import RedisCluster, RedisServer, redis_cluster, redis_server

from tessera.logs import OWN


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that was run in this process configures logging for all."""
    loggers = [logging.getLogger(name) for name in (None, *OWN, "aiokafka")]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


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
