"""Traces: carried from the request over Kafka's headers to the commit, exported where an endpoint is set."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from streams.driver import Driver
from tessera import tracing
from tessera.errors import SettingsError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Record
from tessera.store.memory import MemoryStore

TRACE, SPAN = 0xABCDEF0123456789ABCDEF0123456789, 0x123456789ABCDEF0
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"
UNSAMPLED = f"00-{TRACE + 1:032x}-{SPAN:016x}-00"
SECRET = "mellifluous"
CATALOG = SourceCatalog([SourceDeclaration("handbook", "documents", "log")])


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use_provider(provider)
    yield exporter
    tracing.use_provider(None)


def change(offset: int, *headers: tuple[str, bytes], content: str = SECRET) -> Record:
    event = {"v": 1, "op": "upsert", "source": "handbook", "doc_id": "a.md", "media_type": "text/markdown"}
    value = orjson.dumps({**event, "content": content})
    return Record("tessera.documents", 0, offset, b"handbook/a.md", value, headers, 1_700_000_000_000)


def fed(*records: Record) -> None:
    async def scenario() -> None:
        async with Driver(MemoryStore(), catalog=CATALOG, partitions=1) as driver:
            await driver.feed(records)

    asyncio.run(scenario())


def test_a_change_is_followed_from_its_sender_to_the_commit(spans: InMemorySpanExporter) -> None:
    fed(
        change(0, ("traceparent", PARENT.encode())),
        change(1, ("traceparent", UNSAMPLED.encode())),
        change(2, ("traceparent", b"\xff nonsense")),
        change(3),
    )
    of_batches = [span for span in spans.get_finished_spans() if span.name == "process tessera.documents"]
    [of_change] = [span for span in spans.get_finished_spans() if span.name == "index change"]
    assert sum(span.attributes["messaging.batch.message_count"] for span in of_batches) == 4
    assert (of_change.context.trace_id, of_change.parent.span_id) == (TRACE, SPAN)
    assert dict(of_change.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": "tessera.documents",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "tessera.source": "handbook",
    }
    [batch] = [span for span in of_batches if span.links]
    assert [link.context.trace_id for link in batch.links] == [TRACE]
    assert [link.context for link in of_change.links] == [batch.context]
    assert batch.start_time <= of_change.start_time <= of_change.end_time
    assert not [span for span in spans.get_finished_spans() if SECRET in span.to_json()]


def test_a_batch_that_fails_is_marked_and_quotes_nothing(spans: InMemorySpanExporter) -> None:
    with (
        pytest.raises(ValueError, match=SECRET),
        tracing.indexing("t", 0, [change(0, ("traceparent", PARENT.encode()))]),
    ):
        raise ValueError(SECRET)
    finished = spans.get_finished_spans()
    assert [span.status.status_code for span in finished] == [StatusCode.ERROR] * 2
    assert [span.status.description for span in finished] == ["ValueError"] * 2
    assert not [span for span in finished if SECRET in span.to_json()]


def test_records_carry_the_trace_of_the_request_they_came_with(spans: InMemorySpanExporter) -> None:
    with tracing.publishing(2, {"traceparent": PARENT}):
        headers = dict(tracing.carrying((("part", b"1"), ("traceparent", b"of another time"))))
    [span] = spans.get_finished_spans()
    assert headers == {
        "part": b"1",
        "traceparent": f"00-{TRACE:032x}-{span.context.span_id:016x}-01".encode(),
    }
    assert (span.context.trace_id, span.parent.span_id) == (TRACE, SPAN)


def test_without_an_endpoint_nothing_is_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    stop = tracing.start_tracing("tessera-worker")
    with tracing.publishing(1), tracing.indexing("t", 0, [change(0, ("traceparent", PARENT.encode()))]):
        assert tracing.carrying((("part", b"1"),)) == (("part", b"1"),)
    stop()


def test_spans_reach_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        stop = tracing.start_tracing("tessera-worker")
        fed(change(0, ("traceparent", PARENT.encode())))
        stop()
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    sent = b"".join(body for _, body in received)
    assert {path for path, _ in received} == {"/v1/traces"}
    assert TRACE.to_bytes(16, "big") in sent
    assert b"tessera-worker" in sent
    assert SECRET.encode() not in sent


def test_an_endpoint_without_the_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without_sdk(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("opentelemetry.exporter"):
            raise ImportError(name)
        return imported(name, *arguments, **named)

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(builtins, "__import__", without_sdk)
    with pytest.raises(SettingsError, match="install the extra"):
        tracing.start_tracing("tessera-worker")
