"""The Prometheus metrics of a worker. Every name, label and unit is described in ``docs/metrics.md``."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call] # a series more for each, which nobody asks for

_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From one round trip to Redis up to the time a worker's restart takes."""

_TOKENS = (1, 10, 25, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 2000, 5000)
"""Up to and beyond the sizes that policies are given; a paragraph can be longer than any."""

_SHARD = ("topic", "partition")

RECORDS = Counter("tessera_records_total", "Records applied, without duplicates.", ("topic",))
DUPLICATES = Counter(
    "tessera_duplicates_dropped_total", "Records read again and skipped as already applied.", ("topic",)
)
STALE = Counter(
    "tessera_stale_changes_total", "Changes that lost to a greater revision already held.", ("topic",)
)
DEADLETTERS = Counter(
    "tessera_deadletters_total",
    "Records put into the outbox, by reason.",
    ("topic", "reason"),
)
DEADLETTERS_DELIVERED = Counter(
    "tessera_deadletters_delivered_total", "Dead letters the broker has acknowledged.", ("topic",)
)
CHUNKS_ADDED = Counter("tessera_chunks_added_total", "Chunks written into new segments.", ("topic",))
BATCH_SECONDS = Histogram(
    "tessera_batch_seconds", "Time from a batch in hand to its commit.", ("topic",), buckets=_LATENCY_S
)
BATCH_RECORDS = Histogram(
    "tessera_batch_records",
    "Records per batch of one shard.",
    ("topic",),
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
COMMIT_SECONDS = Histogram(
    "tessera_commit_seconds",
    "Time of a batch that staging its blobs and committing took.",
    ("topic",),
    buckets=_LATENCY_S,
)
CHUNK_TOKENS = Histogram(
    "tessera_chunk_tokens", "Tokens of each chunk cut, by generation.", ("generation",), buckets=_TOKENS
)
CHUNK_OVERLAP_TOKENS = Histogram(
    "tessera_chunk_overlap_tokens",
    "Tokens that a chunk cut shares with the one before it in its document.",
    ("generation",),
    buckets=(0, 5, 10, 20, 30, 50, 75, 100, 150, 200, 400),
)
SAMPLES = Counter(
    "tessera_representability_samples_total",
    "Sampled runs of a few sentences or lines of what was cut, by outcome: whole (in one chunk), split.",
    ("source", "generation", "outcome"),
)
PARSE_FAILURES = Counter(
    "tessera_parse_failures_total",
    "Documents with content that could not be read as it stands.",
    ("source", "parser", "reason"),
)
REPORTS = Counter(
    "tessera_reports_total", "Records for the topic tessera.metrics, by outcome: sent, failed.", ("outcome",)
)
MERGES = Counter("tessera_merges_total", "Merges of segments.", ("topic",))
BACKFILLED = Counter("tessera_backfill_documents_total", "Documents written by a backfill.", ("generation",))
FRESHNESS_SECONDS = Histogram(
    "tessera_freshness_seconds",
    "Time from an event's own timestamp to the commit that made it searchable.",
    ("topic",),
    buckets=_LATENCY_S,
)
APPLIED_OFFSET = Gauge("tessera_shard_applied_offset", "Last offset applied; -1 before the first.", _SHARD)
LAG = Gauge("tessera_shard_lag", "Records in the log after the last applied one.", _SHARD)
OWNED = Gauge("tessera_shards_owned", "Shards this worker writes or refuses to write.")
REFUSED = Gauge("tessera_shards_refused", "Shards whose log does not continue what was applied.")
SHARD_REFUSED = Gauge("tessera_shard_refused", "1 where the shard's log is refused, else 0.", _SHARD)
LOG_GAPS = Counter("tessera_log_gaps_total", "Places where records are missing in a log.", _SHARD)
REREADS = Counter("tessera_rereads_total", "Times a shard's log was read again from a place before.", _SHARD)
REJOINS = Counter("tessera_rejoins_total", "Times the worker asked for a new assignment.")
RETRIES = Counter("tessera_retries_total", "Calls repeated since a server was unavailable.", ("operation",))


def observe_all(histogram: Histogram, values: Sequence[float]) -> None:
    """Observe many values at once: one by one they would be the larger part of what measuring costs.

    The library has no call for it; what it does in ``observe`` is done here for all values of a bucket.
    """
    counts = Counts(bisect_left(histogram._upper_bounds, value) for value in values)
    for bucket, count in counts.items():
        histogram._buckets[bucket].inc(count)
    histogram._sum.inc(sum(values))
