"""What was cut, in metrics: for live changes and for backfills alike."""

from __future__ import annotations

from collections.abc import Mapping

from tessera import metrics
from tessera.shards.building import CutFigures


def observe_cut(cut: Mapping[str, CutFigures]) -> None:
    """Observe figures by generation."""
    for generation, figures in cut.items():
        metrics.observe_all(metrics.CHUNK_TOKENS.labels(generation), figures.tokens)
        metrics.observe_all(metrics.CHUNK_OVERLAP_TOKENS.labels(generation), figures.overlaps)
        for outcome, counts in (("whole", figures.whole), ("split", figures.split)):
            for source, count in counts.items():
                metrics.SAMPLES.labels(source, generation, outcome).inc(count)
