"""``tessera ingest``: publish what a folder holds and the index does not."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from tessera.addresses import read_address
from tessera.cli.feeds import Feed, FeedReport, Published, check_folder, skipped_files, unpublished
from tessera.cli.servers import opened_publisher, opened_store
from tessera.cli.terminal import counted, print_json, printable, progress
from tessera.errors import SettingsError, SourceError, UnavailableError
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Delete, SourceKind
from tessera.events.topics import topic_of
from tessera.kafka.admin import high_watermarks
from tessera.kafka.security import security_of
from tessera.settings import Settings, load_settings
from tessera.shards.catchup import wait_applied
from tessera.store.base import ShardId, ShardStore

PATIENCE_S = 10.0
"""How long workers may apply nothing before a command goes on without them; a rebalance takes seconds."""


def run(
    flags: Mapping[str, Any],
    config: Path | None,
    path: Path,
    source: str,
    kind: str | None,
    *,
    watch: bool,
    allow_empty: bool,
    as_json: bool,
) -> None:
    """Publish the folder once, or keep following it; print what was published."""
    settings = load_settings(flags, config=config)
    declaration = _declaration(settings, source, kind)
    folder = check_folder(path)
    _refuse_kept(settings, source, folder)
    started = time.monotonic()
    report = asyncio.run(
        _ingest(settings, folder, declaration, watch=watch, allow_empty=allow_empty, as_json=as_json)
    )
    seconds = time.monotonic() - started
    if as_json:
        counts = {"published": report.published, "deleted": report.deleted, "skipped": report.skipped}
        print_json({"source": source, **counts, "seconds": round(seconds, 3)})
    else:
        published = f"{counted(report.published, 'change')} published, {report.deleted} of them deletes"
        print(f"{source}: {published}, {seconds:.1f} s")
    if skipped := skipped_files(report, declaration.kind):
        print(printable(skipped), file=sys.stderr)
    problems = unpublished([report])
    if problems:
        more = f" (and {counted(len(problems) - 1, 'more file')})" if len(problems) > 1 else ""
        raise SourceError(f"not published: {printable(problems[0])}{more}")


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


def _refuse_kept(settings: Settings, source: str, folder: Path) -> None:
    """Two folders that feed one source would delete each other's documents for ever."""
    address = read_address(settings.data_dir)
    if address is None or address.redis != settings.redis:
        return
    kept = address.kept.get(source)
    if kept is not None and Path(kept) != folder:
        raise SourceError(
            f"the running `tessera up` keeps source {source!r} in step with {kept}: use another --source"
        )


async def _ingest(
    settings: Settings,
    path: Path,
    declaration: SourceDeclaration,
    *,
    watch: bool,
    allow_empty: bool,
    as_json: bool,
) -> FeedReport:
    async with opened_store(settings) as store, opened_publisher(settings, store) as publisher:
        await _wait_for_earlier_changes(settings, store, declaration)
        reached: dict[ShardId, int] = {}
        with progress("publishing") as bar:

            def show(batch: Sequence[Published]) -> None:
                bar.advance(bar.task_ids[0], len(batch))
                for _, position, _ in batch:
                    reached[ShardId(position.topic, position.partition)] = position.offset
                if watch:
                    _print(batch, as_json=as_json)

            feed = Feed(
                path,
                declaration,
                store,
                publisher,
                settings.max_document_bytes,
                show,
                allow_empty=allow_empty,
            )
            if not watch:
                await feed.once()
                await _wait_until_indexed(store, reached)
                return feed.report
            told: set[str] = set()
            try:
                async for report in feed.forever():
                    troubles = set(filter(None, [report.trouble, *unpublished([report])]))
                    for trouble in sorted(troubles - told):
                        print(f"tessera: {printable(trouble)}", file=sys.stderr)
                    told = troubles
            except asyncio.CancelledError:
                # Ctrl-C is how watching ends.
                return feed.report
        return feed.report


async def _wait_for_earlier_changes(
    settings: Settings, store: ShardStore, declaration: SourceDeclaration
) -> None:
    """Let the workers apply what the topic holds: compared with less, changes would be published twice."""
    topic = topic_of(declaration.kind)
    shards = [ShardId(topic, number) for number in range((await store.topics()).get(topic, 0))]
    ends = await high_watermarks(settings.broker, shards, security=security_of(settings))
    if not await _applied(store, {shard: end - 1 for shard, end in ends.items()}, "waiting for the workers"):
        raise UnavailableError(
            f"{topic} holds changes that no worker applies, so the index cannot be compared with the folder: "
            "start `tessera worker`, then run this again"
        )


async def _wait_until_indexed(store: ShardStore, reached: Mapping[ShardId, int]) -> None:
    if not await _applied(store, reached, "indexing"):
        message = "the changes are published, but no worker has applied them yet: see `tessera status`"
        print(f"tessera: {message}", file=sys.stderr)


async def _applied(store: ShardStore, offsets: Mapping[ShardId, int], what: str) -> bool:
    with progress(what) as bar:
        task = bar.tasks[0]

        def show(left: int) -> None:
            total = left if task.total is None else task.total
            bar.update(task.id, total=total, completed=total - left)

        return await wait_applied(store, offsets, PATIENCE_S, show)


def _print(batch: Sequence[Published], *, as_json: bool) -> None:
    for change, position, _ in batch:
        op = "delete" if isinstance(change, Delete) else type(change).__name__.lower()
        if as_json:
            print_json({"op": op, "doc_id": change.doc_id, **position._asdict()})
        else:
            where = f"{position.topic}/{position.partition} at {position.offset}"
            print(f"{op} {printable(change.doc_id)}: {where}", flush=True)
