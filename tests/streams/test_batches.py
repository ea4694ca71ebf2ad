"""Micro-batches out of a stream's queue."""

from __future__ import annotations

import asyncio
from typing import Any

from streams.batches import Drained, drain
from tessera.limits import Limits


class Item(int):
    """Stands for an event; its value has as many bytes."""

    @property
    def message(self) -> Item:
        return self

    @property
    def value(self) -> bytes:
        return bytes(self)


def drained(
    items: list[int],
    limit: int = 500,
    linger_s: float = 0.0,
    late: tuple[int, ...] = (),
    limit_bytes: int = 10_000,
) -> Drained:
    limits = Limits(batch_records=limit, batch_linger_s=linger_s, batch_bytes=limit_bytes)

    async def test() -> Drained:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for item in items:
            queue.put_nowait(Item(item))
        for item in late:
            asyncio.get_running_loop().call_later(0.01, queue.put_nowait, Item(item))
        return await drain(queue, limits)

    return asyncio.run(test())


def test_what_is_there_is_taken_up_to_the_limit() -> None:
    assert drained([1, 2, 3], limit=2) == Drained([1, 2], ended=False)
    assert drained([1, 2, 3]) == Drained([1, 2, 3], ended=False)


def test_a_batch_ends_with_the_event_that_fills_it_with_bytes() -> None:
    assert drained([40, 40, 40, 1], limit_bytes=100) == Drained([40, 40, 40], ended=False)
    assert drained([100, 1], limit_bytes=100) == Drained([100], ended=False)
    assert drained([500, 500], limit_bytes=100, linger_s=5.0) == Drained([500], ended=False)


def test_a_batch_lingers_for_what_comes_a_little_later() -> None:
    assert drained([1], linger_s=5.0, limit=3, late=(2, 3)) == Drained([1, 2, 3], ended=False)


def test_without_lingering_a_batch_is_what_is_there() -> None:
    assert drained([1], late=(2,)) == Drained([1], ended=False)


def test_a_batch_in_hand_is_kept_when_the_stream_is_stopped() -> None:
    class Stopping(asyncio.Queue[int]):
        def get_nowait(self) -> int:
            if self.empty():
                raise StopAsyncIteration
            return super().get_nowait()

    async def test() -> Drained:
        queue = Stopping()
        queue.put_nowait(Item(1))
        return await drain(queue, Limits(batch_records=5, batch_linger_s=1.0))  # type: ignore[arg-type]

    assert asyncio.run(test()) == Drained([1], ended=True)
