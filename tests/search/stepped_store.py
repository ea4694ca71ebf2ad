"""A store that tells what it was asked, and lets anything happen before and after each call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from tessera.errors import UnavailableError
from tessera.store.memory import MemoryStore

READS = ("release", "control", "topics", "heads", "manifest", "blobs", "announce")

_happening = ContextVar("happening", default=False)
"""What happens at a point has no points of its own."""


class SteppedStore(MemoryStore):
    """``happen`` runs at point number ``at``, counted from 0: two for each read, around it.

    ``calls`` are the reads since it was last cleared; those named in ``down`` fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.down: set[str] = set()
        self.points = 0
        self.at: int | None = None
        self.happen: Callable[[], Awaitable[object]] | None = None

    async def point(self) -> None:
        await asyncio.sleep(0)
        here, self.points = self.points, self.points + 1
        if self.happen is not None and self.at in (None, here):
            outside = _happening.set(True)
            await self.happen()
            _happening.reset(outside)

    def watch(self, at: int | None, happen: Callable[[], Awaitable[object]] | None) -> None:
        """From now on, ``happen`` at this point; None: at all of them."""
        self.calls.clear()
        self.points, self.at, self.happen = 0, at, happen


def _stepped(name: str) -> Any:
    async def read(self: SteppedStore, *given: Any, **named: Any) -> Any:
        if _happening.get():
            return await getattr(MemoryStore, name)(self, *given, **named)
        self.calls.append(name)
        await self.point()
        if name in self.down:
            raise UnavailableError(f"{name} is down")
        found = await getattr(MemoryStore, name)(self, *given, **named)
        await self.point()
        return found

    return read


for _name in READS:
    setattr(SteppedStore, _name, _stepped(_name))
