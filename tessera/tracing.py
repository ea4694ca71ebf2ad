"""Traces from an event to its commit: W3C trace context in Kafka headers, spans exported over OTLP.

Without an endpoint in the environment (:data:`ENDPOINTS`) nothing is made and no header is read. Names and
attributes follow OpenTelemetry's conventions for messaging; of a document they hold its source alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import context, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tessera.errors import SettingsError
from tessera.events.change import Record
from tessera.events.parts import Headers

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

HEADERS: Final = ("traceparent", "tracestate")

MAX_TRACES: Final = 128
"""Traces that one batch is told to: OpenTelemetry keeps as many links of a span."""

_propagator: Final = TraceContextTextMapPropagator()
_provider: TracerProvider | None = None


def start_tracing(service: str) -> Callable[[], None]:
    """Export spans as ``service`` (``OTEL_SERVICE_NAME`` overrules) where an endpoint is set; what ends it.

    Raises :class:`~tessera.errors.SettingsError` where an endpoint is set and the extra is not installed.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsError(
            f"{' or '.join(ENDPOINTS)} is set and the exporter is not installed: install the extra "
            "`tracing`, or unset it"
        ) from None
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use_provider(provider)

    def stop() -> None:
        use_provider(None)
        provider.shutdown()

    return stop


def use_provider(provider: TracerProvider | None) -> None:
    """Make spans by this provider from now on; None: make none."""
    global _provider
    _provider = provider


def carrying(headers: Headers) -> Headers:
    """The headers of a record, and the current span's context where there is one."""
    if _provider is None:
        return headers
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    own = tuple(header for header in headers if header[0] not in carrier)
    return (*own, *((name, value.encode()) for name, value in carrier.items()))


@contextmanager
def publishing(events: int, headers: Mapping[str, str] | None = None) -> Iterator[None]:
    """A span around sending ``events``; it goes on the trace that ``headers`` of a request carry, if any."""
    if _provider is None:
        yield
        return
    parent = None if headers is None else _propagator.extract(headers)
    attributes = {"messaging.system": "kafka", "messaging.operation.type": "send"}
    with _provider.get_tracer("tessera").start_as_current_span(
        "send changes",
        context=parent,
        kind=SpanKind.PRODUCER,
        attributes={**attributes, "messaging.batch.message_count": events},
    ):
        yield


@contextmanager
def indexing(topic: str, partition: int, records: Sequence[Record]) -> Iterator[None]:
    """Spans around a batch: one of its own, linked to the traces of its records, and one in each of these.

    A batch that fails is marked by the type of its error; its message could quote a document.
    """
    if _provider is None:
        yield
        return
    carried = _carried(records)
    tracer = _provider.get_tracer("tessera")
    place = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
    }
    links = [Link(trace.get_current_span(found).get_span_context()) for _, found in carried]
    began_ns = time.time_ns()
    with tracer.start_as_current_span(
        f"process {topic}",
        context=context.Context(),
        kind=SpanKind.CONSUMER,
        links=links,
        attributes={**place, "messaging.batch.message_count": len(records)},
        start_time=began_ns,
        record_exception=False,
        set_status_on_exception=False,
    ) as batch:
        try:
            yield
        except BaseException as error:
            batch.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            own = [Link(batch.get_span_context())]
            for record, found in carried:
                span = tracer.start_span(
                    "index change",
                    context=found,
                    kind=SpanKind.CONSUMER,
                    links=own,
                    attributes={**place, **_of_record(record)},
                    start_time=began_ns,
                )
                span.set_status(batch.status)  # type: ignore[attr-defined]
                span.end()


def _carried(records: Sequence[Record]) -> list[tuple[Record, context.Context]]:
    """Records that carry a trace that is sampled, the first :data:`MAX_TRACES`, with its context."""
    found: list[tuple[Record, context.Context]] = []
    for record in records:
        carrier = {
            name: value.decode("ascii", "replace") for name, value in record.headers if name in HEADERS
        }
        if not carrier:
            continue
        extracted = _propagator.extract(carrier, context.Context())
        if trace.get_current_span(extracted).get_span_context().trace_flags.sampled:
            found.append((record, extracted))
        if len(found) == MAX_TRACES:
            break
    return found


def _of_record(record: Record) -> dict[str, str | int]:
    source = (record.key or b"").partition(b"/")[0].decode("utf-8", "replace")
    return {"messaging.kafka.offset": record.offset, "tessera.source": source}
