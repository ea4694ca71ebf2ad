"""``tessera lab run``: candidate policies through every stage, on questions with their evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.terminal import console, counted, print_json, printable, progress
from tessera.documents.digests import document_digest
from tessera.errors import QueryError, SettingsError
from tessera.events.content import decode_content
from tessera.generations.cases import evidence_digest
from tessera.lab.plan import RetrieverName, load_plan
from tessera.lab.results import ContextFigures, Counts, LabResult, PolicyResult, to_value
from tessera.lab.run import run as run_plan

RETRIEVERS: tuple[RetrieverName, ...] = ("tessera", "rank-bm25")
NATURAL_COLUMNS = 160
"""Tables are as wide as they are: a figure cut short at the terminal's edge would be another figure."""

SHOWN_IDS = 8
"""Cases named in one line: the report has all of them, with their lines."""


def run(file: Path, retriever: str, budgets: Sequence[int], report: Path | None, *, as_json: bool) -> None:
    """Run a plan and print what it finds; exit status 1 where a gate is not met."""
    chosen = next((name for name in RETRIEVERS if name == retriever), None)
    if chosen is None:
        raise SettingsError(f"--retriever: there is no {retriever!r}; there are {', '.join(RETRIEVERS)}")
    if report is not None:
        from tessera.lab.report import require_folder, require_libraries, write_report

        require_libraries()
        require_folder(report)
    plan = load_plan(file, budgets, chosen)
    with progress(f"running {file.name}") as bar:

        def told(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        result = run_plan(plan, told)
        if report is not None:
            bar.update(bar.task_ids[0], description=f"writing {report.name}")
            write_report(result, report)
    if as_json:
        print_json(to_value(result))
    else:
        out = console()
        out.width = max(out.width, NATURAL_COLUMNS)
        _show(result, out)
        if report is not None:
            out.print(f"report: {printable(str(report))}")
    if result.failed:
        raise typer.Exit(1)


def show_case(
    file: Path, quote: str, question: str, source: str, doc_id: str | None, *, as_json: bool
) -> None:
    """Print a case for a quote of a document, JSON either way. QueryError where it is not there just once."""
    try:
        text, _ = decode_content(file.read_bytes())
    except OSError as error:
        raise QueryError(f"{file}: cannot be read ({error.strerror}): name a document") from error
    places = [match.start() for match in re.finditer(re.escape(quote), text)] if quote.strip() else []
    if len(places) != 1:
        found = "does not stand in it: blank space counts"
        if places:
            found = f"stands {len(places)} times in it: give more of it"
        raise QueryError(f"--quote: {quote[:60]!r} {found}")
    start = places[0]
    name = doc_id or file.name
    case = {
        "id": f"{Path(name).stem}-{start}",
        "question": question,
        "source": source,
        "doc_id": name,
        "start": start,
        "end": start + len(quote),
        "digest": evidence_digest(quote),
        "content_digest": document_digest(text),
    }
    print_json(case)


def _show(result: LabResult, out: Console) -> None:
    setup = result.setup
    asked = f"{counted(setup.cases, 'case')} of {counted(setup.questions, 'question')}"
    out.print(
        f"{asked} on {counted(setup.documents, 'document')}; {setup.analyzer}, {setup.scorer}, "
        f"k {setup.k}, retriever {setup.retriever}, no reranker"
    )
    out.print()
    _show_stages(result, out)
    for number in range(len(result.policies[0].contexts)):
        _show_context(result, number, out)
    _show_families(result, out)
    _show_evidence(result, out)
    _show_borders(result, out)
    for policy in result.policies:
        _show_failures(policy, out)
    for gate in result.gates:
        mark, style = ("passed", "green") if gate.met else ("FAILED", "red")
        where = f"{gate.policy}, {gate.context}" if gate.context else gate.policy
        line = f"{gate.gate} {gate.limit:g}: {gate.measured:.3f} ({where})"
        short = f"; short: {_ids(gate.cases)}" if not gate.met else ""
        out.print(Text.assemble((f"{mark} ", style), printable(line + short)))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _show_stages(result: LabResult, out: Console) -> None:
    """Chunking and retrieval, then storage and cost."""
    table = _table("policy", "whole in a chunk", f"recall@{result.setup.k}", "MRR", "p50 ms", "p95 ms")
    for each in result.policies:
        shares = (each.representability, each.candidates.recall, each.candidates.mrr)
        times = (each.latency.p50_ms, each.latency.p95_ms)
        table.add_row(each.name, *(f"{share:.3f}" for share in shares), *(f"{ms:.2f}" for ms in times))
    out.print(table)
    out.print()
    priced = bool(result.setup.currency)
    columns = ("policy", "chunks", "longest", "indexed", "of source", "stored")
    table = _table(*columns, *([f"index {result.setup.currency}"] if priced else []))
    for each in result.policies:
        held = each.storage
        stored = "" if held.stored_bytes is None else f"{held.stored_bytes / 1000:,.1f} kB"
        cells = [f"{held.chunks:,}", f"{held.longest_tokens:,}", f"{held.indexed_tokens:,}"]
        cells += [f"{held.amplification:.2f}", stored]
        table.add_row(each.name, *cells, *([f"{each.index_cost:.6f}"] if each.index_cost is not None else []))
    out.print(table)
    if priced:
        out.print(f"costs assume: {printable(result.setup.assumption)}", style="dim")


def _show_context(result: LabResult, number: int, out: Console) -> None:
    """One way of packing: its figures, and how many cases each stage lost, the first that did."""
    first = result.policies[0].contexts[number]
    columns = ["policy", "recall", "precision", "IoU", "used", "grounded", "kept", "cut", "not\nfound"]
    columns += ["not\npacked", "not\nverbatim", "mended", "p50\nms"]
    priced = first.context_cost is not None
    table = _table(*columns, *([f"{result.setup.currency} per\n1,000"] if priced else []))
    for each in result.policies:
        table.add_row(each.name, *_context_cells(each.contexts[number]))
    out.print()
    out.print(f"{first.assembly} at {first.budget} tokens", style="bold")
    out.print(table)


def _context_cells(found: ContextFigures) -> list[str]:
    shares = (found.recall, found.precision, found.iou, found.utilization, found.grounding)
    counts = [*found.fates.values(), found.mended]
    cost = [] if found.context_cost is None else [f"{found.context_cost:.4f}"]
    return [*(f"{share:.3f}" for share in shares), *map(str, counts), f"{found.latency.p50_ms:.2f}", *cost]


def _show_families(result: LabResult, out: Console) -> None:
    """Per family, the cases that are whole in a chunk, found, and kept in the last way of packing."""
    last = result.policies[0].contexts[-1]
    table = _table("family", "cases", *(each.name for each in result.policies))
    for family, cases in result.distributions.family.items():
        groups = [each.groups["family"][family] for each in result.policies]
        cells = (f"{group.represented}/{group.retrieved}/{group.kept[-1]}" for group in groups)
        table.add_row(printable(family), str(cases), *cells)
    out.print()
    out.print(table)
    out.print(f"whole in a chunk / found / kept by {last.assembly} at {last.budget}", style="dim")


def _show_evidence(result: LabResult, out: Console) -> None:
    found = result.distributions
    out.print()
    lines = {
        "tokens of evidence": found.length,
        "it stands in": found.kinds,
        "it begins": found.begins,
        "it ends": found.ends,
        "sections": found.cross_section,
        "script": found.script,
    }
    for name, counts in lines.items():
        out.print(f"{name:<20}{printable(_counts(counts))}")


def _show_borders(result: LabResult, out: Console) -> None:
    out.print()
    for each in result.policies:
        out.print(f"{each.name} cuts {printable(_counts(each.borders))}")


def _show_failures(policy: PolicyResult, out: Console) -> None:
    if policy.misses:
        out.print(
            Text(f"{policy.name} cuts evidence of {_ids([miss.case for miss in policy.misses])}", "yellow")
        )
    if policy.wasted:
        cases = [case for each in policy.wasted for case in each.cases]
        out.print(Text(f"{policy.name} wastes some context of {_ids(cases)}", "yellow"))


def _counts(counts: Counts) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _ids(cases: Sequence[str]) -> str:
    more = f" and {len(cases) - SHOWN_IDS} more" if len(cases) > SHOWN_IDS else ""
    return printable(", ".join(cases[:SHOWN_IDS]) + more)
