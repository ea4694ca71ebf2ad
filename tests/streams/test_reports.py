"""Records on tessera.metrics: in the published form, when they are due, and in nobody's way."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

import tessera.events.reports as form
from bench.crash import Cluster, Ordeal
from streams.driver import Driver
from streams.reports import Reports
from tessera import metrics
from tessera.events.change import Record
from tessera.events.topics import DOCUMENTS, METRICS
from tessera.kafka.admin import ensure_topics
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

SCHEMA = json.loads(Path(form.__file__).with_name("reports.schema.json").read_text())
PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def event(offset: int, **changed: Any) -> Record:
    value = {"v": 1, "op": "upsert", "source": "handbook", "doc_id": "a.md", "media_type": "text/markdown"}
    value |= {"access": ["*"], "content": "# A\n\nOne two.\n"} | changed
    encoded = orjson.dumps({name: each for name, each in value.items() if each is not None})
    return Record(DOCUMENTS, 0, offset, b"handbook/a.md", encoded, (), 1_700_000_000_000)


class Sent:
    """Takes records, or fails."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []
        self.failing = False

    async def __call__(self, key: bytes, value: bytes) -> None:
        if self.failing:
            raise KafkaConnectionError("away")
        found = orjson.loads(value)
        jsonschema.validate(found, SCHEMA)
        assert key.decode() == f"{found['topic']}/{found['partition']}"
        self.values.append(found)


def test_the_published_schema_is_that_of_the_records_and_the_page_names_each_field() -> None:
    assert form.json_schema() == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    table = PAGE[PAGE.index("## The topic") :]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    assert named == {each.name for each in fields(form.ShardReport)}
    for name in [each.name for kind in (form.ParseFailures, form.GenerationReport) for each in fields(kind)]:
        assert f"`{name}`" in table


def test_a_shard_is_reported_when_it_is_time_and_at_once_after_a_failure() -> None:
    async def scenario() -> None:
        sent = Sent()
        async with Driver(MemoryStore(), partitions=1) as driver:
            often = Reports(driver.ownership, driver.store, sent, lambda shard: 9, interval_s=0.0)
            seldom = Reports(driver.ownership, driver.store, sent, lambda shard: None, interval_s=3600.0)
            await driver.feed([event(0), event(1, content="# A\n\nOne.\n\n# B\n\nTwo.\n")])
            await seldom.round()
            assert sent.values == []
            await often.round()
            found = next(each for each in sent.values if each["topic"] == DOCUMENTS)
            assert (found["reason"], found["records"], found["applied_offset"], found["lag"]) == (
                "interval", 2, 1, 7,
            )  # fmt: skip
            [generation] = found["generations"]
            assert (generation["documents"], generation["chunks"], generation["complete"]) == (1, 2, True)
            assert found["batches"] >= 1
            assert found["freshness_seconds"] > 0

            sent.values.clear()
            await driver.feed([event(2, op="bogus"), event(3, content=None, content_base64="QQr/Cg==")])
            await seldom.round()
            [found] = sent.values
            assert (found["reason"], found["records"], found["lag"]) == ("failure", 2, None)
            assert sum(found["dead_letters"].values()) == 1
            assert found["parse_failures"] == [
                {"source": "handbook", "parser": "text/markdown", "reason": "not_utf8", "documents": 1}
            ]
            await seldom.round()
            assert len(sent.values) == 1

    asyncio.run(scenario())


def test_a_broker_that_is_away_costs_a_count_and_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        sent = Sent()
        async with Driver(MemoryStore(), partitions=1) as driver:
            reports = Reports(driver.ownership, driver.store, sent, lambda shard: None, interval_s=0.0)
            sent.failing = True
            before = metrics.REPORTS.labels("failed")._value.get()
            await driver.feed([event(0)])
            await reports.round()
            assert metrics.REPORTS.labels("failed")._value.get() == before + 2
            monkeypatch.setattr("streams.reports.encode_report", lambda report: 1 / 0)
            await reports.round()  # whatever it is
            monkeypatch.undo()
            sent.failing = False
            await driver.feed([event(1, content="Other.")])
            await reports.round()
            assert [each["applied_offset"] for each in sent.values] == [1, -1]

    asyncio.run(scenario())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    subject = Cluster(tmp_path, Ordeal(events=1, documents=1, logs=1, kills=0, power_losses=0))
    try:
        yield subject
    finally:
        subject.stop()


@pytest.mark.servers
@pytest.mark.timeout(60)
def test_a_real_worker_reports_to_the_broker(cluster: Cluster) -> None:
    cluster.start()

    async def scenario() -> dict[str, Any]:
        broker = cluster.broker.address
        partitions = await ensure_topics(broker, 1)
        async with AIOKafkaConsumer(
            METRICS, bootstrap_servers=broker, auto_offset_reset="earliest"
        ) as consumer:
            shard = ShardId(DOCUMENTS, 0)

            async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
                await producer.send_and_wait(DOCUMENTS, b"{", b"handbook/a.md", partition=shard.partition)
            assert partitions[METRICS] >= 1
            async for record in consumer:
                found: dict[str, Any] = orjson.loads(record.value)
                jsonschema.validate(found, SCHEMA)
                if found["dead_letters"]:
                    return found
        raise AssertionError("no report")

    found = asyncio.run(scenario())
    assert (found["topic"], found["reason"], found["applied_offset"]) == (DOCUMENTS, "failure", 0)
