"""Every test of the contract runs on each kind of store; tests may be coroutines."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from backends import Backend, MemoryBackend, RedisBackend, redis_backend_of
from servers import RedisServer

from tessera.store.memory import MemoryStore


@pytest.fixture(params=["memory", "redis_server", "redis_cluster"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """A store with nothing in it, of each kind."""
    if request.param == "memory":
        return MemoryBackend(MemoryStore())
    running = request.getfixturevalue(f"{request.param}_running")
    return redis_backend_of(running.url, getattr(running, "nodes", (running,)))


@pytest.fixture
def redis_backend(redis_server_running: RedisServer) -> RedisBackend:
    """A store with nothing in it, on the one server."""
    return redis_backend_of(redis_server_running.url, (redis_server_running,))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines, and close the stores they were given within their loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def run() -> None:
        try:
            await pyfuncitem.obj(**arguments)
        finally:
            for argument in arguments.values():
                if isinstance(argument, Backend):
                    await argument.close()

    asyncio.run(run())
    return True
