"""Every route as every caller: who gets in, and that nobody learns of a document it may not read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_service import HANDBOOK, OPERATE, READ, bearer, index_with, until_ready, with_service

from tessera.http.app import create_app
from tessera.settings import Settings

WATCH = "m" * 16
TOKENS = {"read_token": READ, "monitor_token": WATCH, "operator_token": OPERATE}
OPEN = {"/healthz", "/readyz"}
MONITOR = {"/api/status", "/api/events", "/metrics", "/api/generations", "/api/generations/{name}"}
READER = {
    "/api/search",
    "/api/context",
    "/api/ground",
    "/api/outcomes",
    "/api/coverage",
    "/api/chunks/{uid}",
    "/api/documents/{source}/{doc_id}",
}
"""Everything else is the operator's."""


def role_of(path: str, method: str) -> str:
    """Who may, by the rule."""
    plain = path.replace(":path}", "}")
    if plain in OPEN:
        return "anyone"
    if plain in MONITOR and method == "get":
        return "monitor"
    return "reader" if plain in READER else "operator"


ORDER = ("anyone", "reader", "monitor", "operator")
CALLERS = {"anyone": None, "reader": READ, "monitor": WATCH, "operator": OPERATE}


def test_each_route_lets_in_whom_it_is_for_and_nobody_below() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert {path.replace(":path}", "}") for path in paths} >= OPEN | MONITOR | READER
        for path, item in paths.items():
            target = path.replace("{name}", "g9").replace("{source}", "s").replace("{doc_id}", "d")
            target = target.replace("{uid}", "u").replace(":path", "")
            for method in item:
                wanted = role_of(path, method)
                for caller, token in CALLERS.items():
                    if target == "/api/events" and ORDER.index(caller) >= ORDER.index(wanted):
                        continue  # a stream without an end
                    headers = bearer(token) if token else {}
                    answer = await client.request(method.upper(), target, headers=headers, json={})
                    expected_in = ORDER.index(caller) >= ORDER.index(wanted)
                    let_in = answer.status_code not in (401, 403)
                    assert let_in == expected_in, (caller, method, target, answer.status_code)
                    if not let_in:
                        assert answer.status_code == (401 if token is None else 403)

    with_service(use, HANDBOOK, **TOKENS)


PRINCIPALS = ("group:a", "group:b", "user:c")
ACCESS = st.lists(st.sampled_from([*PRINCIPALS, "*"]), max_size=2, unique=True)


def document(number: int, access: list[str]) -> dict[str, Any]:
    content = f"# Notice {number}\n\nmarker{number} stands here. A notice of number {number}.\n\n\x0b\n"
    return {**HANDBOOK, "doc_id": f"d{number}.md", "content": content, "access": access}


@settings(max_examples=25, deadline=None)
@given(accesses=st.lists(ACCESS, min_size=1, max_size=5), held=st.sets(st.sampled_from(PRINCIPALS)))
def test_no_route_tells_a_reader_of_what_it_may_not_read(accesses: list[list[str]], held: set[str]) -> None:
    events = [document(number, access) for number, access in enumerate(accesses)]
    visible = {number for number, access in enumerate(accesses) if {*access} & {"*", *held}}

    async def run() -> None:
        store = await index_with(*events)
        configured = Settings(
            broker="b:1",
            redis="redis://r/0",
            read_principals=tuple(held),
            read_token=READ,
            operator_token=OPERATE,
        )
        app = create_app(configured, lambda: store)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                await until_ready(client)
                told = await everything(client, len(events))
        for number in range(len(events)):
            found = f"marker{number} " in told or f"d{number}.md" in told
            assert found == (number in visible), (number, told)

    asyncio.run(run())


async def everything(client: httpx.AsyncClient, count: int) -> str:
    """All that a reader is answered by all routes, whatever it asks."""
    reader, operator = bearer(READ), bearer(OPERATE)
    told = []
    query = " ".join(f"marker{number} notice" for number in range(count))
    every = await client.get("/api/search", params={"q": query, "k": 100}, headers=operator)
    quotes = [
        {"uid": hit["uid"], "quote": f"marker{hit['doc_id'][1:-3]}"}
        for hit in every.json()["hits"]
        if f"marker{hit['doc_id'][1:-3]}" in hit["text"]
    ]
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/api/search", {"params": {"q": query, "k": 100}}),
        ("GET", "/api/context", {"params": {"q": query, "budget": 10_000}}),
        ("GET", "/api/coverage", {}),
        ("GET", "/api/coverage", {"params": {"source": "handbook"}}),
        ("GET", "/api/status", {}),
        ("GET", "/metrics", {}),
        ("GET", "/api/generations/g1", {}),
    ]
    asked += [("GET", f"/api/documents/handbook/d{number}.md", {}) for number in range(count)]
    asked += [("GET", f"/api/chunks/{hit['uid']}", {}) for hit in every.json()["hits"]]
    for method, path, options in asked:
        answer = await client.request(method, path, headers=reader, **options)
        if answer.status_code == 200:
            told.append(answer.text)
        else:
            assert "marker" not in answer.text
    if quotes:
        grounded = (await client.post("/api/ground", json={"quotes": quotes}, headers=reader)).json()[
            "quotes"
        ]
        for quote, found in zip(quotes, grounded, strict=True):
            # What may not be read is as unknown as what never was.
            told.append(f"{quote['quote']} " if found["verdict"] == "supported" else "")
            assert (found["verdict"], found["reason"]) in (("supported", "held"), ("absent", "unknown"))
            if found["verdict"] == "absent":
                assert {name for name, value in found.items() if value is not None} == {
                    "uid",
                    "verdict",
                    "reason",
                }
    return json.dumps(told)


@pytest.mark.parametrize(
    "path", ["/..%2f..%2fetc%2fpasswd", "/dashboard/..%2f..%2f..%2fpyproject.toml", "/dashboard/%00"]
)
def test_no_path_leads_out_of_the_pages_files(path: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.get(path)
        assert answer.status_code in (400, 404)
        assert "root:" not in answer.text

    with_service(use, HANDBOOK)
