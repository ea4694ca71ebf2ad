"""A thousand pages open at once: each is told what changes, and searches go on."""

from __future__ import annotations

import asyncio
import resource
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from stage import Stage, upsert

from tessera.http.events import MAX_STREAMS

Make = Callable[..., Stage]
OPEN = 1_000
ENOUGH = 4 * OPEN
"""Descriptors: both ends of every connection are in this process."""


@pytest.fixture
def many_descriptors() -> Any:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < ENOUGH:
        pytest.skip(f"this process may open {hard} files, {ENOUGH} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, ENOUGH), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_thousand_streams_are_told_what_changes(stage: Make) -> None:
    assert MAX_STREAMS >= OPEN
    running = stage()

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode())
        await writer.drain()
        await reader.readuntil(b"event: hello\n")
        return reader, writer

    async def use() -> None:
        streams = [await opened() for _ in range(OPEN)]
        await asyncio.gather(*(reader.readuntil(b"event: status\n") for reader, _ in streams))
        await asyncio.to_thread(
            lambda: running.do(running.put(upsert("notes", "new.md", "# New\n\nText.\n")))
        )
        await asyncio.gather(*(reader.readuntil(b"event: change\n") for reader, _ in streams))
        url = f"{running.url}/api/search?q=renewal"
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())  # noqa: S310
        assert b'"hits"' in answer
        for _, writer in streams:
            writer.close()

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await use()

    asyncio.run(bounded())


@pytest.mark.usefixtures("many_descriptors")
def test_clients_that_never_finish_what_they_say_hold_up_nobody(stage: Make) -> None:
    running = stage()
    headers = f"HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nContent-Type: application/json\r\n"
    begun = (
        "GET /api/search?q=x HTTP/1.1\r\nHos",
        f"POST /api/ground {headers}Content-Length: 1000\r\n\r\n{{",
        f"POST /api/changes {headers}Transfer-Encoding: chunked\r\n\r\n1",
    )

    async def use() -> None:
        held = []
        for number in range(OPEN // 2):
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(begun[number % len(begun)].encode())
            await writer.drain()
            held.append(writer)
        url = f"{running.url}/api/search?q=renewal"
        for _ in range(20):
            answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())  # noqa: S310
            assert b'"hits"' in answer
        for writer in held:
            writer.close()

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await use()

    asyncio.run(bounded())
