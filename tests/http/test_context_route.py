"""Contexts and quotes over HTTP: the forms that are described, bounds, and what a token may see."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from test_readers import serve, two_generations
from test_readers import with_service as with_two_generations
from test_service import HANDBOOK, OPERATE, READ, SECRET, bearer, with_service

from tessera.http.schema import ContextBody, GroundingBody
from tessera.http.services import Services
from tessera.policies.words import word_starts
from tessera.search import Searcher
from tessera.search.context import Asked

Client = httpx.AsyncClient
BY_TOKEN = {"read_token": READ, "operator_token": OPERATE}


async def context(client: Client, headers: dict[str, str] | None = None, **given: object) -> ContextBody:
    params = {"q": "supplier payment", "budget": 50, **given}
    response = await client.get("/api/context", params=params, headers=headers)  # type: ignore[arg-type]
    assert response.status_code == 200, response.text
    return ContextBody.model_validate(response.json())


async def ground(client: Client, *quotes: dict[str, Any], status: int = 200, **given: Any) -> httpx.Response:
    headers = given.pop("headers", None)
    response = await client.post("/api/ground", json={"quotes": list(quotes), **given}, headers=headers)
    assert response.status_code == status, response.text
    return response


async def grounded(client: Client, *quotes: dict[str, Any], **given: Any) -> GroundingBody:
    return GroundingBody.model_validate((await ground(client, *quotes, **given)).json())


def test_a_context_comes_in_the_form_that_is_described() -> None:
    async def use(client: Client) -> None:
        found = await context(client)
        assert (found.release, found.generation, found.assembly) == ("r1", "g1", "joined@1")
        [piece] = found.pieces
        assert HANDBOOK["content"][piece.start : piece.end] == piece.text == HANDBOOK["content"].strip()
        assert (piece.start_line, piece.end_line, len(piece.uids), found.hits) == (1, 5, 2, 2)
        assert found.used == len(word_starts(piece.text))
        assert found.utilization == found.used / 50
        small = await context(client, budget=4)
        assert (small.pieces[0].text, len(small.left_out)) == ("# Agreement\n\nThe supplier delivers.", 1)
        none = await context(client, floor=1000)
        assert (none.evidence, none.pieces, none.hits) == (False, [], 0)

    with_service(use, HANDBOOK)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"budget": 0}, "budget must be between 1 and 100,000"),
        ({"budget": 100_001}, "budget must be"),
        ({"budget": "many"}, "budget: "),
        ({"budget": None}, "budget: "),
        ({"k": 0}, "k must be"),
        ({"k": 1001}, "k must be"),
        ({"floor": "nan"}, "floor must be"),
        ({"floor": -1}, "floor must be"),
        ({"generation": "g9"}, "there is no generation 'g9'"),
        ({"q": "x" * 10_001}, "q: "),
    ],
)
def test_a_context_out_of_bounds_is_refused(changed: dict[str, Any], words: str) -> None:
    async def use(client: Client) -> None:
        given = {"q": "x", "budget": 5, **changed}
        params = {name: value for name, value in given.items() if value is not None}
        response = await client.get("/api/context", params=params)
        assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")
        assert words in response.json()["error"]["message"]

    with_service(use, HANDBOOK)


def test_a_token_gets_contexts_of_what_its_principals_may_see_and_knows_of_no_other_quote() -> None:
    async def use(client: Client) -> None:
        everything = await context(client, bearer(OPERATE))
        assert {piece.doc_id for piece in everything.pieces} == {HANDBOOK["doc_id"], "secret.md"}
        seen = await context(client, bearer(READ))
        assert [piece.doc_id for piece in seen.pieces] == [HANDBOOK["doc_id"]]
        assert not seen.left_out
        tight = await context(client, bearer(READ), budget=1)
        assert not any("secret" in uid for uid in tight.left_out)
        narrowed = await context(client, bearer(OPERATE), **{"as": "group:hr"})
        assert [piece.doc_id for piece in narrowed.pieces] == [HANDBOOK["doc_id"]]
        secret = next(piece for piece in everything.pieces if piece.doc_id == "secret.md")
        quote = {"uid": secret.uids[0], "quote": "supplier is bought"}
        told = await grounded(client, quote, headers=bearer(OPERATE))
        assert [each.verdict for each in told.quotes] == ["supported"]
        hidden = await grounded(client, quote, headers=bearer(READ))
        strange = {**quote, "uid": quote["uid"].replace("secret", "nowhere")}
        unknown = await grounded(client, strange, headers=bearer(READ))
        assert hidden.quotes[0].model_copy(update={"uid": strange["uid"]}) == unknown.quotes[0]
        for path, method in (("/api/context?q=x&budget=5", "GET"), ("/api/ground", "POST")):
            assert (await client.request(method, path)).status_code == 401
        widened = await client.get("/api/context?q=x&budget=5&as=group:legal", headers=bearer(READ))
        assert widened.status_code == 403

    with_service(use, HANDBOOK, SECRET, **BY_TOKEN)


def test_quotes_of_a_piece_are_grounded_as_they_were_answered() -> None:
    async def use(client: Client) -> None:
        [piece] = (await context(client)).pieces
        cited = {"revision": piece.revision, "content_digest": piece.content_digest, "score": piece.score}
        by_uid = [{"uid": uid, "quote": "thirty days", **cited} for uid in piece.uids]
        found = await grounded(client, *by_uid, {"uid": "nonsense", "quote": "x"}, floor=piece.score)
        assert sorted(each.verdict for each in found.quotes) == ["absent", "absent", "supported"]
        assert (found.evidence, found.release, found.generation) == (True, "r1", "g1")
        over = await grounded(client, *by_uid, floor=piece.score + 1)
        assert not over.evidence

    with_service(use, HANDBOOK)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"quotes": []}',
        b'{"quotes": [{"uid": "u"}]}',
        b'{"quotes": [{"uid": "u", "quote": ""}]}',
        b'{"quotes": [{"uid": "u", "quote": "q", "extra": 1}]}',
        b'{"quotes": [{"uid": "u", "quote": "q", "score": NaN}]}',
        b'{"quotes": [{"uid": "u", "quote": "q"}], "floor": -1}',
        b'{"quotes": [{"uid": "u", "quote": "q"}], "generation": "g9"}',
        b'{"quotes": [{"uid": "\\ud800", "quote": "q"}]}',
        b'{"quotes": [{"uid": "u", "quote": "\\ud800"}]}',
        b'{"quotes": [{"uid": "a/b@3/c/0", "quote": "q", "revision": 4}]}',
        b'{"quotes": [' + b",".join([b'{"uid": "u", "quote": "q"}'] * 101) + b"]}",
    ],
    ids=lambda body: body[:60].decode(),
)
def test_a_body_that_is_no_list_of_quotes_is_refused(body: bytes) -> None:
    async def use(client: Client) -> None:
        headers = {"Content-Type": "application/json"}
        response = await client.post("/api/ground", content=body, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")

    with_service(use, HANDBOOK)


def test_the_released_assembly_answers_from_the_moment_the_pointer_moves() -> None:
    async def use(store: Any, services: Services, client: Client) -> None:
        assert (await context(client)).assembly == "joined@1"
        [old] = (await context(client, budget=4)).pieces
        await serve(store, "r2", "g2", g1="retired")
        moved = await context(client)
        assert (moved.release, moved.generation) == ("r2", "g2")
        told = await grounded(client, {"uid": old.uids[0], "quote": "supplier"})
        assert [(each.verdict, each.reason, each.stands) for each in told.quotes] == [
            ("stale", "generation", True)
        ]

    with_two_generations(use)


def test_a_context_is_of_one_release_while_it_moves_to_and_fro() -> None:
    async def run() -> None:
        store = await two_generations()
        searcher = Searcher(store)
        stop = asyncio.Event()

        async def ask() -> set[tuple[str, str, str]]:
            seen = set()
            while not stop.is_set():
                answer = await searcher.context(Asked("supplier payment", 30))
                policies = {uid.split("/")[2] for piece in answer.assembled.pieces for uid in piece.uids}
                assert len(policies) == 1
                seen.add((answer.release, answer.generation, policies.pop().partition("%40")[0]))
            return seen

        asking = [asyncio.create_task(ask()) for _ in range(3)]
        for number in range(40):
            served, other = ("g2", "g1") if number % 2 else ("g1", "g2")
            await serve(store, f"r{number + 1}", served, **{other: "retired"})  # type: ignore[arg-type]
            await asyncio.sleep(0.002)
        stop.set()
        seen = set().union(*await asyncio.gather(*asking))
        for release, generation, policy in seen:
            assert generation == ("g1" if int(release[1:]) % 2 else "g2")
            assert policy == {"g1": "paragraph", "g2": "window-200"}[generation]
        assert {generation for _, generation, _ in seen} == {"g1", "g2"}
        await searcher.close()

    asyncio.run(run())


def sample(name: str, text: str) -> float:
    """The value of the only series that begins with this name and its labels."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def test_outcomes_that_callers_report_are_counted_and_others_refused() -> None:
    async def use(client: Client) -> None:
        before = (await client.get("/metrics")).text
        reported = await client.post("/api/outcomes", json={"outcomes": ["supported"] * 3 + ["no_evidence"]})
        assert reported.status_code == 204
        after = (await client.get("/metrics")).text
        for outcome, count in (("supported", 3), ("no_evidence", 1), ("unsupported", 0)):
            name = f'tessera_outcomes_total{{outcome="{outcome}"}}'
            assert sample(name, after) - sample(name, before) == count
        for wrong in ({"outcomes": []}, {"outcomes": ["good"]}, {"outcomes": ["supported"] * 1001}, {}):
            assert (await client.post("/api/outcomes", json=wrong)).status_code == 422

    with_service(use, HANDBOOK)


def test_one_search_in_twenty_is_looked_at_for_hits_that_repeat_each_other() -> None:
    async def use(client: Client) -> None:
        name = "tessera_search_near_duplicates_ratio_count"
        before = sample(name, (await client.get("/metrics")).text)
        for _ in range(21):
            assert (await client.get("/api/search", params={"q": "supplier"})).json()["hits"]
        assert sample(name, (await client.get("/metrics")).text) - before == 2

    with_service(use, HANDBOOK)


def test_a_body_that_is_no_object_is_told_as_that() -> None:
    async def use(client: Client) -> None:
        for content, words in (
            (b"quotes=1", "must be a JSON object, sent with the header Content-Type"),
            (b"[]", "must be a JSON object"),
            (b"{", "the body is not JSON"),
            (b"\xff", "JSON"),
        ):
            kind = "text/plain" if content == b"quotes=1" else "application/json"
            answer = await client.post("/api/ground", content=content, headers={"Content-Type": kind})
            assert answer.status_code == 422
            assert words in answer.json()["error"]["message"]

    with_service(use, HANDBOOK)
