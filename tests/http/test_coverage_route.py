"""Coverage over HTTP: the form that is described, bounds, and what a token may see."""

from __future__ import annotations

import httpx
import pytest
from test_service import HANDBOOK, OPERATE, READ, SECRET, bearer, with_service

from tessera.http.schema import CoverageBody

BY_TOKEN = {"read_token": READ, "operator_token": OPERATE}
BROKEN = {**HANDBOOK, "doc_id": "broken.md", "content": None, "content_base64": "/yBsb3N0Cg=="}
BROKEN.pop("content")
HIDDEN = {**BROKEN, "doc_id": "hidden.md", "access": SECRET["access"]}


def test_coverage_comes_in_the_form_that_is_described_and_tells_only_what_may_be_seen() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        async def asked(token: str) -> CoverageBody:
            response = await client.get("/api/coverage", headers=bearer(token))
            assert response.status_code == 200, response.text
            return CoverageBody.model_validate(response.json())

        everything, seen = await asked(OPERATE), await asked(READ)
        assert [each.doc_id for each in everything.documents] == ["broken.md", "hidden.md"]
        assert [each.doc_id for each in seen.documents] == ["broken.md"]
        assert (everything.sources["handbook"].documents, seen.sources["handbook"].documents) == (4, 2)
        [document] = seen.documents
        assert document.failure is not None
        assert (document.failure.ranges, document.failure.places[0].lines) == ([[0, 1]], ["\ufffd lost"])
        assert (await client.get("/api/coverage")).status_code == 401

    with_service(use, HANDBOOK, SECRET, BROKEN, HIDDEN, **BY_TOKEN)


@pytest.mark.parametrize("asked", [{"limit": 1001}, {"limit": -1}, {"generation": "g9"}, {"against": "g1"}])
def test_coverage_out_of_bounds_is_refused(asked: dict[str, str]) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        response = await client.get("/api/coverage", params=asked)
        assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")

    with_service(use, HANDBOOK)
