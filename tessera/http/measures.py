"""What the service measures: its requests, and the index as it stands when ``/metrics`` is read."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REGISTRY = CollectorRegistry()

_LATENCY_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

REQUESTS = Counter(
    "tessera_http_requests_total",
    "Requests answered, by route template, method and status.",
    ("route", "method", "status"),
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "tessera_http_request_seconds", "Time to answer.", ("route",), buckets=_LATENCY_S, registry=REGISTRY
)
SEARCH_SECONDS = Histogram(
    "tessera_search_seconds", "Time of a search without HTTP.", buckets=_LATENCY_S, registry=REGISTRY
)
_SHADOW_QUERIES = Counter(
    "tessera_shadow_queries_total",
    "Queries sampled for the generation that may be served next, by outcome: compared, dropped, failed.",
    ("outcome",),
    registry=REGISTRY,
)
_SHADOW_OVERLAP = Histogram(
    "tessera_shadow_overlap_ratio",
    "Share of the hits of both generations that share text with a hit of the other.",
    buckets=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    registry=REGISTRY,
)
_SOURCE = {
    "documents": Gauge("tessera_source_documents", "Documents held.", ("source",), registry=REGISTRY),
    "chunks": Gauge(
        "tessera_source_chunks", "Chunks in the serving generation.", ("source",), registry=REGISTRY
    ),
    "uncovered": Gauge(
        "tessera_source_uncovered_ranges", "Ranges that no chunk holds.", ("source",), registry=REGISTRY
    ),
    "parse_failures": Gauge(
        "tessera_source_parse_failures", "Documents with bytes not UTF-8.", ("source",), registry=REGISTRY
    ),
}
_DEAD_LETTERS = Gauge("tessera_deadletters_waiting", "Neither replayed nor discarded.", registry=REGISTRY)
_BROKER_UP = Gauge("tessera_broker_reachable", "1 where the ends of the logs are known.", registry=REGISTRY)
_LAG = Gauge(
    "tessera_index_lag", "Records not applied yet, where known.", ("topic", "partition"), registry=REGISTRY
)

NO_ROUTE = "(none)"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
OTHER_METHOD = "other"
"""A client may make up methods without end, and every label value is kept for ever."""


def count_shadow(outcome: str, overlap: float | None) -> None:
    """Count one shadow read; ``overlap`` where it was compared."""
    _SHADOW_QUERIES.labels(outcome).inc()
    if overlap is not None:
        _SHADOW_OVERLAP.observe(overlap)


def exposition(overview: dict[str, Any]) -> bytes:
    """The metrics in Prometheus' text format, the index as in ``overview``."""
    for name, gauge in _SOURCE.items():
        gauge.clear()
        for source, values in overview["sources"].items():
            gauge.labels(source).set(values[name])
    _LAG.clear()
    for shard in overview["shards"]:
        if shard["lag"] is not None:
            _LAG.labels(shard["topic"], shard["partition"]).set(shard["lag"])
    _DEAD_LETTERS.set(overview["totals"]["dead_letters"])
    _BROKER_UP.set(overview["broker"]["trouble"] is None)
    return generate_latest(REGISTRY)


class Measured:
    """ASGI middleware that counts and times requests by the template of their route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and measure it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            # A label per path would be one per document: the template is bounded.
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
            REQUESTS.labels(route, method, status).inc()
            REQUEST_SECONDS.labels(route).observe(time.perf_counter() - started)
