from __future__ import annotations

import logging

import httpx
import pytest
from test_service import HANDBOOK, OPERATE, READ, bearer, with_service

from tessera.logs import AUDIT


def test_what_operators_ask_for_and_who_is_refused_is_noted_on_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        with caplog.at_level(logging.INFO, logger=AUDIT):
            await client.post("/api/changes", json=[HANDBOOK], headers=bearer(OPERATE))
            await client.post("/api/generations/g1%0Aforged/pause", json={}, headers=bearer(READ))
            await client.get("/api/status", headers=bearer(READ))
            await client.get("/api/search", params={"q": "supplier"}, headers=bearer(READ))

    with_service(use, HANDBOOK, read_token=READ, operator_token=OPERATE)
    lines = [record for record in caplog.records if record.name == AUDIT]
    assert [(line.levelname, line.actor, line.role, line.operation) for line in lines] == [  # type: ignore[attr-defined]
        ("INFO", "operator", "operator", "POST /api/changes"),
        ("WARNING", "reader", "reader", "POST /api/generations/g1forged/pause"),
        ("WARNING", "reader", "reader", "GET /api/status"),
    ]
    assert all("\n" not in line.getMessage() and READ not in line.getMessage() for line in lines)
