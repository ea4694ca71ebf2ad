"""What the service measures: its requests, and the index as it stands when ``/metrics`` is read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tessera.errors import QueryError
from tessera.generations.standing import StandingFigures
from tessera.http.index_metrics import IndexCollector

disable_created_metrics()  # type: ignore[no-untyped-call] # a series more for each, which nobody asks for
REGISTRY = CollectorRegistry()
_INDEX = IndexCollector()
REGISTRY.register(_INDEX)

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
_SHARE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

SEARCH_SECONDS = Histogram(
    "tessera_search_seconds",
    "Time of a search without HTTP.",
    ("release",),
    buckets=_LATENCY_S,
    registry=REGISTRY,
)
SEARCHES = Counter(
    "tessera_searches_total",
    "Searches, by outcome: answered, empty (no hit), failed.",
    ("release", "outcome"),
    registry=REGISTRY,
)
REFUSALS = Counter(
    "tessera_search_refusals_total",
    "Searches refused, by reason: out_of_bounds, generation.",
    ("reason",),
    registry=REGISTRY,
)
NEAR_DUPLICATES = Histogram(
    "tessera_search_near_duplicates_ratio",
    "Share of a sampled answer's hits that nearly repeat a better hit.",
    buckets=_SHARE,
    registry=REGISTRY,
)
UTILIZATION = Histogram(
    "tessera_context_utilization_ratio",
    "Share of the budget that a context used.",
    ("assembly",),
    buckets=_SHARE,
    registry=REGISTRY,
)
QUOTES = Counter(
    "tessera_quotes_total",
    "Quotes checked, by outcome: supported, stale, absent.",
    ("outcome",),
    registry=REGISTRY,
)
OUTCOMES = Counter(
    "tessera_outcomes_total",
    "Answers that a caller reported, by outcome: supported, unsupported, no_evidence.",
    ("outcome",),
    registry=REGISTRY,
)
_CASES = Gauge(
    "tessera_cases",
    "Standing query cases of the last run, by state: live, stale.",
    ("generation", "state"),
    registry=REGISTRY,
)
_CASES_REPRESENTED = Gauge(
    "tessera_cases_representability_ratio",
    "Share of the live cases whose evidence lies whole in a chunk.",
    ("generation",),
    registry=REGISTRY,
)
_CASES_RETRIEVED = Gauge(
    "tessera_cases_retrieval_coverage_ratio",
    "Share of the live cases whose evidence lies whole in one of the first k hits.",
    ("generation",),
    registry=REGISTRY,
)
_CASES_RUN = Gauge(
    "tessera_cases_run_timestamp_seconds", "When they were last run, Unix time.", registry=REGISTRY
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
    buckets=_SHARE,
    registry=REGISTRY,
)
NO_RELEASE = "(none)"
"""The release of a search that failed before it could know one."""

NO_ROUTE = "(none)"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
OTHER_METHOD = "other"
"""A client may make up methods without end, and every label value is kept for ever."""


def count_shadow(outcome: str, overlap: float | None) -> None:
    """Count one shadow read; ``overlap`` where it was compared."""
    _SHADOW_QUERIES.labels(outcome).inc()
    if overlap is not None:
        _SHADOW_OVERLAP.observe(overlap)


def show_cases(figures: StandingFigures) -> None:
    """Expose what a run of the standing cases found; of no live case nothing can be said."""
    for gauge in (_CASES, _CASES_REPRESENTED, _CASES_RETRIEVED):
        gauge.clear()
    _CASES.labels(figures.generation, "live").set(figures.live)
    _CASES.labels(figures.generation, "stale").set(figures.stale)
    if figures.live:
        _CASES_REPRESENTED.labels(figures.generation).set(figures.represented / figures.live)
        _CASES_RETRIEVED.labels(figures.generation).set(figures.retrieved / figures.live)
    _CASES_RUN.set_to_current_time()


@contextmanager
def searching(release: str | None) -> Iterator[Search]:
    """Time and count one search; ``release`` is the one last read, for a search that fails."""
    search = Search(release or NO_RELEASE)
    began = time.perf_counter()
    try:
        yield search
    except QueryError as refusal:
        REFUSALS.labels(refusal.reason).inc()
        raise
    except Exception:
        SEARCHES.labels(search.release, "failed").inc()
        raise
    SEARCH_SECONDS.labels(search.release).observe(time.perf_counter() - began)
    SEARCHES.labels(search.release, "answered" if search.hits else "empty").inc()


class Search:
    """What is known of a search under way: the release that answers it, and how many hits it found."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.hits = 0


def exposition(overview: Mapping[str, Any]) -> bytes:
    """The metrics in Prometheus' text format, the index as in ``overview``."""
    _INDEX.hand(overview)
    if overview["release"] is not None:
        forget_releases({overview["release"], overview["previous"], NO_RELEASE})
    return generate_latest(REGISTRY)


def forget_releases(kept: Iterable[str | None]) -> None:
    """Drop the series of all other releases: each cutover makes one, and a service runs for months."""
    for metric in (SEARCH_SECONDS, SEARCHES):
        for release in {sample.labels["release"] for family in metric.collect() for sample in family.samples}:
            if release not in kept:
                metric.remove_by_labels({"release": release})


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
