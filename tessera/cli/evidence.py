"""The figures of a comparison as a person is shown them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from tessera.cli.terminal import printable


def print_figures(baseline: str, candidate: str, figures: Mapping[str, Any], out: Console) -> None:
    """Both sides' figures, how ranks moved, which cases are stale, and what each threshold demands."""
    out.print(f"{_cases(figures['cases'])}, {figures['stale']} stale, the first {figures['k']} hits count")
    before, after = figures["baseline"], figures["candidate"]
    for name in ("representability", "recall", "mrr"):
        out.print(f"  {name:<17}{baseline} {before[name]:.4f}   {candidate} {after[name]:.4f}")
    p99 = (before["latency_ms"]["p99"], after["latency_ms"]["p99"])
    out.print(f"  {'p99 latency':<17}{baseline} {p99[0]:.2f} ms   {candidate} {p99[1]:.2f} ms")
    for family, counts in figures["families"].items():
        moved = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count and kind != "cases")
        out.print(Text(printable(f"  {family}: {_cases(counts['cases'])}, {moved}"), style="dim"))
    for name, why in figures["stale_cases"].items():
        out.print(Text(printable(f"  stale: {name}: {why}"), style="yellow"))
    for name, check in figures["checks"].items():
        mark, style = ("passed", "green") if check["met"] else ("FAILED", "red")
        out.print(Text.assemble((f"{mark} ", style), f"{name} {check['limit']:g}: {check['measured']:g}"))


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count:,} cases"
