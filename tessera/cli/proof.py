"""``tessera generation verify`` and ``compare``: what is found, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.evidence import print_figures
from tessera.cli.lifecycle import operated
from tessera.cli.lives import when
from tessera.cli.terminal import console, print_json, printable, progress
from tessera.generations.cases import load_cases
from tessera.generations.differences import DocumentDifference
from tessera.generations.operations import Operator, parse_duration_s
from tessera.generations.proofs import compare_candidate, verify_candidate
from tessera.generations.registry import Evidence
from tessera.generations.report import VerifyReport
from tessera.search.searcher import Searcher

Flags = Mapping[str, Any]


def verify(flags: Flags, config: Path | None, name: str, sample: int, seed: int, *, as_json: bool) -> None:
    """Verify a generation; exit status 1 where it does not pass."""
    with progress(f"verifying {name}") as bar:

        def told(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        async def run(operator: Operator) -> VerifyReport:
            return await verify_candidate(operator, name, sample=sample, seed=seed, on_progress=told)

        report = operated(flags, config, run)
    if as_json:
        print_json(report.to_value())
    else:
        _print_report(report, console())
    if not report.passed:
        raise typer.Exit(1)


def compare(
    flags: Flags,
    config: Path | None,
    baseline: str,
    candidate: str,
    cases: Path,
    expires: str | None,
    *,
    as_json: bool,
) -> None:
    """Compare two generations; exit status 1 where a threshold is not met."""
    caseset = load_cases(cases)
    expires_s = None if expires is None else parse_duration_s(expires)
    with progress(f"comparing {baseline} and {candidate}") as bar:

        def told(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        async def run(operator: Operator) -> tuple[Evidence, bool]:
            searcher = Searcher(operator.store)
            try:
                return await compare_candidate(
                    operator, searcher, baseline, candidate, caseset, expires_s=expires_s, on_progress=told
                )
            finally:
                await searcher.close()

        evidence, recorded = operated(flags, config, run)
    if as_json:
        print_json({**evidence.to_value(), "recorded": recorded})
    else:
        _print_evidence(evidence, candidate, recorded, console())
    if not evidence.passed:
        raise typer.Exit(1)


def _print_report(report: VerifyReport, out: Console) -> None:
    columns = ("documents", "parse failures", "chunks", "uncovered", "split", "joined")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("source")
    for column in columns:
        table.add_column(column, justify="right")
    for name, source in report.sources.items():
        before, after = source.baseline, source.candidate
        table.add_row(
            printable(name),
            f"{source.documents:,}",
            f"{source.parse_failures:,}",
            f"{before.chunks:,} → {after.chunks:,}",
            f"{before.uncovered:,} → {after.uncovered:,}",
            f"{source.split:,}",
            f"{source.joined:,}",
        )
    out.print(table)
    for difference in report.differences:
        _print_difference(difference, report, out)
    for reason in report.reasons:
        out.print(Text(f"FAILED {printable(reason)}", style="red"))
    offsets = ", ".join(f"{shard.shard}:{shard.applied}" for shard in report.shards)
    out.print(
        f"{report.sampled} documents cut anew, {report.moved} changed meanwhile; at {offsets}", style="dim"
    )
    if report.passed:
        out.print(
            f"{report.candidate} holds what {report.baseline} holds: compare them with `tessera generation "
            f"compare {report.baseline} {report.candidate} --cases FILE`"
        )


def _print_difference(difference: DocumentDifference, report: VerifyReport, out: Console) -> None:
    """Only what one of both leaves uncovered: nearly every chunk of another policy is split or joined."""
    key = f"{difference.source}/{difference.doc_id}"
    sides = ((report.baseline, difference.only_baseline), (report.candidate, difference.only_candidate))
    for name, ranges in sides:
        if ranges:
            lines = ", ".join(f"{each.start_line}-{each.end_line}" for each in ranges)
            out.print(Text(printable(f"only {name} covers {key} lines {lines}"), style="yellow"))


def _print_evidence(evidence: Evidence, candidate: str, recorded: bool, out: Console) -> None:
    print_figures(evidence.baseline, candidate, evidence.figures, out)
    if not recorded:
        out.print("not recorded: evidence is of the serving generation and a verified candidate")
    elif evidence.passed:
        out.print(
            f"{candidate} is gated until {when(evidence.expires_at_ms)}: `tessera generation cutover "
            f"{candidate}` serves it"
        )
    else:
        out.print(f"{candidate} stays ready: {', '.join(evidence.failed)}", style="red")
