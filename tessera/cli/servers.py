"""Connections that commands need, opened so that a server that cannot be reached is told at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tessera.errors import UnavailableError
from tessera.kafka.publisher import Publisher
from tessera.kafka.security import security_of
from tessera.settings import Settings, redacted
from tessera.store.base import ShardStore
from tessera.store.connect import connect

REACH_S = 10.0
"""A command must say within this time that a server cannot be reached, not seem to hang."""


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[ShardStore]:
    """A store that has answered. Raises :class:`UnavailableError` naming the address within ten seconds."""
    store = connect(settings.redis, settings.namespace)
    try:
        try:
            await asyncio.wait_for(store.ping(), REACH_S)
        except TimeoutError:
            address = redacted(settings.redis)
            raise UnavailableError(
                f"Redis at {address} does not answer within {REACH_S:g} s: check that it runs and its address"
            ) from None
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_publisher(settings: Settings, store: ShardStore) -> AsyncIterator[Publisher]:
    """A connected publisher that keeps to the partition counts which ``store`` has recorded."""
    topics = await store.topics()
    publisher = Publisher(
        settings.broker,
        settings.catalog,
        topics,
        max_content_bytes=settings.max_document_bytes,
        security=security_of(settings),
    )
    async with publisher:
        yield publisher
