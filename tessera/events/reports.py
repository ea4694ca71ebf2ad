"""Records of the topic ``tessera.metrics``: how a shard stands, and what its worker did to it since the last.

A record's key is ``<topic>/<partition>`` of the shard, its value JSON of this form. A consumer takes records
of a ``schema`` it knows: fields may be added to one, a change of meaning is a new one. Its JSON Schema is
``reports.schema.json`` beside this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, Literal

import orjson
from pydantic import ConfigDict, TypeAdapter

Schema = Literal["tessera.metrics/1"]
SCHEMA: Final[Schema] = "tessera.metrics/1"

Reason = Literal["interval", "failure"]
"""Why it was written: it was time, or a batch had a dead letter or a parse failure."""


@dataclass(frozen=True, slots=True)
class ParseFailures:
    """How many documents had content that could not be read as it stands."""

    source: str
    parser: str
    reason: str
    documents: int


@dataclass(frozen=True, slots=True)
class GenerationReport:
    """What the shard holds in one generation, over all sources; ``complete``: nothing is to be backfilled."""

    generation: str
    complete: bool
    documents: int
    chunks: int
    uncovered_ranges: int
    uncovered_lines: int
    uncovered_bytes: int


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One record. Times are Unix milliseconds, durations seconds; counts are from ``since_ms`` to ``at_ms``.

    ``applied_offset`` is -1 before the first record; ``lag`` counts records behind it, None where the log's
    end is not known. ``refused``: the log is another than the applied one. ``freshness_seconds`` is the
    longest time from an event's own timestamp to its commit, None where nothing was applied.
    """

    schema: Schema
    reason: Reason
    topic: str
    partition: int
    worker: str
    at_ms: int
    since_ms: int
    epoch: int
    applied_offset: int
    lag: int | None
    refused: bool
    batches: int
    records: int
    duplicates: int
    stale: int
    chunks_added: int
    batch_seconds: float
    commit_seconds: float
    freshness_seconds: float | None
    dead_letters: dict[str, int]
    parse_failures: list[ParseFailures]
    generations: list[GenerationReport]

    # A dataclass may add fields where a consumer goes on: the schema takes what it does not know.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="allow")


def encode_report(report: ShardReport) -> bytes:
    """The record's value."""
    return orjson.dumps(report)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of values."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_adapter().json_schema()}


@cache
def _adapter() -> TypeAdapter[ShardReport]:
    return TypeAdapter(ShardReport)
