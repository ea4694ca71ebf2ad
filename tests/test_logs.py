"""Logs: lines for people or JSON with fields, and never what a document holds."""

from __future__ import annotations

import io
import json
import logging

import pytest

from tessera.logs import configure_logging, on, stack_of
from tessera.settings import load_settings
from tessera.store.base import ShardId

SHARD = ShardId("tessera.documents", 3)


def logged(log_format: str) -> str:
    stream = io.StringIO()
    configure_logging(log_format, stream)  # type: ignore[arg-type]
    logging.getLogger("streams.batches").warning(
        "%s: two\nlines", SHARD, extra=on(SHARD, offset=7, generation="g1")
    )
    logging.getLogger("aiokafka").info("not worth a line")
    for _ in range(3):
        logging.getLogger("aiokafka").warning("the broker is away")
    return stream.getvalue()


def test_json_has_a_line_per_message_with_its_fields() -> None:
    lines = [json.loads(line) for line in logged("json").splitlines()]
    assert [line["message"] for line in lines] == [
        "tessera.documents/3: two\nlines",
        "the broker is away",
    ]
    first = lines[0]
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "WARNING",
        "logger": "streams.batches",
        "message": "tessera.documents/3: two\nlines",
        "topic": "tessera.documents",
        "partition": 3,
        "offset": 7,
        "generation": "g1",
    }


def test_text_is_for_people() -> None:
    assert "WARNING streams.batches: tessera.documents/3: two" in logged("text")


def test_an_unforeseen_error_is_told_by_its_place_and_not_by_what_it_quotes() -> None:
    try:
        try:
            int("what a document holds")
        except ValueError as error:
            raise KeyError("what a document holds") from error
    except KeyError as error:
        told = stack_of(error)
    assert "in test_an_unforeseen_error" in told
    assert "builtins.KeyError\ncaused by" in told
    assert told.endswith("builtins.ValueError")
    assert "invalid literal" not in told


def test_the_form_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({}, require=()).log_format == "text"
    monkeypatch.setenv("TESSERA_LOG_FORMAT", "json")
    assert load_settings({}, require=()).log_format == "json"
