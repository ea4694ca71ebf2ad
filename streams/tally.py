"""What was done to one shard since it was last reported."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from tessera.shards.building import ParseFault
from tessera.shards.writer import BatchReport


@dataclass(slots=True)
class Tally:
    """Sums over batches. ``began`` is of the monotonic clock."""

    began: float = field(default_factory=time.monotonic)
    since_ms: int = field(default_factory=lambda: round(time.time() * 1000))
    batches: int = 0
    records: int = 0
    duplicates: int = 0
    stale: int = 0
    chunks_added: int = 0
    batch_s: float = 0.0
    commit_s: float = 0.0
    freshness_s: float | None = None
    dead_letters: Counter[str] = field(default_factory=Counter)
    parse_faults: Counter[ParseFault] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        """Whether a batch had a dead letter or a parse failure."""
        return bool(self.dead_letters or self.parse_faults)

    def add(self, report: BatchReport) -> None:
        """Count one batch."""
        self.batches += 1
        self.records += report.records - report.duplicates
        self.duplicates += report.duplicates
        self.stale += report.stale
        self.chunks_added += report.chunks_added
        self.batch_s += report.seconds
        self.commit_s += report.commit_s
        if report.freshness_s:
            self.freshness_s = max(self.freshness_s or 0.0, *report.freshness_s)
        self.dead_letters.update(report.reasons)
        self.parse_faults.update(report.parse_faults)
