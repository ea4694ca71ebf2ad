from __future__ import annotations

import asyncio
import contextlib

import pytest

from tessera.cli.up import session


def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CANCEL_AGAIN_S", 0.01)

    async def swallows_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ValueError("its error is nobody's any more")

    async def run() -> None:
        tasks = {asyncio.create_task(swallows_one()), asyncio.create_task(fails())}
        await asyncio.sleep(0)
        await asyncio.wait_for(session._cancel(tasks), 30)
        assert all(task.done() for task in tasks)

    asyncio.run(run())
