from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx
import orjson
import pytest

from tessera.errors import UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.encoding import Event
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS, LOGS
from tessera.generations.bootstrap import bootstrap
from tessera.generations.cases import evidence_digest
from tessera.http import services as services_module
from tessera.http.app import create_app
from tessera.http.lifecycle import GenerationBody, GenerationDetail
from tessera.http.schema import AnswerBody, DocumentBody, HitBody
from tessera.kafka.publisher import Position
from tessera.settings import Settings
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

READ, OPERATE = "r" * 16, "o" * 16
HANDBOOK: dict[str, Any] = {
    "v": 1,
    "op": "upsert",
    "source": "handbook",
    "doc_id": "contracts/msa 1.md",
    "media_type": "text/markdown",
    "content": "# Agreement\n\nThe supplier delivers.\n\nPayment in thirty days.\n",
    "access": ["*"],
}
SECRET = HANDBOOK | {
    "doc_id": "secret.md",
    "content": "# Merger\n\nThe supplier is bought.\n",
    "access": ["group:legal"],
}


class FakePublisher:
    """Takes events and numbers them, as a broker would; fails to connect while ``down``."""

    down = False
    sent: list[Event]

    def __init__(self, *_: object, **__: object) -> None:
        type(self).sent = []

    async def __aenter__(self) -> Self:
        if type(self).down:
            raise UnavailableError("the Kafka broker at b:1 is not available; check that it runs")
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def publish_many(self, events: Sequence[Event]) -> list[Position]:
        self.sent.extend(events)
        return [Position(DOCUMENTS, 0, offset) for offset in range(len(events))]


@pytest.fixture(autouse=True)
def fake_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ends(_: str, shards: Sequence[ShardId], **_security: object) -> dict[ShardId, int]:
        return dict.fromkeys(shards, 5)

    monkeypatch.setattr(services_module, "Publisher", FakePublisher)
    monkeypatch.setattr(FakePublisher, "down", False)
    monkeypatch.setattr("tessera.overview.high_watermarks", ends)


async def index_with(*events: dict[str, Any]) -> MemoryStore:
    store = MemoryStore()
    await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
    for topic in CHANGE_TOPICS:
        shard = ShardId(topic, 0)
        writer = ShardWriter(store, shard, partitions=1, catalog=SourceCatalog())
        await writer.open()
        mine = [event for event in events if (event["source"] == "devex") == (topic == LOGS)]
        records = [
            Record(topic, 0, offset, f"{event['source']}/{event['doc_id']}".encode(), orjson.dumps(event))
            for offset, event in enumerate(mine)
        ]
        if records:
            await writer.write(records)
    return store


def with_service(
    use: Callable[[httpx.AsyncClient], Awaitable[None]], *events: dict[str, Any], **changed: Any
) -> None:
    async def run() -> None:
        store = await index_with(*events)
        settings = Settings(broker="b:1", redis="redis://r/0", **changed)
        app = create_app(settings, lambda: store)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                await until_ready(client)
                await use(client)

    asyncio.run(run())


async def until_ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(10):
        while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - the service is asked, as a probe does
            await asyncio.sleep(0)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_search_answers_in_the_form_that_is_described() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        response = await client.get("/api/search", params={"q": "supplier", "k": 5})
        answer = AnswerBody.model_validate(response.json())
        assert (answer.release, answer.generation) == ("r1", "g1")
        assert answer.as_of[f"{DOCUMENTS}/0"] == 0
        [hit] = answer.hits
        assert HANDBOOK["content"][hit.start : hit.end] == hit.text == "# Agreement\n\nThe supplier delivers."

    with_service(use, HANDBOOK)


def test_a_chunk_is_found_by_its_uid_as_answered_and_percent_encoded_once_more() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        hits = (await client.get("/api/search", params={"q": "supplier"})).json()["hits"]
        uid = hits[0]["uid"]
        assert "%2F" in uid
        assert "%20" in uid
        for path in (uid, quote(uid, safe=""), quote(uid, safe="/")):
            response = await client.get(f"/api/chunks/{path}")
            assert response.status_code == 200, path
            assert HitBody.model_validate(response.json()).uid == uid
        assert (await client.get(f"/api/chunks/{uid.removesuffix('0')}9")).status_code == 404
        assert (await client.get("/api/chunks/nonsense")).status_code == 422

    with_service(use, HANDBOOK)


def test_a_document_comes_with_its_chunks_and_its_uncovered_ranges() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        for path in ("contracts/msa 1.md", "contracts%2Fmsa%201.md"):
            response = await client.get(f"/api/documents/handbook/{path}")
            document = DocumentBody.model_validate(response.json())
            assert [chunk.text for chunk in document.chunks] == [
                "# Agreement\n\nThe supplier delivers.",
                "Payment in thirty days.",
            ]
            assert document.uncovered == []
        assert (await client.get("/api/documents/handbook/none.md")).status_code == 404

    with_service(use, HANDBOOK)


def test_missing_lines_of_a_log_are_uncovered() -> None:
    log = {
        "v": 1,
        "op": "append",
        "source": "devex",
        "doc_id": "run.log",
        "access": ["*"],
        "media_type": "text/x-run-log",
    }
    events = (log | {"first_line": 1, "content": "one\n"}, log | {"first_line": 4, "content": "four\n"})

    async def use(client: httpx.AsyncClient) -> None:
        document = DocumentBody.model_validate((await client.get("/api/documents/devex/run.log")).json())
        [gap] = document.uncovered
        assert (gap.start_line, gap.end_line, gap.missing) == (2, 3, True)
        assert (gap.start, gap.end) == (4, 6)
        assert [(chunk.start_line, chunk.text) for chunk in document.chunks] == [(1, "one"), (4, "four")]

    with_service(use, *events)


def test_a_token_sees_only_what_its_principals_may_see_on_every_path() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        everything = (await client.get("/api/search?q=supplier", headers=bearer(OPERATE))).json()["hits"]
        assert {hit["doc_id"] for hit in everything} == {HANDBOOK["doc_id"], "secret.md"}
        secret = next(hit for hit in everything if hit["doc_id"] == "secret.md")
        seen = (await client.get("/api/search?q=supplier", headers=bearer(READ))).json()["hits"]
        assert [hit["doc_id"] for hit in seen] == [HANDBOOK["doc_id"]]
        for path in (f"/api/chunks/{secret['uid']}", "/api/documents/handbook/secret.md"):
            assert (await client.get(path, headers=bearer(OPERATE))).status_code == 200
            assert (await client.get(path, headers=bearer(READ))).status_code == 404
        narrowed = await client.get("/api/search?q=supplier&as=group:hr", headers=bearer(OPERATE))
        assert [hit["doc_id"] for hit in narrowed.json()["hits"]] == [HANDBOOK["doc_id"]]
        widened = await client.get("/api/search?q=supplier&as=group:legal", headers=bearer(READ))
        assert widened.status_code == 403

    with_service(use, HANDBOOK, SECRET, read_token=READ, operator_token=OPERATE)


@pytest.mark.parametrize(
    "path",
    [
        "/api/search?q=x",
        "/api/chunks/a/b@1/c/0",
        "/api/documents/a/b",
        "/api/status",
        "/api/generations",
        "/api/generations/g1",
        "/metrics",
    ],
)
def test_nothing_is_told_without_a_token_where_one_is_configured(path: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        response = await client.get(path)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["error"]["code"] == "unauthorized"

    with_service(use, read_token=READ, operator_token=OPERATE)


def test_changes_are_accepted_once_the_broker_has_them() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        one = await client.post("/api/changes", json=HANDBOOK)
        assert (one.status_code, one.json()) == (
            202,
            [{"topic": DOCUMENTS, "partition": 0, "offset": 0}],
        )
        many = await client.post("/api/changes", json=[HANDBOOK, SECRET])
        assert [each["offset"] for each in many.json()] == [0, 1]
        assert [event.key for event in FakePublisher.sent] == [
            b"handbook/contracts/msa 1.md",
            b"handbook/contracts/msa 1.md",
            b"handbook/secret.md",
        ]
        assert orjson.loads(FakePublisher.sent[-1].value or b"") == SECRET

    with_service(use)


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (b"{", "invalid_json", ""),
        (b"[]", "out_of_range", ""),
        (orjson.dumps(HANDBOOK | {"revision": "1"}), "wrong_type", "revision"),
        (orjson.dumps([HANDBOOK, HANDBOOK | {"op": "upsrt"}]), "unknown_op", "op"),
        (orjson.dumps(HANDBOOK | {"op": "append", "first_line": 1}), "invalid_media_type", "media_type"),
        (b'{"v": 1, "op": "append", "source": "handbook", "doc_id": "a", "first_line": 1, "content": ""}',
         "append_to_documents", "op"),
    ],
)  # fmt: skip
def test_a_change_at_fault_is_refused_with_field_and_reason(body: bytes, code: str, field: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        response = await client.post(
            "/api/changes", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 422
        assert (response.json()["error"]["code"], response.json()["error"]["field"]) == (code, field)
        assert response.json()["error"]["message"]

    with_service(use)


def test_only_the_operator_may_publish() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.post("/api/changes", json=HANDBOOK, headers=bearer(READ))).status_code == 403
        assert (await client.post("/api/changes", json=HANDBOOK)).status_code == 401
        assert (await client.post("/api/changes", json=HANDBOOK, headers=bearer(OPERATE))).status_code == 202

    with_service(use, read_token=READ, operator_token=OPERATE)


def test_bodies_are_bounded_whether_or_not_they_tell_their_length() -> None:
    async def pieces(count: int) -> Any:
        for _ in range(count):
            yield b" " * 10_000

    async def use(client: httpx.AsyncClient) -> None:
        headers = {"Content-Type": "application/json"}
        told = await client.post("/api/changes", content=b" " * 100_000, headers=headers)
        untold = await client.post("/api/changes", content=pieces(10), headers=headers)
        assert (told.status_code, untold.status_code) == (413, 413)
        assert told.json()["error"]["code"] == untold.json()["error"]["code"] == "too_large"
        assert (await client.post("/api/changes", content=pieces(1), headers=headers)).status_code == 422

    with_service(use, max_document_bytes=1024)


def test_a_page_of_another_site_cannot_act_as_the_operator() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        rebound = await client.get("/api/search?q=x", headers={"Host": "evil.example:8765"})
        assert (rebound.status_code, rebound.json()["error"]["code"]) == (421, "foreign_host")
        foreign = await client.post("/api/changes", json=HANDBOOK, headers={"Origin": "http://evil.example"})
        assert foreign.status_code == 403
        form = await client.post("/api/changes", content=b"{}", headers={"Content-Type": "text/plain"})
        assert form.status_code == 415
        for own in ("localhost:8765", "[::1]:8765", "127.0.0.1"):
            headers = {"Host": own, "Origin": f"http://{own}"}
            assert (await client.post("/api/changes", json=HANDBOOK, headers=headers)).status_code == 202

    with_service(use)


def test_a_broker_that_is_down_does_not_stop_searching() -> None:
    FakePublisher.down = True

    async def use(client: httpx.AsyncClient) -> None:
        refused = await client.post("/api/changes", json=HANDBOOK)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        assert (await client.get("/api/search?q=supplier")).json()["hits"]
        FakePublisher.down = False
        assert (await client.post("/api/changes", json=HANDBOOK)).status_code == 202

    with_service(use, HANDBOOK)


def test_status_and_generations_tell_how_the_index_stands() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        status = (await client.get("/api/status")).json()
        assert (status["release"], status["generation"]) == ("r1", "g1")
        assert status["sources"]["handbook"]["documents"] == 2
        assert status["totals"]["chunks"] == 3
        documents = next(shard for shard in status["shards"] if shard["topic"] == DOCUMENTS)
        assert (documents["applied"], documents["end"], documents["lag"]) == (1, 5, 3)
        [listed] = (await client.get("/api/generations")).json()
        assert GenerationBody.model_validate(listed).serving
        shown = (await client.get("/api/generations/g1")).json()
        assert GenerationDetail.model_validate(shown).shards.keys() == {
            "tessera.documents/0",
            "tessera.logs/0",
        }
        assert shown.items() >= listed.items()
        assert (await client.get("/api/generations/g9")).status_code == 404

    with_service(use, HANDBOOK, SECRET)


def test_made_up_methods_and_paths_make_no_labels_of_their_own() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        for number in range(20):
            await client.request(f"MADEUP{number}", "/healthz")
            await client.request("GET", f"/made/up/{number}")
        text = (await client.get("/metrics")).text
        assert 'method="other"' in text
        assert "MADEUP" not in text
        assert "made/up" not in text

    with_service(use)


@pytest.mark.parametrize("origin", ["http://[::1", "null", "http://[", "//", "http://127.0.0.1:8765.evil"])
def test_an_origin_that_is_malformed_is_a_foreign_one(origin: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        response = await client.post("/api/changes", json=HANDBOOK, headers={"Origin": origin})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "foreign_origin")

    with_service(use)


def test_metrics_count_requests_by_route_and_describe_the_index() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        await client.get("/api/documents/handbook/none.md")
        text = (await client.get("/metrics")).text
        assert 'route="/api/documents/{source}/{doc_id:path}"' in text
        assert "none.md" not in text
        assert 'tessera_source_documents{source="handbook"} 1.0' in text

    with_service(use, HANDBOOK)


def test_an_empty_index_is_alive_but_not_ready() -> None:
    async def run() -> None:
        store = MemoryStore()
        app = create_app(Settings(broker="b:1", redis="redis://r/0"), lambda: store)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get("/readyz")).status_code == 503
                refused = await client.get("/api/search?q=x")
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
                await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
                await until_ready(client)

    asyncio.run(run())


def test_the_api_is_described_without_any_network() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        page = (await client.get("/docs")).text
        assert "https://" not in page
        for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
            assert (await client.get(f"/static-offline-docs/{asset}")).status_code == 200
        described = (await client.get("/openapi.json")).json()["paths"]
        assert {
            "/api/search",
            "/api/changes",
            "/api/chunks/{uid}",
            "/api/status",
            "/metrics",
        } <= described.keys()

    with_service(use)


def test_every_error_has_one_form() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        for path, status in [("/nothing", 404), ("/api/search", 422), ("/api/search?q=x&k=a", 422)]:
            response = await client.get(path)
            assert response.status_code == status
            assert response.json()["error"]["code"]
        assert (await client.put("/api/search")).status_code == 405
        outside = await client.get("/api/search?q=x&k=1000000")
        assert (outside.status_code, outside.json()["error"]["code"]) == (422, "invalid_request")

    with_service(use)


def test_standing_cases_are_asked_of_what_is_served_and_a_faulty_file_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evidence = "The supplier delivers."
    start = HANDBOOK["content"].index(evidence)
    case = {"id": "who", "question": "who delivers", "source": "handbook", "doc_id": HANDBOOK["doc_id"]}
    case |= {"start": start, "end": start + len(evidence), "digest": evidence_digest(evidence)}
    path = tmp_path / "cases.json"
    path.write_text("{")

    async def use(client: httpx.AsyncClient) -> None:
        async with asyncio.timeout(10):
            while "standing cases are not asked" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "tessera_cases_representability_ratio{" not in (await client.get("/metrics")).text
        path.write_text(json.dumps({"thresholds": {"min_recall": 0}, "cases": [case]}))
        shown = ""
        async with asyncio.timeout(10):
            while 'tessera_cases_retrieval_coverage_ratio{generation="g1"} 1.0' not in shown:
                shown = (await client.get("/metrics")).text
        assert 'tessera_cases{generation="g1",state="live"} 1.0' in shown
        assert 'tessera_cases_representability_ratio{generation="g1"} 1.0' in shown

    with_service(use, HANDBOOK, cases_file=path, cases_s=1.0)
