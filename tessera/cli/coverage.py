"""``tessera coverage``: what of the sources no chunk holds, read directly from the index."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.search import principals_of, warn_of_unknown
from tessera.cli.servers import opened_store
from tessera.cli.terminal import console, counted, print_json, printable, progress
from tessera.coverage import Coverage, DocumentCoverage, Stretch, read_coverage
from tessera.generations.bootstrap import read_registry
from tessera.search import Searcher
from tessera.settings import Settings, load_settings


def run(
    flags: Mapping[str, Any],
    config: Path | None,
    source: str | None,
    generations: tuple[str | None, str | None],
    principals: Sequence[str],
    limit: int,
    *,
    as_json: bool,
) -> None:
    """Print the coverage by one generation (None: the served one), against another one if any."""
    seen_as = principals_of(principals)
    settings = load_settings(flags, config=config, require=("redis",))
    with progress("reading documents"):
        found = asyncio.run(_read(settings, source, generations, seen_as, limit))
    if as_json:
        print_json(found.to_value())
    else:
        show(found, console())


async def _read(
    settings: Settings,
    source: str | None,
    generations: tuple[str | None, str | None],
    principals: frozenset[str] | None,
    limit: int,
) -> Coverage:
    async with opened_store(settings) as store:
        searcher = Searcher(store, pointer_staleness_s=settings.pointer_staleness_s)
        try:
            generation = generations[0] or (await read_registry(store)).serving.name
            found = await read_coverage(
                store,
                searcher,
                generation,
                against=generations[1],
                source=source,
                principals=principals,
                limit=limit,
            )
        finally:
            await searcher.close()
        if source is not None and not found.sources:
            await warn_of_unknown(source, store)
        return found


def show(found: Coverage, out: Console) -> None:
    """Print the coverage for a person: sources in numbers, then documents with the lines."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("source")
    for column in ("documents", "incomplete", "uncovered", "missing lines", "parse failures"):
        table.add_column(column, justify="right")
    for name, each in found.sources.items():
        figures = (each.documents, each.incomplete, each.uncovered, each.missing_ranges, each.parse_failures)
        table.add_row(printable(name), *(f"{figure:,}" for figure in figures))
    out.print(table)
    for document in found.documents:
        _show_document(document, found, out)
    if found.more:
        out.print(f"{counted(found.more, 'document')} more: give a larger --limit", style="yellow")
    if found.moved:
        out.print(f"{counted(found.moved, 'document')} changed meanwhile: ask again", style="yellow")
    told = f"generation {found.generation}" + (f" against {found.against}" if found.against else "")
    complete = not found.documents and not found.more
    out.print(f"{told}: every range with content is in a chunk" if complete else told, style="dim")


def _show_document(document: DocumentCoverage, found: Coverage, out: Console) -> None:
    out.print(Text(printable(f"{document.source}/{document.doc_id}"), style="bold cyan"))
    for each in document.uncovered:
        _show_stretch("missing from the log" if each.missing else "in no chunk", each, out)
    if document.ranges > len(document.uncovered):
        out.print(f"  {document.ranges - len(document.uncovered):,} ranges more", style="dim")
    if failure := document.failure:
        ranges = ", ".join(f"{start}-{end}" for start, end in failure.ranges[:5])
        more = ", …" if failure.count > 5 else ""
        out.print(Text(f"  not UTF-8: {counted(failure.count, 'byte range')}: {ranges}{more}", "yellow"))
        for each in failure.places[:5]:
            _show_stretch("not UTF-8", each, out)
    for name, stretches in ((found.generation, document.only_here), (found.against, document.only_there)):
        for each in stretches:
            _show_stretch(f"only {name} covers", each, out)


def _show_stretch(what: str, stretch: Stretch, out: Console) -> None:
    lines = f"{stretch.start_line}-{stretch.end_line}"
    out.print(Text(f"  {what}: lines {lines}", style="yellow"))
    for number, line in enumerate(stretch.lines, start=stretch.start_line):
        out.print(Text(f"  {number:>6} │ {printable(line)}"), overflow="ellipsis", no_wrap=True)
    left = stretch.end_line - stretch.start_line + 1 - len(stretch.lines)
    if left and stretch.lines:
        out.print(f"  {'':>6} │ … {counted(left, 'line')} more", style="dim")
