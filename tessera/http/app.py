"""The HTTP service put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from tessera import __version__
from tessera.callers.directory import Directory
from tessera.http import changes, context, coverage, documents, events, failures, generations, search, status
from tessera.http.access import check_exposure, identify, is_loopback
from tessera.http.dashboard import page
from tessera.http.events import Feed
from tessera.http.guard import Guard
from tessera.http.measures import Measured
from tessera.http.services import Services
from tessera.settings import Settings
from tessera.store.base import ShardStore
from tessera.store.connect import connect

ROUTERS = (
    search.router,
    context.router,
    changes.router,
    coverage.router,
    documents.router,
    events.router,
    generations.router,
    status.router,
    page.router,
)


def create_app(settings: Settings, open_store: Callable[[], ShardStore] | None = None) -> FastAPI:
    """The service as an ASGI application; its connections are opened by its lifespan.

    Raises :class:`~tessera.errors.SettingsError` where it would be open to others without a token.
    """
    check_exposure(settings)
    callers = Directory(settings)
    callers.check()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = open_store() if open_store is not None else connect(settings.redis, settings.namespace)
        services = Services(settings, store)
        app.state.services = services
        app.state.feed = Feed(services.live_overview)
        services.start()
        try:
            yield
        finally:
            await app.state.feed.close()
            await services.close()

    app: FastAPI = FastAPIOffline(
        title="Tessera",
        version=__version__,
        summary="Documents and logs, indexed as they change.",
        lifespan=lifespan,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.callers = callers
    for router in ROUTERS:
        app.include_router(router)
    app.mount(page.PATH, page.DashboardFiles())
    failures.install(app)
    # JSON escapes and base64 make a document's event larger than the document: twice is ample.
    limit = 2 * settings.max_document_bytes + 64 * 1024
    app.add_middleware(
        Guard,
        loopback=is_loopback(settings.host),
        max_body_bytes=limit,
        identify=partial(identify, callers),
    )
    app.add_middleware(Measured)
    return app
