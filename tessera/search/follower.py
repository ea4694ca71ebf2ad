"""What a long-lived searcher does between queries: load what may be served next, and announce itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from tessera.errors import TesseraError
from tessera.generations.registry import Generation, Registry, State
from tessera.search.control import Control
from tessera.search.heads import HeadsReader
from tessera.search.lease import Lessee
from tessera.search.views import Views

logger = logging.getLogger(__name__)

FOLLOW_S = 0.1
"""Between two looks at the shards while another generation than the served one is kept loaded: what was
committed meanwhile is what the first query after a cutover reads, so no more than any other query does."""

LOOK_S = 0.5
"""Between two looks at the registry, and at whether to announce, while nothing else is kept loaded."""

FOLLOWED: tuple[State, ...] = ("serving", "gated", "ready", "retired")
"""States whose generations are kept loaded: the served one, and all that a cutover or rollback leads to."""


class Follower:
    """Keeps views of generations current, off the path of queries, and the lease alive."""

    def __init__(
        self,
        control: Control,
        heads: HeadsReader,
        views: Views,
        lessee: Lessee,
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        self._control = control
        self._heads = heads
        self._views = views
        self._lessee = lessee
        self._renew = renew
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Follow and announce until cancelled. What hangs or loads slowly holds nothing else up."""
        try:
            await asyncio.gather(self._keep_following(), self.keep_announcing())
        finally:
            await self.close()

    async def keep_announcing(self) -> None:
        """Keep the lease alive until cancelled."""
        while True:
            await self.announce()
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Give up loads under way."""
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def follow(self) -> None:
        """Begin what is to be loaded or refreshed now, and drop what is not written any more."""
        await self._said("what is served next cannot be followed", self._follow())

    async def announce(self) -> None:
        """Announce the lease where it is time to."""
        if self._lessee.due:
            await self._said("the lease cannot be renewed", self._renew())

    async def settle(self) -> None:
        """Wait for the loads under way."""
        await asyncio.gather(*self._loading.values())

    async def _follow(self) -> None:
        registry, _, heads = await asyncio.gather(
            self._control.registry(), self._control.served(), self._heads.read()
        )
        await self._views.keep(registry.written)
        for generation in followed(registry):
            name = generation.name
            if name not in self._loading:
                load = self._said(f"generation {name} cannot be loaded", self._views.load(generation, heads))
                self._loading[name] = asyncio.create_task(load)
                self._loading[name].add_done_callback(partial(self._loaded, name))

    def _loaded(self, name: str, task: asyncio.Task[None]) -> None:
        del self._loading[name]
        if not task.cancelled() and task.exception() is not None:
            logger.error("loading generation %s failed", name, exc_info=task.exception())

    async def _keep_following(self) -> None:
        while True:
            await self.follow()
            registry = self._control.last_registry
            others = registry is not None and len(followed(registry)) > 1
            await asyncio.sleep(FOLLOW_S if others else LOOK_S)

    async def _said(self, what: str, step: Awaitable[object]) -> None:
        """Do a step; where it fails, say so once and go on: the next one may succeed."""
        try:
            await step
        except TesseraError as error:
            if self._told.get(what) != str(error):
                self._told[what] = str(error)
                logger.warning("%s: %s", what, error)
        else:
            self._told.pop(what, None)


def followed(registry: Registry) -> list[Generation]:
    """The generations to keep loaded, the served one first."""
    wanted = [each for each in registry.generations.values() if each.state in FOLLOWED]
    return sorted(wanted, key=lambda each: (each.name != registry.release.generation, each.name))


def candidate(registry: Registry) -> str | None:
    """The generation that a cutover would lead to: the newest gated one, else the newest ready one."""
    for state in ("gated", "ready"):
        waiting = [each for each in registry.generations.values() if each.state == state]
        if waiting:
            return max(waiting, key=lambda each: (each.created_at_ms, each.name)).name
    return None
