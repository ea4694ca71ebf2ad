"""``/api/generations``: the same life as on the command line, for the operator alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from tessera.documents.record import DocumentRecord
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS
from tessera.generations.bootstrap import bootstrap, read_registry
from tessera.http import services as services_module
from tessera.http.app import create_app
from tessera.http.lifecycle import GenerationDetail, MoveBody, RemovalBody
from tessera.settings import Settings
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

READ, WATCH, OPERATE = "r" * 16, "m" * 16, "o" * 16
TEXT = "# Notice\\n\\nEither side may end it with thirty days of notice.\\n\\nPayment is due at once.\\n"
EVENT = (
    '{"v": 1, "op": "upsert", "source": "handbook", "doc_id": "a.md", "media_type": "text/markdown", '
    f'"access": ["*"], "content": "{TEXT}"}}'
)


class MemoryLog:
    """Stands for the control topic."""

    def __init__(self, *_: object) -> None:
        self.values: list[bytes | None] = []

    async def append(self, key: bytes, value: bytes) -> None:
        self.values.append(value)

    async def read(self) -> Sequence[bytes | None]:
        return list(self.values)


class Service:
    """The service over a store in memory, and the workers' part of it."""

    def __init__(self, client: httpx.AsyncClient, writers: list[ShardWriter], store: MemoryStore) -> None:
        self.client = client
        self.writers = writers
        self.store = store

    async def tick(self) -> None:
        for writer in self.writers:
            for _ in range(2):
                await writer.tick()
                while await writer.backfill(0, 5.0):
                    pass

    async def post(self, path: str, body: object = None, expect: int = 200) -> Any:
        response = await self.client.post(f"/api/generations{path}", json=body)
        assert response.status_code == expect, response.text
        return response.json()

    async def get(self, path: str = "") -> Any:
        response = await self.client.get(f"/api/generations{path}")
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ends(_: str, shards: Sequence[ShardId], **_security: object) -> dict[ShardId, int]:
        return dict.fromkeys(shards, 1)

    monkeypatch.setattr(services_module, "KafkaLog", MemoryLog)
    monkeypatch.setattr("tessera.generations.operations.high_watermarks", ends)
    monkeypatch.setattr("tessera.overview.high_watermarks", ends)


def with_service(use: Callable[[Service], Awaitable[None]], **changed: Any) -> None:
    async def run() -> None:
        store = MemoryStore()
        await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
        writers = [
            ShardWriter(store, ShardId(topic, 0), partitions=1, catalog=SourceCatalog())
            for topic in CHANGE_TOPICS
        ]
        for writer in writers:
            await writer.open()
        await writers[0].write([Record(DOCUMENTS, 0, 0, b"handbook/a.md", EVENT.encode())])
        settings = Settings(broker="b:1", redis="redis://r/0", **changed)
        app = create_app(settings, lambda: store)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                await use(Service(client, writers, store))

    asyncio.run(run())


def test_the_whole_life_of_a_generation() -> None:
    async def use(service: Service) -> None:
        made = await service.post("", {"policy": "window-200", "rate": 5}, 201)
        assert GenerationDetail.model_validate(made).steps[0]["actor"] == "operator@127.0.0.1"
        assert (made["generation"], made["state"], made["rate"]) == ("g2", "building", 5)
        assert (await service.post("/g2/rate", {"rate": None}))["rate"] is None
        assert (await service.post("/g2/pause"))["paused"]
        assert not (await service.post("/g2/resume"))["paused"]
        await service.tick()
        assert (await service.get("/g2"))["progress"]["shards_complete"] == 2

        refused = await service.post("/g2/cutover", {}, 409)
        assert refused["error"]["code"] == "state"
        assert refused["error"]["message"].endswith(refused["error"]["next_step"])

        report = await service.post("/g2/verify", {"sample": 1})
        assert (report["passed"], report["sampled"]) == (True, 1)
        start = TEXT.replace("\\n", "\n").index("thirty")
        digest = "sha256:64b0f2c0e5c2a7a2b4a4d2c7b5a1e6c1f3e9d8a7b6c5d4e3f2a1b0c9d8e7f6a5"
        case = {"id": "c", "question": "notice", "source": "handbook", "doc_id": "a.md", "start": start}
        cases = {"thresholds": {"max_stale_share": 0}, "cases": [case | {"end": start + 6, "digest": digest}]}
        evidence = await service.post("/g2/compare", {"cases": cases})
        assert (evidence["recorded"], evidence["passed"]) == (True, False)

        plan = MoveBody.model_validate(await service.post("/g2/cutover", {"dry_run": True}))
        assert (plan.done, plan.allowed) == (False, False)
        waiver = {"waive": "evidence: the case is stale", "expires_s": 60}
        done = MoveBody.model_validate(await service.post("/g2/cutover", waiver | {"retention_s": 0}))
        assert (done.done, done.to_release["generation"]) == (True, "g2")
        answer = (await service.client.get("/api/search", params={"q": "notice"})).json()
        assert (answer["release"], answer["generation"]) == ("r2", "g2")

        back = MoveBody.model_validate(await service.post("/rollback", {"dry_run": True}))
        assert (back.done, back.to_release["release"]) == (False, "r1")
        assert (await service.post("/g1/hold", {"why": "audit"}))["hold"] == "audit"
        assert (await service.post("/g1/contract", {}, 409))["error"]["code"] == "held"
        assert (await service.post("/g1/release-hold"))["hold"] == ""
        begun = RemovalBody.model_validate(await service.post("/g1/contract", {}))
        assert (begun.state, begun.done) == ("contracting", False)
        await service.tick()
        states = {each["generation"]: each["state"] for each in await service.get()}
        assert states == {"g1": "contracting", "g2": "serving"}
        assert (await read_registry(service.store)).previous is None

    with_service(use, cutover_wait_s=10)


def test_the_assembly_of_contexts_is_moved_by_itself_and_shown_with_the_release() -> None:
    async def context(service: Service) -> tuple[str, str]:
        answer = (await service.client.get("/api/context", params={"q": "notice", "budget": 50})).json()
        return answer["release"], answer["assembly"]

    async def use(service: Service) -> None:
        plan = await service.post("/g1/cutover", {"assembly": "sentences", "dry_run": True})
        assert (plan["done"], plan["allowed"]) == (False, True)
        assert "assembly joined@1 becomes sentences@1" in plan["changes"]
        assert await context(service) == ("r1", "joined@1")
        done = await service.post("/g1/cutover", {"assembly": "sentences"})
        assert done["to_release"]["assembly"]["name"] == "sentences"
        assert await context(service) == ("r2", "sentences@1")
        shown = GenerationDetail.model_validate(await service.get("/g1"))
        assert (shown.release, shown.assembly) == ("r2", "sentences@1")
        assert (await service.post("/g1/cutover", {"assembly": "best"}, 422))["error"]["code"]
        again = await service.post("/g1/cutover", {"assembly": "sentences"}, 409)
        assert again["error"]["code"] == "already"
        await service.post("/rollback", {})
        assert await context(service) == ("r1", "joined@1")

    with_service(use)


def test_a_rollback_is_served_at_once() -> None:
    async def use(service: Service) -> None:
        await service.post("", {"policy": "window-200"}, 201)
        await service.tick()
        await service.post("/g2/verify", {})
        await service.post("/g2/cutover", {"waive": "trying it out"})
        done = await service.post("/rollback", {"why": "enough"})
        assert (done["done"], done["to_release"]["release"]) == (True, "r1")
        answer = (await service.client.get("/api/search", params={"q": "notice"})).json()
        assert (answer["release"], answer["generation"]) == ("r1", "g1")
        removal = await service.post("/g2/abandon", {"why": "no better"})
        assert removal["state"] == "abandoned"

    with_service(use, cutover_wait_s=10)


def test_a_policy_is_named_or_given_as_text_and_never_as_a_file_of_the_server() -> None:
    async def use(service: Service) -> None:
        for wrong in ({"policy": "/etc/passwd"}, {}, {"policy_toml": "name = "}, {"policy_toml": "size = 1"}):
            refused = await service.post("", wrong, 422)
            assert "policy" in refused["error"]["message"]
        text = 'name = "win-9"\n[documents]\nparser = "window"\nsize = 9\n'
        made = await service.post("", {"policy_toml": text, "name": "nine"}, 201)
        assert (made["generation"], made["policy"].partition("@")[0]) == ("nine", "win-9")
        assert made["policy_canonical"]["documents"]["size"] == 9

    with_service(use)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/g9/pause", None, 404, "unknown"),
        ("/g1/pause", None, 409, "state"),
        ("/g1/abandon", {}, 409, "served"),
        ("/rollback", {}, 409, "no_previous"),
        ("/rebuild", {}, 409, "unconfirmed"),
        ("", {"policy": "paragraph"}, 409, "same_contract"),
        ("", {"policy": "window-200", "name": "g1"}, 409, "name_used"),
        ("", {"policy": "window-200", "rate": -1}, 422, "invalid_request"),
        ("", {"policy": "window-200", "colour": "red"}, 422, "invalid_request"),
        ("/g1/hold", {"why": ""}, 422, "invalid_request"),
        ("/g1/cutover", {"expires_s": 0}, 422, "invalid_request"),
        ("/g1/compare", {"cases": {}}, 422, "invalid_request"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code(
    path: str, body: object, status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_plan(*_: object) -> list[object]:
        return []

    monkeypatch.setattr("tessera.http.generations.plan_rebuild", no_plan)

    async def use(service: Service) -> None:
        assert (await service.post(path, body, status))["error"]["code"] == code
        assert (await read_registry(service.store)).version == 1

    with_service(use)


def test_only_the_operator_changes_generations_and_monitors_may_look() -> None:
    async def use(service: Service) -> None:
        reader, watcher = ({"Authorization": f"Bearer {token}"} for token in (READ, WATCH))
        schema = (await service.client.get("/openapi.json")).json()
        posts = [path for path, item in schema["paths"].items() if "post" in item and "generations" in path]
        assert len(posts) == 13
        for path in posts:
            target = path.replace("{name}", "g1")
            for other in (reader, watcher):
                assert (await service.client.post(target, json={}, headers=other)).status_code == 403, path
            assert (await service.client.post(target, json={})).status_code == 401, path
        for path in ("/api/generations", "/api/generations/g1"):
            assert (await service.client.get(path, headers=watcher)).status_code == 200
            assert (await service.client.get(path, headers=reader)).status_code == 403
            assert (await service.client.get(path)).status_code == 401

    with_service(use, read_token=READ, monitor_token=WATCH, operator_token=OPERATE)


def test_a_body_that_nobody_sent_is_not_read() -> None:
    async def use(service: Service) -> None:
        read = 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal read
            read += 1
            yield b"{"

        json = {"Content-Type": "application/json"}
        for path in ("", "/g1/compare", "/no/such/route"):
            answer = await service.client.post(f"/api/generations{path}", content=body(), headers=json)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert read == 0

    with_service(use, read_token=READ, operator_token=OPERATE)


def test_a_monitor_is_told_counts_and_a_reader_nothing_of_documents_it_may_not_see() -> None:
    async def use(service: Service) -> None:
        secret = EVENT.replace("a.md", "merger.md").replace('["*"]', '["board"]')
        writer, shard = service.writers[0], service.writers[0].head.shard
        await writer.write([Record(DOCUMENTS, 0, 1, b"handbook/merger.md", secret.encode())])
        [stored] = await service.store.documents(shard, ["handbook/merger.md"])
        blobs = DocumentRecord.decode(stored or b"", "handbook/merger.md").text_blobs()
        for blob in blobs:
            del service.store._shards[shard].blobs[blob]
        operator = {"Authorization": f"Bearer {OPERATE}"}
        body = {"policy": "window-200", "name": "g2"}
        assert (await service.client.post("/api/generations", json=body, headers=operator)).status_code == 201
        await service.tick()
        for path in ("/api/generations", "/api/generations/g2", "/api/status", "/metrics"):
            answer = await service.client.get(path, headers={"Authorization": f"Bearer {WATCH}"})
            assert answer.status_code == 200
            assert "merger" not in answer.text, path
            answer = await service.client.get(path, headers={"Authorization": f"Bearer {READ}"})
            assert answer.status_code == 403
        assert "1 documents cannot be read" in writer.head.standings["g2"].note

    with_service(use, read_token=READ, monitor_token=WATCH, operator_token=OPERATE)


def test_nothing_set_up_is_an_empty_list() -> None:
    async def run() -> None:
        app = create_app(Settings(broker="b:1", redis="redis://r/0"), MemoryStore)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                assert (await client.get("/api/generations")).json() == []

    asyncio.run(run())
