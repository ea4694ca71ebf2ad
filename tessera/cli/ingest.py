"""``tessera ingest``: publish what a folder holds and the index does not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from tessera.cli.feeds import Feed, FeedReport, Published, check_folder, unpublished
from tessera.cli.servers import opened_publisher, opened_store
from tessera.cli.terminal import print_json, printable, progress
from tessera.errors import SettingsError, SourceError
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Delete, SourceKind
from tessera.settings import Settings, load_settings


def run(
    flags: Mapping[str, Any],
    config: Path | None,
    path: Path,
    source: str,
    kind: str | None,
    *,
    watch: bool,
    as_json: bool,
) -> None:
    """Publish the folder once, or keep following it; print what was published."""
    settings = load_settings(flags, config=config)
    declaration = _declaration(settings, source, kind)
    report = asyncio.run(_ingest(settings, check_folder(path), declaration, watch=watch, as_json=as_json))
    if as_json:
        print_json({"source": source, "published": report.published, "deleted": report.deleted})
    else:
        print(f"{source}: {report.published} changes published, {report.deleted} of them deletes")
    problems = unpublished([report])
    if problems:
        more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
        raise SourceError(f"{printable(problems[0])}{more}: these files were not published")


def _declaration(settings: Settings, name: str, kind: str | None) -> SourceDeclaration:
    """The source's declaration. Workers know no other, so that ``--kind`` cannot differ from it."""
    if not name or "/" in name:
        raise SettingsError("--source: a source's name is not empty and has no '/'")
    if kind is not None and kind not in get_args(SourceKind):
        raise SettingsError(f"--kind: {kind!r} is not one of {', '.join(get_args(SourceKind))}")
    declared = settings.catalog[name]
    if kind is not None and kind != declared.kind:
        raise SettingsError(
            f"source {name!r} is of kind {declared.kind} for the workers: declare [sources.{name}] "
            f'kind = "{kind}" in tessera.toml and restart them, or leave out --kind'
        )
    return declared


async def _ingest(
    settings: Settings, path: Path, declaration: SourceDeclaration, *, watch: bool, as_json: bool
) -> FeedReport:
    async with opened_store(settings) as store, opened_publisher(settings, store) as publisher:
        with progress("publishing") as bar:

            def show(batch: Sequence[Published]) -> None:
                bar.advance(bar.task_ids[0], len(batch))
                if watch:
                    _print(batch, as_json=as_json)

            feed = Feed(path, declaration, store, publisher, settings.max_document_bytes, show)
            if not watch:
                await feed.once()
                return feed.report
            try:
                async for report in feed.forever():
                    for trouble in filter(None, [report.trouble, *unpublished([report])]):
                        print(f"tessera: {printable(trouble)}", file=sys.stderr)
            except asyncio.CancelledError:
                # Ctrl-C is how watching ends.
                return feed.report
        return feed.report


def _print(batch: Sequence[Published], *, as_json: bool) -> None:
    for change, position, _ in batch:
        op = "delete" if isinstance(change, Delete) else type(change).__name__.lower()
        if as_json:
            print_json({"op": op, "doc_id": change.doc_id, **position._asdict()})
        else:
            where = f"{position.topic}/{position.partition} at {position.offset}"
            print(f"{op} {printable(change.doc_id)}: {where}", flush=True)
