"""One run of a costly step for all who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedFlight(Generic[T]):
    """Runs a step one at a time; callers that arrive before a run has begun share its result.

    A run that has begun is never joined: what it read may be older than the caller's question.
    """

    def __init__(self, step: Callable[[], Awaitable[T]]) -> None:
        self._step = step
        self._lock = asyncio.Lock()
        self._boarding: asyncio.Task[T] | None = None

    async def join(self) -> T:
        """The result of a run that begins after this call; its exception is raised to all who share it."""
        if self._boarding is None:
            self._boarding = asyncio.create_task(self._run())
            self._boarding.add_done_callback(retrieve)
        return await asyncio.shield(self._boarding)

    async def _run(self) -> T:
        async with self._lock:
            self._boarding = None
            return await self._step()


def retrieve(task: asyncio.Task[T]) -> None:
    """Mark an exception as seen: where all callers were cancelled, nobody else does."""
    if not task.cancelled():
        task.exception()
