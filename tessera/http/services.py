"""What the routes work with: the index, the searcher, the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from tessera.errors import TesseraError, UnavailableError
from tessera.events.encoding import Event
from tessera.events.topics import CHANGE_TOPICS
from tessera.generations.cases import load_cases
from tessera.generations.control import ControlLog, KafkaLog
from tessera.generations.standing import measure_standing
from tessera.http.measures import NEAR_DUPLICATES, count_shadow, show_cases
from tessera.kafka.publisher import Position, Publisher
from tessera.kafka.security import security_of
from tessera.overview import read_overview
from tessera.policies import TOKENIZERS
from tessera.search import Answer, Searcher
from tessera.search.near_duplicates import near_duplicates
from tessera.search.shadow import ShadowReads
from tessera.settings import Settings
from tessera.shards.status import StatusReader
from tessera.store.base import ShardStore

logger = logging.getLogger(__name__)

STATUS_S = 1.0
"""A status is shared by all who ask within this time: each costs a connection to the broker."""

MAX_FIELDS = 10_000
"""Counters read for one update of those who watch: those of a thousand sources would hold up queries."""

WARM_PAUSE_S = 0.2

LOOKED_AT = 20
"""One search in so many is looked at for hits that repeat each other, the first among them."""


class Services:
    """One per process. The broker is connected when the first change comes: searching needs none."""

    def __init__(self, settings: Settings, store: ShardStore) -> None:
        self.settings = settings
        TOKENIZERS.folder = settings.tokenizers_folder
        self.store = store
        self.searcher = Searcher(store, pointer_staleness_s=settings.pointer_staleness_s)
        self.control = ControlLog(KafkaLog(settings.broker, security_of(settings)), settings.namespace)
        self.shadow = ShadowReads(self.searcher, settings.shadow_share, count_shadow)
        self._searches = 0
        self._publisher: Publisher | None = None
        self._connecting = asyncio.Lock()
        self._reader = StatusReader(store)
        self._overview: dict[str, Any] = {}
        self._overview_until = 0.0
        self._reading = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None
        self._shadowing: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def warm(self) -> bool:
        """Whether the serving generation has been loaded."""
        return self._warming is not None and self._warming.done() and not self._warming.cancelled()

    def start(self) -> None:
        """Load in the background what is served, as soon as there is something, and what may be next."""
        self._warming = asyncio.create_task(self._warm())
        self._shadowing = asyncio.create_task(self.shadow.run())
        if self.settings.cases_file is not None:
            self._asking = asyncio.create_task(self._ask_cases(self.settings.cases_file))
        self.searcher.start()

    async def close(self) -> None:
        """Stop background work and close all connections."""
        for task in (self._warming, self._shadowing, self._asking):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self.searcher.close()
        if self._publisher is not None:
            await self._publisher.__aexit__(None, None, None)
        await self.store.close()

    async def search(
        self,
        query: str,
        k: int,
        principals: frozenset[str] | None,
        source: str | None,
        generation: str | None,
    ) -> Answer:
        """The searcher's answer; where no generation was named, perhaps compared with the next one later."""
        answer = await self.searcher.search(query, k, principals, source, generation)
        if generation is None:
            self.shadow.offer(query, k, principals, source, answer)
        self._searches += 1
        if answer.hits and self._searches % LOOKED_AT == 1:
            # At the end of this turn of the loop: the answer is on its way by then.
            texts = [hit.text for hit in answer.hits]
            asyncio.get_running_loop().call_soon(lambda: NEAR_DUPLICATES.observe(near_duplicates(texts)))
        return answer

    async def publish(self, events: Sequence[Event]) -> list[Position]:
        """Send the events and return their positions once the broker has all of them."""
        return await (await self._connected()).publish_many(events)

    async def overview(self) -> dict[str, Any]:
        """The status of the whole index, at most :data:`STATUS_S` old."""
        async with self._reading:
            if time.monotonic() >= self._overview_until:
                self._overview = await read_overview(self.settings, self.store, self._reader)
                self._overview_until = time.monotonic() + STATUS_S
            return self._overview

    async def live_overview(self) -> dict[str, Any]:
        """The status for those who watch it: numbers of sources may be a few seconds older than the rest.

        That is so only where there are very many sources: an update costs no more however many there are.
        """
        async with self._reading:
            if time.monotonic() < self._overview_until:
                return self._overview
            return await read_overview(self.settings, self.store, self._reader, MAX_FIELDS)

    def forget_overview(self) -> None:
        """Read the status anew when it is asked for next: something was changed through this service."""
        self._overview_until = 0.0

    @staticmethod
    def now_ms() -> int:
        """The time, in Unix milliseconds."""
        return round(time.time() * 1000)

    async def _connected(self) -> Publisher:
        async with self._connecting:
            if self._publisher is None:
                topics = await self.store.topics()
                if not topics.keys() >= set(CHANGE_TOPICS):
                    raise UnavailableError("no topics are recorded yet: start a worker, which makes them")
                publisher = Publisher(
                    self.settings.broker,
                    self.settings.catalog,
                    topics,
                    max_content_bytes=self.settings.max_document_bytes,
                    security=security_of(self.settings),
                )
                self._publisher = await publisher.__aenter__()
            return self._publisher

    async def _ask_cases(self, path: Path) -> None:
        told = ""
        while True:
            try:
                show_cases(await measure_standing(self.searcher, self.store, load_cases(path)))
                told = ""
            except TesseraError as error:
                if str(error) != told:
                    told = str(error)
                    logger.warning("standing cases are not asked: %s", told)
            await asyncio.sleep(self.settings.cases_s)

    async def _warm(self) -> None:
        told = ""
        while True:
            try:
                await self.searcher.warm()
            except TesseraError as error:
                if str(error) != told:
                    told = str(error)
                    logger.warning("not ready to search: %s", told)
                await asyncio.sleep(WARM_PAUSE_S)
            else:
                return


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Serving = Annotated[Services, Depends(_services)]
