"""What waits for the agents is bounded in bytes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from streams.transport import BUFFER_BYTES, Consumer

TOPIC = TP("tessera.documents", 0)


def consumer(sizes: list[int]) -> Any:
    """Stands for a consumer whose agent's buffer holds records of these sizes."""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    for size in sizes:
        queue.put_nowait(SimpleNamespace(message=SimpleNamespace(value=bytes(size))))
    channels = {TOPIC: [SimpleNamespace(queue=queue)]}
    app = SimpleNamespace(topics=SimpleNamespace(_tp_index=channels))
    return SimpleNamespace(flow_active=True, should_stop=False, app=app, queue=queue)


async def passes(subject: Any) -> bool:
    """Whether a large record may go on at once."""
    waiting = asyncio.ensure_future(Consumer._wait_for_room(subject, TOPIC))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    waiting.cancel()
    return bool(done)


def test_a_large_record_waits_until_the_buffer_has_room() -> None:
    async def test() -> None:
        subject = consumer([BUFFER_BYTES // 2, BUFFER_BYTES // 2])
        assert not await passes(subject)
        waiting = asyncio.ensure_future(Consumer._wait_for_room(subject, TOPIC))
        await asyncio.sleep(0)
        assert not waiting.done()
        subject.queue.get_nowait()
        await asyncio.wait_for(waiting, 10)

    asyncio.run(test())


def test_it_does_not_wait_through_a_rebalance_or_the_end() -> None:
    async def test() -> None:
        suspended, ending = consumer([BUFFER_BYTES]), consumer([BUFFER_BYTES])
        suspended.flow_active = False
        ending.should_stop = True
        assert await passes(suspended)
        assert await passes(ending)
        assert await passes(consumer([]))

    asyncio.run(test())
