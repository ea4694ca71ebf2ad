from __future__ import annotations

import pytest

from tessera.events.change import Record
from tessera.events.digest import record_digest

RECORD = Record("t", 1, 7, b"a/x", b"value", timestamp_ms=1_750_000_000_000)


@pytest.mark.parametrize(
    "other",
    [
        RECORD._replace(offset=8),
        RECORD._replace(timestamp_ms=1_750_000_000_001),
        RECORD._replace(key=b"a/y"),
        RECORD._replace(key=None),
        RECORD._replace(value=b"values"),
        RECORD._replace(value=None),
        RECORD._replace(value=b""),
        RECORD._replace(key=b"a/xv", value=b"alue"),
    ],
)
def test_another_record_has_another_digest(other: Record) -> None:
    assert record_digest(other) != record_digest(RECORD)


def test_null_and_empty_are_told_apart() -> None:
    assert record_digest(RECORD._replace(value=None)) != record_digest(RECORD._replace(value=b""))
    assert record_digest(RECORD._replace(key=None)) != record_digest(RECORD._replace(key=b""))


def test_where_and_with_what_headers_a_record_is_read_does_not_matter() -> None:
    again = RECORD._replace(topic="u", partition=2, headers=(("h", b"v"),))
    assert record_digest(again) == record_digest(RECORD)


@pytest.mark.parametrize("timestamp_ms", [2**63, -(2**63) - 1, 10**30])
def test_no_time_that_a_producer_may_choose_is_too_great(timestamp_ms: int) -> None:
    assert record_digest(RECORD._replace(timestamp_ms=timestamp_ms)) != record_digest(RECORD)


def test_the_digest_is_frozen() -> None:
    """Heads in Redis hold it: a change of it would refuse every log that was applied."""
    assert record_digest(RECORD) == "5e1586894d7c65cebcf1d18176e82bd697962bba9f3605d59d42559e59bb980b"
