"""A folder as a source: compared with the index once, then watched.

No record of its own is kept on disk: the index is what a folder is compared with, so a folder that changed
while nobody watched, an index that was restored, or a broker that forgot everything all heal the same way.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tessera.documents.held import HeldDocument
from tessera.errors import SourceError
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Change, Delete
from tessera.limits import Limits
from tessera.sources.content import read_file
from tessera.sources.documents import Planned, plan_gone
from tessera.sources.logs import LastLine
from tessera.sources.plan import plan_file
from tessera.sources.scan import FileState, Scan, SourceFile, SourceProblem, scan
from tessera.sources.watch import wakeups

SETTLE_NS = 40_000_000
"""Quiet time after which a rewritten file counts as written: editors empty a file before they fill it."""

MAX_UNSETTLED_NS = 400_000_000
"""After this long a file is taken as it stands: one that is written all the time would never be seen."""

RACY_NS = 20_000_000
"""File times move in steps of some milliseconds: a file read this soon after a write is read again, since
a second write within the step would leave all its times as they were."""

RECHECK_S = 0.02
RESCAN_NS = 30_000_000_000
"""Looks made without any event, so that a lost one (a queue overflow) costs half a minute at most."""

IDLE_LAST_LINE_NS = 2_000_000_000
"""Pause after which a last line without LF is published: a program that died leaves its last words so."""

BATCH_CHANGES = 256
BATCH_LENGTH = 4 * 1024 * 1024
"""Bounds of one batch, in changes and characters: what is held in memory while it is published."""


class _Looked(NamedTuple):
    """One file after a look: what to publish, and what is known once that is done.

    ``state`` is None where the file has to be looked at again; ``is_open_ended`` where a last line waits.
    """

    doc_id: str
    planned: Planned
    state: FileState | None
    is_open_ended: bool


class FolderSource:
    """One folder that feeds one source.

    ``clock`` returns nanoseconds since the epoch. Use :meth:`initial` once, with what the index holds,
    then :meth:`changes` for what happens afterwards. A change counts as published when the next one is
    asked for; where publishing fails, begin anew with a new object. A folder without any of several
    documents that are indexed looks like a disk that is not mounted: it deletes them with ``allow_empty``
    only, and is a problem otherwise.
    """

    def __init__(
        self,
        path: Path,
        declaration: SourceDeclaration,
        clock: Callable[[], int] = time.time_ns,
        *,
        max_document_bytes: int = Limits().max_document_bytes,
        idle_last_line_ns: int = IDLE_LAST_LINE_NS,
        allow_empty: bool = False,
    ) -> None:
        self.path = path
        self.declaration = declaration
        self._clock = clock
        self._max_bytes = max_document_bytes
        self._idle_ns = idle_last_line_ns
        self._allow_empty = allow_empty
        self._held: dict[str, HeldDocument] = {}
        self._states: dict[str, FileState] = {}
        self._open_ended: set[str] = set()
        self._unsettled: dict[str, int] = {}
        self._waited: dict[str, int] = {}
        self.skipped = 0
        """Files that the last look left out for their type."""
        self._scan_problems: list[SourceProblem] = []
        self._read_problems: dict[str, SourceProblem] = {}

    @property
    def problems(self) -> tuple[SourceProblem, ...]:
        """What the last look had to leave out, in order of path."""
        return tuple(sorted({*self._scan_problems, *self._read_problems.values()}))

    def agrees_with(self, held: Mapping[str, HeldDocument]) -> bool:
        """Whether the index, which holds ``held``, holds what has been published from here."""
        return _live_contents(self._held) == _live_contents(held)

    def initial(self, held: Mapping[str, HeldDocument], *, watching: bool = False) -> Iterator[Change]:
        """Yield the changes that make the index, which holds ``held``, hold this folder.

        With ``watching`` a log's last line waits for its LF; otherwise it is published as it stands.
        Raises :class:`~tessera.errors.SourceError` where the folder cannot be listed.
        """
        self._held = dict(held)
        self._states.clear()
        for batch in self._look(watching=watching, settle=False):
            yield from batch

    async def changes(self) -> AsyncGenerator[list[Change], None]:
        """Yield batches of changes as the folder changes, without end; each edit is one change.

        A folder that cannot be listed for a while is reported in :attr:`problems`, and deletes nothing. An
        empty batch says that :attr:`problems` have changed.
        """
        told = self.problems
        next_look_ns = 0
        async with aclosing(wakeups(self.path)) as wakes:
            async for wake in wakes:
                if wake == "tick" and not self._open_ended and self._clock() < next_look_ns:
                    continue
                async for batch in self._settled():
                    yield batch
                if self.problems != told:
                    told = self.problems
                    yield []
                next_look_ns = self._clock() + RESCAN_NS

    async def _settled(self) -> AsyncGenerator[list[Change], None]:
        """Look until no file is in the middle of being written."""
        while True:
            look = self._look(watching=True, settle=True)
            while (batch := await asyncio.to_thread(self._next, look)) is not None:
                yield batch
            if not self._unsettled:
                return
            await asyncio.sleep(RECHECK_S)

    def _next(self, look: Iterator[list[Change]]) -> list[Change] | None:
        try:
            return next(look, None)
        except SourceError as error:
            self._scan_problems = [SourceProblem(".", str(error))]
            self._unsettled.clear()
            return None

    def _look(self, *, watching: bool, settle: bool) -> Iterator[list[Change]]:
        found = scan(self.path, self.declaration.kind)
        self._scan_problems = found.problems
        self.skipped = found.skipped
        self._forget(found)
        self._waited, self._unsettled = self._unsettled, {}
        batch: list[Change] = []
        looked: list[_Looked] = []
        size = 0
        for one in self._compare(found, watching=watching, settle=settle):
            looked.append(one)
            batch.extend(one.planned.changes)
            size += sum(map(_content_length, one.planned.changes))
            if len(batch) >= BATCH_CHANGES or size >= BATCH_LENGTH:
                yield batch
                self._remember(looked)
                batch, looked, size = [], [], 0
        if batch:
            yield batch
        self._remember(looked)

    def _compare(self, found: Scan, *, watching: bool, settle: bool) -> Iterator[_Looked]:
        for file in found.files.values():
            if self._is_known(file) or (settle and self._is_being_written(file)):
                continue
            one = self._attempt(file.doc_id, partial(self._read, file, watching=watching))
            if one is not None:
                yield one
        for doc_id in self._missing(found):
            # Tools that replace a file may remove the old one first: wait before deleting.
            if settle and self._wait(doc_id, self._clock(), SETTLE_NS):
                continue
            one = self._attempt(doc_id, partial(self._gone, doc_id))
            if one is not None:
                yield one

    def _missing(self, found: Scan) -> list[str]:
        live = [doc_id for doc_id, held in self._held.items() if not held.deleted]
        gone = sorted(doc_id for doc_id in live if found.is_gone(doc_id))
        if 1 < len(live) == len(gone) and not self._allow_empty:
            self._scan_problems.append(self._emptied(len(gone)))
            return []
        return gone

    def _emptied(self, documents: int) -> SourceProblem:
        path, name = shlex.quote(str(self.path)), shlex.quote(self.declaration.name)
        return SourceProblem(
            ".",
            f"all {documents} documents that are indexed are gone from this folder, so nothing is deleted, "
            "since it may not be mounted; if they are to be deleted, run "
            f"`tessera ingest {path} --source {name} --allow-empty`",
        )

    def _is_known(self, file: SourceFile) -> bool:
        """Whether nothing about the file has changed since it was looked at."""
        if self._states.get(file.doc_id) != file.state:
            return False
        return file.doc_id not in self._open_ended or not self._is_idle(file.state)

    def _is_idle(self, state: FileState) -> bool:
        return self._clock() - state.ctime_ns >= self._idle_ns

    def _is_being_written(self, file: SourceFile) -> bool:
        """Whether to wait before reading: a replaced file that was written to a moment ago."""
        now = self._clock()
        held = self._held.get(file.doc_id)
        has_grown = self.declaration.is_log and (held is None or file.state.size_bytes >= held.size_bytes)
        is_fresh = 0 <= now - file.state.ctime_ns < SETTLE_NS
        return not has_grown and is_fresh and self._wait(file.doc_id, now, MAX_UNSETTLED_NS)

    def _wait(self, doc_id: str, now: int, at_most_ns: int) -> bool:
        """Whether a file is to be left for the next look; not when it has been for ``at_most_ns``."""
        since = self._waited.get(doc_id, now)
        if now - since >= at_most_ns:
            return False
        self._unsettled[doc_id] = since
        return True

    def _attempt(self, doc_id: str, look: Callable[[], _Looked]) -> _Looked | None:
        """What one file comes to; None, and a problem to report, where it cannot be read."""
        try:
            one = look()
        except FileNotFoundError:
            return None  # gone since the scan; the next look deletes it
        except (OSError, SourceError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._read_problems[doc_id] = SourceProblem(doc_id, reason)
            return None
        self._read_problems.pop(doc_id, None)
        return one

    def _read(self, file: SourceFile, *, watching: bool) -> _Looked:
        content, state, is_stable = read_file(file, self._max_bytes)
        last_line: LastLine = "publish"
        if watching:
            last_line = "settle" if self._is_idle(state) else "hold"
        is_open_ended = (
            self.declaration.is_log and last_line == "hold" and not content.content.endswith(b"\n")
        )
        held = self._held.get(file.doc_id)
        planned = plan_file(content, held, self.declaration, last_line)
        is_settled = is_stable and not 0 <= self._clock() - state.ctime_ns < RACY_NS
        return _Looked(file.doc_id, planned, state if is_settled else None, is_open_ended)

    def _gone(self, doc_id: str) -> _Looked:
        planned = plan_gone(doc_id, self._held[doc_id], self.declaration, self._clock())
        return _Looked(doc_id, planned, None, False)

    def _forget(self, found: Scan) -> None:
        """Drop what was remembered of files that are not there any more."""
        for doc_id in self._states.keys() - found.files.keys():
            del self._states[doc_id]
        for doc_id in self._read_problems.keys() - found.files.keys():
            del self._read_problems[doc_id]
        self._open_ended &= found.files.keys()

    def _remember(self, looked: list[_Looked]) -> None:
        for one in looked:
            if one.planned.after is not None:
                self._held[one.doc_id] = one.planned.after
            if one.state is None:
                self._states.pop(one.doc_id, None)
            else:
                self._states[one.doc_id] = one.state
            (self._open_ended.add if one.is_open_ended else self._open_ended.discard)(one.doc_id)


def _live_contents(held: Mapping[str, HeldDocument]) -> dict[str, tuple[str, str, frozenset[str]]]:
    return {
        doc_id: (document.content_digest, document.media_type, frozenset(document.access))
        for doc_id, document in dict(held).items()
        if not document.deleted
    }


def _content_length(change: Change) -> int:
    return 0 if isinstance(change, Delete) else len(change.content)
