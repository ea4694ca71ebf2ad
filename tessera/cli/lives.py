"""Generations, moves of the release and rebuilds as a person is shown them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.evidence import print_figures
from tessera.cli.terminal import printable
from tessera.generations.cutover import Move
from tessera.generations.moments import shown
from tessera.generations.rebuild import ShardRebuild
from tessera.index.analyzer import DEFAULT_ANALYZER

_COLUMNS = ("state", "policy", "documents", "chunks", "uncovered", "shards", "note")


def print_generations(found: Sequence[Mapping[str, Any]], out: Console) -> None:
    """One line per generation."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("generation", *_COLUMNS):
        table.add_column(column, justify="right" if column in ("chunks", "uncovered") else "left")
    for each in found:
        progress = each["progress"]
        documents = f"{progress['documents']:,} of {progress['of']:,}" if progress else ""
        shards = f"{progress['shards_complete']} of {progress['shards']}" if progress else ""
        cells = (_rules(each), documents, f"{each['chunks']:,}", f"{each['uncovered']:,}", shards)
        table.add_row(each["generation"], each["state"], *cells, printable(_note(each)))
    out.print(table)


def print_generation(found: Mapping[str, Any], out: Console) -> None:
    """Everything about one generation."""
    out.print(Text.assemble((found["generation"], "bold cyan"), f" is {found['state']}"))
    out.print(f"policy {found['policy']}, analyzer {found['analyzer']}")
    out.print(f"contract {found['contract']}", style="dim")
    if found["release"] is not None:
        way = "serves it" if found["serving"] else "is what a rollback serves"
        out.print(f"release {found['release']} {way}, contexts by {found['assembly']}")
    out.print(f"{found['chunks']:,} chunks, {found['uncovered']:,} uncovered ranges")
    if progress := found["progress"]:
        left = "" if progress["eta_s"] is None else f", {progress['eta_s']:,.0f} s left"
        out.print(
            f"{progress['documents']:,} of {progress['of']:,} documents, {progress['shards_complete']} of "
            f"{progress['shards']} shards complete{left}"
        )
    if note := _note(found):
        out.print(Text(printable(note), style="yellow"))
    for shard, standing in found["shards"].items():
        complete = "complete" if standing["complete"] else "filling"
        out.print(
            f"  {shard}: {complete}, {standing['documents']:,} documents, written from offset "
            f"{standing['adopted_at'] + 1} on"
        )
    _print_evidence(found["generation"], found["evidence"], out)
    if waiver := found["waiver"]:
        words = f"{waiver['check']} waived by {waiver['actor']} until {when(waiver['expires_at_ms'])}"
        out.print(Text(printable(f"{words}: {waiver['why']}"), style="yellow"))
    for step in found["steps"]:
        note = f": {step['note']}" if step["note"] else ""
        out.print(Text(printable(f"  {when(step['at_ms'])} {step['action']} by {step['actor']}{note}")))


def print_move(move: Move, out: Console, *, dry_run: bool) -> None:
    """The checks of a move, what it changes, and whether it was made."""
    for check in move.checks:
        mark, style = ("passed", "green") if check.passed else ("FAILED", "red")
        if check.waived:
            mark, style = "waived", "yellow"
        out.print(Text.assemble((f"{mark} ", style), (f"{check.name:<15}", "bold"), printable(check.detail)))
    for change in move.changes:
        out.print(f"  {printable(change)}")
    if move.note:
        out.print(Text(printable(move.note), style="yellow"))
    if not dry_run:
        served = move.to_release
        out.print(f"done: release {served.release} serves {served.generation}, read back", style="bold")
    elif move.allowed:
        out.print("nothing was changed: without --dry-run it would be")
    else:
        out.print("nothing was changed, and it would be refused", style="red")


def print_rebuild(plan: Sequence[ShardRebuild], out: Console) -> None:
    """What a rebuild reaches, shard by shard."""
    for each in plan:
        out.print(printable(f"{each.shard}: applied up to {each.applied}; {each.explanation}"))
    if not plan:
        out.print("no shard was ever claimed: there is nothing to rebuild")


def when(at_ms: int) -> str:
    """A time for people, UTC."""
    return f"{shown(at_ms)[:19].replace('T', ' ')}Z"


def _print_evidence(generation: str, evidence: Mapping[str, Any] | None, out: Console) -> None:
    if evidence is None:
        return
    verdict = "passed" if evidence["passed"] else f"failed ({', '.join(evidence['failed'])})"
    out.print(
        f"compared with {evidence['baseline']} at {when(evidence['at_ms'])}: {verdict}, valid until "
        f"{when(evidence['expires_at_ms'])}"
    )
    print_figures(evidence["baseline"], generation, evidence["figures"], out)


def _rules(found: Mapping[str, Any]) -> str:
    """The policy, and the analyzer where it is not the usual one."""
    analyzer = str(found["analyzer"]).partition("/")[0]
    usual = analyzer.startswith(f"{DEFAULT_ANALYZER}@")
    return str(found["policy"]) if usual else f"{found['policy']} {analyzer}"


def _note(found: Mapping[str, Any]) -> str:
    notes = []
    if found["paused"]:
        notes.append("paused")
    if found["rate"] is not None and found["state"] == "building":
        notes.append(f"at most {found['rate']:g} documents a second and shard")
    if found["hold"]:
        notes.append(f"held: {found['hold']}")
    if found["state"] == "retired":
        notes.append(f"kept until {when(found['retain_until_ms'])}")
    progress = found["progress"] or {"notes": {}}
    notes += [f"{shard}: {note}" for shard, note in list(progress["notes"].items())[:2]]
    return "; ".join(notes)
