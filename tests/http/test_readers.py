"""What the service does as one of the index's readers: its lease, stale answers, shadow reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import orjson
from test_service import HANDBOOK, until_ready

from tessera.errors import UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS
from tessera.generations.bootstrap import bootstrap, contract_of, read_registry
from tessera.generations.registry import Generation, State
from tessera.http.app import create_app
from tessera.http.measures import REGISTRY
from tessera.http.schema import AnswerBody
from tessera.http.services import Services
from tessera.policies import load_policy
from tessera.releases import Release
from tessera.settings import Settings
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

Use = Callable[["Store", Services, httpx.AsyncClient], Awaitable[None]]


class Store(MemoryStore):
    """Its release pointer cannot be read while ``down``."""

    down = False

    async def release(self) -> bytes | None:
        if self.down:
            raise UnavailableError("the Redis at r:1 does not answer; check that it runs")
        return await super().release()


async def two_generations() -> Store:
    """An index whose generation g2, of another policy, is gated and complete."""
    store = Store()
    await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
    registry = await read_registry(store)
    second = Generation("g2", contract_of(load_policy("window-200")), "gated")
    moved = replace(registry, version=2, generations={**registry.generations, "g2": second})
    assert await store.put_control(1, moved.to_json(), moved.release.to_json())
    for topic in CHANGE_TOPICS:
        writer = ShardWriter(store, ShardId(topic, 0), partitions=1, catalog=SourceCatalog())
        await writer.open()
        if topic == DOCUMENTS:
            key = f"{HANDBOOK['source']}/{HANDBOOK['doc_id']}"
            await writer.write([Record(topic, 0, 0, key.encode(), orjson.dumps(HANDBOOK))])
        await writer.tick()
        while await writer.backfill(0, 5.0):
            pass
    return store


async def serve(store: Store, release: str, served: str, **states: State) -> None:
    registry = await read_registry(store)
    states[served] = "serving"
    moved = replace(
        registry,
        version=registry.version + 1,
        release=Release(release, served),
        generations={
            name: replace(each, state=states.get(name, each.state))
            for name, each in registry.generations.items()
        },
    )
    assert await store.put_control(registry.version, moved.to_json(), moved.release.to_json())


def with_service(use: Use, **changed: Any) -> None:
    async def run() -> None:
        store = await two_generations()
        app = create_app(Settings(broker="b:1", redis="redis://r/0", **changed), lambda: store)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                await until_ready(client)
                await use(store, app.state.services, client)
        assert [orjson.loads(lease)["in_use"] for lease in (await store.readers()).values()] in ([[]], [])

    asyncio.run(run())


async def ask(client: httpx.AsyncClient, **given: str) -> AnswerBody:
    response = await client.get("/api/search", params={"q": "supplier", **given})
    assert response.status_code == 200, response.text
    return AnswerBody.model_validate(response.json())


def test_the_service_announces_what_it_has_loaded_and_follows_the_pointer() -> None:
    async def use(store: Store, services: Services, client: httpx.AsyncClient) -> None:
        await services.searcher.preload()
        [lease] = (await store.readers()).values()
        assert orjson.loads(lease) == {
            "release": "r1",
            "generations": ["g1", "g2"],
            "in_use": ["g1"],
            "follows": True,
        }
        assert (await ask(client)).generation == "g1"
        assert (await ask(client, generation="g2")).hits[0].policy.startswith("window-200@")
        await serve(store, "r2", "g2", g1="retired")
        moved = await ask(client)
        assert (moved.release, moved.generation) == ("r2", "g2")
        await serve(store, "r3", "g2", g1="contracting")
        refused = await client.get("/api/search", params={"q": "x", "generation": "g1"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")

    with_service(use)


def test_an_answer_whose_release_could_not_be_read_says_so_and_then_there_is_none() -> None:
    async def use(store: Store, services: Services, client: httpx.AsyncClient) -> None:
        fresh = await client.get("/api/search", params={"q": "supplier"})
        assert "stale_s" not in fresh.json()
        store.down = True
        stale = await ask(client)
        assert stale.hits
        assert stale.stale_s is not None
        assert stale.stale_s < 60
        services.searcher._control._staleness_s = 0
        refused = await client.get("/api/search", params={"q": "supplier"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        store.down = False
        assert (await ask(client)).stale_s is None

    with_service(use)


def test_shadow_reads_are_measured_and_no_part_of_the_answer() -> None:
    def counted(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    async def use(store: Store, services: Services, client: httpx.AsyncClient) -> None:
        await services.searcher.preload()
        before = counted("tessera_shadow_queries_total", outcome="compared")
        compared = counted("tessera_shadow_overlap_ratio_count")
        for given in ({}, {}, {"generation": "g2"}):
            await ask(client, **given)
        await services.shadow.settle()
        assert counted("tessera_shadow_queries_total", outcome="compared") == before + 2
        assert counted("tessera_shadow_overlap_ratio_count") == compared + 2

    with_service(use, shadow_share=1.0)
