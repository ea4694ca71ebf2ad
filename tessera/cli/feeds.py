"""Folders that feed the index: compared with it once, then watched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tessera.documents.held import held_documents
from tessera.errors import EventError, SourceError, TesseraError
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Change, Delete, SourceKind
from tessera.events.topics import topic_of
from tessera.kafka.publisher import Position, Publisher
from tessera.sources.folder import FolderSource
from tessera.sources.kinds import SUFFIXES
from tessera.store.base import ShardId, ShardStore

BATCH_CHANGES = 128

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
"""How long a feed waits before it begins anew, while the broker or the index cannot be reached."""

COMPARE_EVERY_S = 300.0
COMPARE_AT_MOST_S = 6 * 3600.0
"""How often a feed looks whether the index holds what was published: a change can have become a dead letter,
and every later append to that log is refused, then. What differs is published again; where it still differs,
the pause doubles up to the second figure, so that a change refused each time leaves few dead letters."""


class Published(NamedTuple):
    """One change that the broker has; ``sent_at`` is the monotonic time in seconds before it was sent."""

    change: Change
    position: Position
    sent_at: float


@dataclass(slots=True)
class FeedReport:
    """What one feed has done so far.

    ``problems`` are files that could not be published, and why; ``skipped`` counts those of types that the
    source does not hold.
    """

    source: str
    published: int = 0
    deleted: int = 0
    skipped: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    trouble: str = ""


class Feed:
    """Publishes what one folder holds and the index does not. ``on_published`` sees every batch."""

    def __init__(
        self,
        path: Path,
        declaration: SourceDeclaration,
        store: ShardStore,
        publisher: Publisher,
        max_document_bytes: int,
        on_published: Callable[[Sequence[Published]], None] = lambda _: None,
        *,
        allow_empty: bool = False,
    ) -> None:
        self.path = path
        self.declaration = declaration
        self.report = FeedReport(declaration.name)
        self.compared = asyncio.Event()
        self._store = store
        self._publisher = publisher
        self._max_document_bytes = max_document_bytes
        self._on_published = on_published
        self._allow_empty = allow_empty
        self._reached: dict[ShardId, int] = {}
        self._compare_every_s = COMPARE_EVERY_S
        self._noted: set[str] = set()

    async def once(self, *, watching: bool = False) -> FolderSource:
        """Bring the index up to the folder and return the source, ready to be watched."""
        source = FolderSource(
            self.path,
            self.declaration,
            max_document_bytes=self._max_document_bytes,
            allow_empty=self._allow_empty,
        )
        held = await held_documents(self._store, self.declaration.name, await self._shards())
        changes = iter(source.initial(held, watching=watching))
        while batch := await asyncio.to_thread(lambda: list(islice(changes, BATCH_CHANGES))):
            await self._publish(batch)
        self._note(source)
        self.compared.set()
        return source

    async def forever(self) -> AsyncIterator[FeedReport]:
        """Bring the index up to the folder, then follow it; yields the report whenever there is news.

        What fails is tried again from the comparison on, after a pause that grows: nothing is lost by that,
        since the index itself is what the folder is compared with.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                source = await self.once(watching=True)
                self.report.trouble, pause_s = "", FIRST_PAUSE_S
                yield self.report
                async with aclosing(self._followed(source)) as batches:
                    async for batch in batches:
                        await self._publish(batch)
                        self._note(source)
                        yield self.report
            except TesseraError as error:
                self.report.trouble = str(error)
                yield self.report
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _followed(self, source: FolderSource) -> AsyncGenerator[list[Change], None]:
        """Yield batches of changes until the index holds something else than was published."""
        async with aclosing(source.changes()) as batches:
            upcoming = asyncio.ensure_future(anext(batches))
            compare_at = time.monotonic() + self._compare_every_s
            try:
                while True:
                    await asyncio.wait({upcoming}, timeout=max(0.0, compare_at - time.monotonic()))
                    if time.monotonic() >= compare_at:
                        if not await self._is_as_published(source):
                            return
                        compare_at = time.monotonic() + self._compare_every_s
                    if upcoming.done():
                        yield upcoming.result()
                        upcoming = asyncio.ensure_future(anext(batches))
            finally:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)

    async def _is_as_published(self, source: FolderSource) -> bool:
        """Whether the index holds what was published, as far as it has been applied."""
        heads = await self._store.heads(list(self._reached))
        reached = zip(heads, self._reached.values(), strict=True)
        if any(head is None or head.applied < offset for head, offset in reached):
            return True  # some of it is on its way
        held = await held_documents(self._store, self.declaration.name, await self._shards())
        agrees = source.agrees_with(held)
        self._compare_every_s = (
            COMPARE_EVERY_S if agrees else min(2 * self._compare_every_s, COMPARE_AT_MOST_S)
        )
        return agrees

    async def _publish(self, batch: Sequence[Change]) -> None:
        try:
            await self._send(batch)
        except EventError:
            # One file is at fault; those beside it must not wait for it.
            for change in batch:
                try:
                    await self._send([change])
                except EventError as error:
                    self.report.problems[change.doc_id] = str(error)

    async def _send(self, batch: Sequence[Change]) -> None:
        sent_at = time.monotonic()
        positions = await self._publisher.publish_many(batch)
        self.report.published += len(batch)
        self.report.deleted += sum(isinstance(change, Delete) for change in batch)
        for change, position in zip(batch, positions, strict=True):
            self.report.problems.pop(change.doc_id, None)
            self._reached[ShardId(position.topic, position.partition)] = position.offset
        self._on_published([Published(*pair, sent_at) for pair in zip(batch, positions, strict=True)])

    def _note(self, source: FolderSource) -> None:
        self.report.skipped = source.skipped
        problems = {problem.path: problem.reason for problem in source.problems}
        for path in self._noted - problems.keys():
            self.report.problems.pop(path, None)
        self.report.problems |= problems
        self._noted = set(problems)

    async def _shards(self) -> list[ShardId]:
        topic = topic_of(self.declaration.kind)
        return [ShardId(topic, number) for number in range((await self._store.topics()).get(topic, 0))]


def check_folder(path: Path) -> Path:
    """The folder, absolute; :class:`SourceError` where it is none."""
    if not path.is_dir():
        raise SourceError(f"{path} is not a folder: give one that holds the source's files")
    return path.resolve()


def skipped_files(report: FeedReport, kind: SourceKind) -> str:
    """How many files were left out for their type, and which types are read; empty where none was."""
    if not report.skipped:
        return ""
    files = "1 file was" if report.skipped == 1 else f"{report.skipped} files were"
    read = ", ".join(SUFFIXES[kind])
    return f"{report.source}: {files} skipped: a source of kind {kind} reads {read}"


def unpublished(reports: Iterable[FeedReport]) -> list[str]:
    """One line per file that could not be published."""
    return [
        f"{report.source}: {name}: {why}"
        for report in reports
        for name, why in sorted(report.problems.items())
    ]
