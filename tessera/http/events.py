"""``GET /api/events``: how the index stands, live, as server-sent events.

A stream begins with ``hello`` and a whole ``status``. After that ``change`` brings what changed of the
status, at most once a second: its keys replace those of the status, but for ``sources``, which holds only
those that changed; ``sources_gone`` names those that are there no more. ``queries`` counts what was searched.
``trouble`` says that the index cannot be read, and a whole ``status`` follows once it can. ``heartbeat``
comes between, so that a stream that broke can be told from an index in which nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tessera import __version__
from tessera.errors import TesseraError
from tessera.http.access import Monitor, identify
from tessera.http.failures import RefusedError
from tessera.http.figures import search_figures
from tessera.http.schema import errors

router = APIRouter(tags=["status"])
logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
HEARTBEAT_S = 5.0

ASK_AGAIN_S = 10.0
"""After this time it is asked again whether the token is good: a stream may be open for weeks."""

MAX_STREAMS = 1_024
"""Each holds a connection open: pages left open everywhere must not use up those that searches need."""

QUEUED = 16
"""Events that wait for a slow reader. Beyond, they are dropped, and it is sent the whole status instead."""


def frame(event: str, value: Any) -> bytes:
    """One event as it goes over the wire: JSON holds no line break, so one ``data`` line is enough."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(value))


def change(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What a reader of ``before`` must be told to know ``after``; empty where they are equal."""
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if "sources" in changed:
        old, new = before.get("sources", {}), after["sources"]
        changed["sources"] = {name: value for name, value in new.items() if old.get(name) != value}
        changed["sources_gone"] = [name for name in old if name not in new]
    return changed


class Feed:
    """Reads the status while somebody listens, encodes each event once, and hands it to all listeners."""

    def __init__(self, read: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._read = read
        self._listeners: set[Listener] = set()
        self._status: dict[str, Any] | None = None
        self._encoded: bytes | None = None
        self._figures: dict[str, Any] = {}
        self._trouble: bytes | None = None
        self._read_at = 0.0
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no further stream is taken."""
        return self._closed or len(self._listeners) >= MAX_STREAMS

    def heartbeat(self) -> bytes:
        """The time here, and how old the status is; None where it was never read."""
        age_s = round(time.monotonic() - self._read_at, 1) if self._status is not None else None
        return frame("heartbeat", {"at_ms": round(time.time() * 1000), "status_age_s": age_s})

    def join(self) -> Listener:
        """A new listener, who is told first how things stand."""
        listener = Listener()
        self._listeners.add(listener)
        if self._closed:
            listener.end()
        elif self._running is None:
            self._running = asyncio.create_task(self._run())
        else:
            listener.restart(self._standing())
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget a listener. With the last one the reading stops."""
        self._listeners.discard(listener)
        if not self._listeners and self._running is not None:
            self._running.cancel()
            self._running = None
            self._status = self._encoded = self._trouble = None
            self._figures = {}

    async def close(self) -> None:
        """End all streams, and take no more."""
        self._closed = True
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        for listener in self._listeners:
            listener.end()

    async def _run(self) -> None:
        while True:
            try:
                status = await self._read()
            except TesseraError as error:
                self._fail(str(error))
            except Exception:
                logger.exception("the status cannot be read")
                self._fail("an unexpected error; the service's log has its traceback")
            else:
                self._tell_status(status)
            self._tell_figures()
            await asyncio.sleep(INTERVAL_S)

    def _tell_status(self, status: dict[str, Any]) -> None:
        self._read_at = time.monotonic()
        known, recovered = self._status, self._trouble is not None
        self._status, self._trouble = status, None
        if known is None or recovered:
            self._encoded = None
            self._tell(self._whole())
            return
        changed = change(known, status)
        if changed:
            self._encoded = None
            self._tell(frame("change", changed))

    def _fail(self, message: str) -> None:
        if self._trouble is None:
            self._trouble = frame("trouble", {"message": message, "since_ms": round(time.time() * 1000)})
            self._tell(self._trouble)

    def _tell_figures(self) -> None:
        figures = search_figures()
        if figures != self._figures:
            self._figures = figures
            self._tell(frame("queries", figures))

    def _tell(self, event: bytes) -> None:
        for listener in self._listeners:
            if not listener.offer(event):
                listener.restart(self._standing())

    def _whole(self) -> bytes:
        if self._encoded is None:
            self._encoded = frame("status", self._status)
        return self._encoded

    def _standing(self) -> list[bytes]:
        events = [] if self._status is None else [self._whole()]
        if self._figures:
            events.append(frame("queries", self._figures))
        return events if self._trouble is None else [*events, self._trouble]


class Listener:
    """One stream's events that were not sent yet."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED)

    def offer(self, event: bytes) -> bool:
        """Queue an event; False where too many wait already."""
        if self._events.full():
            return False
        self._events.put_nowait(event)
        return True

    def restart(self, events: list[bytes]) -> None:
        """Drop what waits and queue these instead."""
        while not self._events.empty():
            self._events.get_nowait()
        for event in events:
            self._events.put_nowait(event)

    def end(self) -> None:
        """Let the stream end."""
        self.restart([])
        self._events.put_nowait(None)

    async def next(self, wait_s: float) -> bytes | None:
        """The next event, None at the end of the stream; TimeoutError where none comes in time."""
        return await asyncio.wait_for(self._events.get(), wait_s)


class EventStream(StreamingResponse):
    """One reader's stream. It leaves the feed however it ends."""

    def __init__(self, feed: Feed, hello: dict[str, Any], still_may: Callable[[], bool]) -> None:
        super().__init__(self._frames(), media_type="text/event-stream")
        # A proxy that buffers would hand events on when its buffer is full.
        self.headers.update({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._feed = feed
        self._hello = hello
        self._still_may = still_may
        self._listener: Listener | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader goes or the service stops."""
        self._listener = self._feed.join()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._listener)

    async def _frames(self) -> AsyncIterator[bytes]:
        assert self._listener is not None
        yield frame("hello", self._hello)
        asked_at = time.monotonic()
        while True:
            try:
                event = await self._listener.next(HEARTBEAT_S)
            except TimeoutError:
                event = self._feed.heartbeat()
            if time.monotonic() - asked_at > ASK_AGAIN_S:
                asked_at = time.monotonic()
                if not self._still_may():
                    return
            if event is None:
                return
            yield event


def _still_may(request: Request) -> Callable[[], bool]:
    """Whether the token of this request still names somebody who may watch: it can be revoked, or expire."""

    def still_may() -> bool:
        try:
            return identify(request.app.state.callers, request.headers.get("authorization")).may("monitor")
        except RefusedError:
            return False

    return still_may


@router.get("/api/events", response_class=StreamingResponse, responses=errors(401, 403, 503))
async def events(request: Request, caller: Monitor) -> EventStream:
    """The status as it changes, as server-sent events.

    `hello`, then a whole `status`, then `change` with what changed; `queries`, `trouble`, `heartbeat`.
    """
    feed: Feed = request.app.state.feed
    if feed.full:
        raise RefusedError(503, "too_many_streams", f"{MAX_STREAMS} streams are open already: close a page")
    hello = {
        "operator": caller.may("operator"),
        "role": caller.role,
        "version": __version__,
        "heartbeat_s": HEARTBEAT_S,
    }
    return EventStream(feed, hello, _still_may(request))
