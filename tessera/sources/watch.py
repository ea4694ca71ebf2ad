"""When to look at a folder again: at once when the system says so, and from time to time regardless."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Literal

from watchfiles import awatch
from watchfiles._rust_notify import WatchfilesRustInternalError

Wake = Literal["changed", "tick"]

DEBOUNCE_MS = 50
"""Events that arrive this close together are one look: a checkout touches thousands of files."""

STEP_MS = 20
"""Quiet time that ends a debounce early. Both together stay far below the second an edit may take."""

TICK_S = 0.5
"""Bounds how late what no event tells is seen: a last line without LF, a folder that came back."""

POLL_S = 0.3
"""How often to look where the system offers no notifications (inotify watches used up, some mounts), and the
pause before a watch that broke is set again."""


async def wakeups(folder: Path) -> AsyncGenerator[Wake, None]:
    """Yield ``"changed"`` whenever something in ``folder`` may have changed, else ``"tick"``, without end.

    A watch that breaks is set again. Falls back to looking every :data:`POLL_S` seconds where notifications
    are not to be had, or when another folder has taken the watched one's place, which its notifications do
    not follow.
    """
    while True:
        try:
            async with aclosing(_notified(folder)) as wakes:
                async for wake in wakes:
                    yield wake
            break
        except OSError:
            # No watch could be set: nothing is lost by it, since looking does not depend on events.
            break
        except ExceptionGroup as errors:
            # It cannot spell a name that is not UTF-8, and says nothing more once it has met one.
            _, others = errors.split(WatchfilesRustInternalError)
            if others is not None:
                raise
            yield "changed"
            await asyncio.sleep(POLL_S)
    while True:
        yield "changed"
        await asyncio.sleep(POLL_S)


async def _notified(folder: Path) -> AsyncGenerator[Wake, None]:
    """Wakes from one watch; ends when the folder is another one. The first is always ``"changed"``."""
    identity = _identity(folder)
    is_first = True
    events = awatch(
        folder,
        watch_filter=_is_of_interest,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        rust_timeout=round(TICK_S * 1000),
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    async with aclosing(events):
        async for changes in events:
            if _identity(folder) != identity:
                return
            # What happened before the watch was set, no event tells.
            yield "changed" if changes or is_first else "tick"
            is_first = False


def _is_of_interest(_: object, path: str) -> bool:
    return f"{os.sep}.git{os.sep}" not in path


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino
