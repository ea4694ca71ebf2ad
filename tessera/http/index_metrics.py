"""The index as Prometheus metrics: made of the status when ``/metrics`` is read, nothing is scanned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Row = tuple[tuple[str, ...], float]


class Gauge(NamedTuple):
    """A metric of the index: what it says, and its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


SOURCE_DOCUMENTS: Final = Gauge("tessera_source_documents", "Documents held.", ("source",))
SOURCE_CHUNKS: Final = Gauge("tessera_source_chunks", "Live chunks.", ("source", "generation"))
SOURCE_UNCOVERED_RANGES: Final = Gauge(
    "tessera_source_uncovered_ranges", "Ranges that no chunk of the serving generation holds.", ("source",)
)
SOURCE_UNCOVERED_LINES: Final = Gauge(
    "tessera_source_uncovered_lines", "Lines of those ranges, missing lines of logs included.", ("source",)
)
SOURCE_UNCOVERED_RATIO: Final = Gauge(
    "tessera_source_uncovered_ratio", "Share of the source's bytes that those ranges are.", ("source",)
)
SOURCE_PARSE_FAILURES: Final = Gauge(
    "tessera_source_parse_failures", "Ranges of bytes that are not UTF-8.", ("source",)
)
GENERATION_STATE: Final = Gauge(
    "tessera_generation_state", "1 for the state that the generation is in.", ("generation", "state")
)
GENERATION_DOCUMENTS: Final = Gauge(
    "tessera_generation_documents", "Documents written into the generation.", ("generation",)
)
GENERATION_SEGMENTS: Final = Gauge("tessera_generation_segments", "Segments stored.", ("generation",))
GENERATION_CHUNKS: Final = Gauge(
    "tessera_generation_chunks", "Chunks in those segments, by liveness.", ("generation", "liveness")
)
BACKFILL_REMAINING: Final = Gauge(
    "tessera_generation_backfill_remaining_documents",
    "Documents of the serving generation that it lacks.",
    ("generation",),
)
BACKFILL_ETA: Final = Gauge(
    "tessera_generation_backfill_eta_seconds",
    "Time that the slowest shard still needs at its pace so far; absent where no pace is known.",
    ("generation",),
)
BACKFILL_PAUSED: Final = Gauge(
    "tessera_generation_backfill_paused", "1 where an operator paused the backfill.", ("generation",)
)
PARITY: Final = Gauge(
    "tessera_generation_parity",
    "1 where every shard holds in it the documents and revisions of the serving generation.",
    ("generation",),
)
EVIDENCE_EXPIRES: Final = Gauge(
    "tessera_generation_evidence_expires_timestamp_seconds",
    "When its evidence for a cutover expires, Unix time; absent without evidence.",
    ("generation",),
)
MISSING_EMBEDDINGS: Final = Gauge(
    "tessera_generation_missing_embeddings",
    "Live chunks without an embedding; absent where the contract has no embedding.",
    ("generation",),
)
RELEASE_INFO: Final = Gauge(
    "tessera_release_info", "1 for the release that is served.", ("release", "generation", "assembly")
)
LAG: Final = Gauge("tessera_index_lag", "Records not applied yet, where known.", ("topic", "partition"))
DEADLETTERS_WAITING: Final = Gauge("tessera_deadletters_waiting", "Neither replayed nor discarded.")
BROKER_REACHABLE: Final = Gauge("tessera_broker_reachable", "1 where the ends of the logs are known.")

DEFINED: Final = tuple(value for value in list(globals().values()) if isinstance(value, Gauge))


class IndexCollector(Collector):
    """Gives the status it was last handed; nothing before."""

    def __init__(self) -> None:
        self._overview: Mapping[str, Any] | None = None

    def hand(self, overview: Mapping[str, Any]) -> None:
        """What the next collection shall tell."""
        self._overview = overview

    def describe(self) -> Iterable[Metric]:
        """The metrics without their values: the registry refuses a second one of the same name."""
        return [GaugeMetricFamily(each.name, each.help, labels=each.labels) for each in DEFINED]

    def collect(self) -> Iterable[Metric]:
        """All metrics of the index that have a value."""
        if self._overview is None:
            return
        for gauge, rows in _rows(self._overview):
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in rows:
                family.add_metric(labels, value)
            yield family


def _rows(overview: Mapping[str, Any]) -> Iterator[tuple[Gauge, list[Row]]]:
    yield from _sources(overview["sources"])
    yield from _generations(overview["generations"])
    released = (overview["release"], overview["generation"], overview["assembly"])
    yield RELEASE_INFO, [(released, 1.0)] if overview["release"] else []
    yield (
        LAG,
        [
            ((shard["topic"], str(shard["partition"])), shard["lag"])
            for shard in overview["shards"]
            if shard["lag"] is not None
        ],
    )
    yield DEADLETTERS_WAITING, [((), overview["totals"]["dead_letters"])]
    yield BROKER_REACHABLE, [((), float(overview["broker"]["trouble"] is None))]


def _sources(sources: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[Gauge, list[Row]]]:
    for gauge, field in (
        (SOURCE_DOCUMENTS, "documents"),
        (SOURCE_UNCOVERED_RANGES, "uncovered"),
        (SOURCE_UNCOVERED_LINES, "uncovered_lines"),
        (SOURCE_UNCOVERED_RATIO, "uncovered_ratio"),
        (SOURCE_PARSE_FAILURES, "parse_failures"),
    ):
        yield gauge, [((name,), source[field]) for name, source in sources.items()]
    yield (
        SOURCE_CHUNKS,
        [
            ((name, generation), chunks)
            for name, source in sources.items()
            for generation, chunks in source["chunks_by_generation"].items()
        ],
    )


def _generations(generations: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Gauge, list[Row]]]:
    """Of generations that are no longer written only the state is told: they hold nothing that lasts."""
    rows: dict[Gauge, list[Row]] = {gauge: [] for gauge in DEFINED if gauge.labels[:1] == ("generation",)}
    for each in generations:
        name = (each["generation"],)
        rows[GENERATION_STATE].append(((*name, each["state"]), 1.0))
        progress = each["progress"]
        if progress is None:
            continue
        rows[GENERATION_DOCUMENTS].append((name, progress["documents"]))
        rows[GENERATION_SEGMENTS].append((name, each["segments"]))
        rows[GENERATION_CHUNKS].append(((*name, "live"), each["chunks"]))
        rows[GENERATION_CHUNKS].append(((*name, "dead"), max(0, each["stored_chunks"] - each["chunks"])))
        rows[BACKFILL_REMAINING].append((name, max(0, progress["of"] - progress["documents"])))
        rows[BACKFILL_PAUSED].append((name, each["paused"]))
        rows[PARITY].append((name, each["parity"]))
        if progress["eta_s"] is not None:
            rows[BACKFILL_ETA].append((name, progress["eta_s"]))
        if each["evidence_expires_at_ms"] is not None:
            rows[EVIDENCE_EXPIRES].append((name, each["evidence_expires_at_ms"] / 1000))
    yield from rows.items()
