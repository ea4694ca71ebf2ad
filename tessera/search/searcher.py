"""Search over the shards' live chunks: what was committed before a query is in its answer."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from tessera.documents.identity import parse_uid
from tessera.errors import StaleSnapshotError, UnavailableError
from tessera.releases import Release
from tessera.search.answer import Answer, Hit, SearchStats, hit_of
from tessera.search.context import Asked, Assembled, ContextAnswer, context_of
from tessera.search.control import POINTER_STALENESS_S, Control, served_generation, written_generation
from tessera.search.follower import Follower, candidate
from tessera.search.grounding import (
    Grounded,
    GroundingAnswer,
    Quote,
    Sources,
    check_quotes,
    ground,
    reached,
)
from tessera.search.heads import Heads, HeadsReader
from tessera.search.lease import Lease, Lessee
from tessera.search.pin import Pin, require_answers, require_whole
from tessera.search.pinned import PinnedGeneration, aligned
from tessera.search.scoring import query_terms
from tessera.search.snapshot import Found, Snapshot
from tessera.search.texts import TextReader
from tessera.search.view import GenerationView
from tessera.search.views import Views
from tessera.store.base import ShardStore

TEXT_CACHE_BYTES = 64 * 1024 * 1024
"""Decompressed text blocks kept: without a bound a crawl through all documents would fill the memory."""

ATTEMPTS = 4
"""Snapshots tried while text blocks go missing. Each has seen the commit that removed the last one's, so
more failures in a row mean that blobs are lost."""

Find = Callable[[Release, GenerationView, Snapshot], list[Found]]
T = TypeVar("T")


class Searcher:
    """Answers queries from memory; each looks at the store's heads first and reads what changed.

    Principals are the caller's names; None is the operator, who sees everything. A document is visible
    where its access holds ``"*"`` or one of the names.

    A query reads the release pointer once and is pinned to that release to its end; while the pointer cannot
    be read, the last release is served for ``pointer_staleness_s``. :meth:`start` loads what may be served
    next and announces it under the name ``reader``, for as long as the searcher lives. Without it, only what
    is asked for by name is announced: a cutover need not wait for a searcher that answers one question.
    """

    def __init__(
        self,
        store: ShardStore,
        *,
        text_cache_bytes: int = TEXT_CACHE_BYTES,
        pointer_staleness_s: float = POINTER_STALENESS_S,
        reader: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._texts = TextReader(store, text_cache_bytes)
        self._control = Control(store, staleness_s=pointer_staleness_s, clock=clock)
        self._heads = HeadsReader(store)
        self._views = Views(store, self._heads)
        self._lessee = Lessee(store, reader or secrets.token_hex(8), self._lease, clock)
        self._follower = Follower(self._control, self._heads, self._views, self._lessee, self._renew)
        self._background: asyncio.Task[None] | None = None
        self._follows = False

    async def search(
        self,
        query: str,
        k: int = 10,
        principals: frozenset[str] | None = None,
        source: str | None = None,
        generation: str | None = None,
    ) -> Answer:
        """The best ``k`` chunks that the principals may see, of one source or of all.

        ``generation`` searches another generation than the release's, with the release's scorer.
        Raises :class:`~tessera.errors.QueryError` for a query outside its bounds, or a generation that is not
        written, or not complete in every shard; :class:`~tessera.errors.UnavailableError` where nothing is
        served yet, or where the release, a shard or the right to read another generation cannot be had.
        """
        began = time.perf_counter()

        def find(release: Release, view: GenerationView, snapshot: Snapshot) -> list[Found]:
            counts = query_terms(query, k, view.analyzer)
            return snapshot.search(counts, k, release.scorer, principals, source)

        pin, snapshot, hits = await self._hits(find, generation)
        return Answer(
            release=pin.release.release,
            generation=pin.generation,
            as_of=snapshot.as_of,
            took_ms=(time.perf_counter() - began) * 1000,
            hits=hits,
            stale_s=pin.stale_s,
        )

    async def context(
        self,
        asked: Asked,
        principals: frozenset[str] | None = None,
        source: str | None = None,
        generation: str | None = None,
    ) -> ContextAnswer:
        """The context that the release's assembly makes of what :meth:`search` finds; raises as it does.

        Hits, what is between them and the assembly are those of one release and one snapshot.
        """
        began = time.perf_counter()
        asked.check()

        async def work(release: Release, view: GenerationView, snapshot: Snapshot) -> Assembled:
            assembly = release.context_assembly
            counts = query_terms(asked.query, asked.k or assembly.hits, view.analyzer)
            k = min(asked.k or assembly.hits, assembly.hits)
            found = snapshot.search(counts, k, release.scorer, principals, source)
            return await context_of(asked, assembly, found, snapshot, view.policy_id, self._texts)

        pin, snapshot, assembled = await self._read(work, generation)
        return ContextAnswer(
            release=pin.release.release,
            generation=pin.generation,
            assembly=pin.release.context_assembly.id,
            as_of=snapshot.as_of,
            took_ms=(time.perf_counter() - began) * 1000,
            assembled=assembled,
            stale_s=pin.stale_s,
        )

    async def ground(
        self,
        quotes: Sequence[Quote],
        floor: float | None = None,
        principals: frozenset[str] | None = None,
        generation: str | None = None,
    ) -> GroundingAnswer:
        """Whether quotes stand in the chunks they are cited from, as what is served holds them now.

        Raises as :meth:`search` does, and :class:`~tessera.errors.QueryError` for quotes out of bounds.
        """
        began = time.perf_counter()
        check_quotes(quotes, floor)
        sources = Sources(self._store, self._control, self._texts)

        async def work(_: Release, view: GenerationView, snapshot: Snapshot) -> list[Grounded]:
            return await ground(quotes, snapshot, view.policy_id, principals, sources)

        pin, snapshot, grounded = await self._read(work, generation)
        return GroundingAnswer(
            release=pin.release.release,
            generation=pin.generation,
            as_of=snapshot.as_of,
            took_ms=(time.perf_counter() - began) * 1000,
            quotes=grounded,
            evidence=reached(grounded, quotes, floor),
            stale_s=pin.stale_s,
        )

    async def found_in(
        self,
        generation: str,
        query: str,
        k: int,
        principals: frozenset[str] | None = None,
        source: str | None = None,
    ) -> list[Found]:
        """As :meth:`search` in a generation by name, without reading texts."""
        pin = await self._pin(generation)
        with self._lessee.using(generation):
            view = await self._view(pin)
            snapshot = await view.at(pin.heads)
            require_answers(pin, snapshot)
            counts = query_terms(query, k, view.analyzer)
            return snapshot.search(counts, k, pin.release.scorer, principals, source)

    @property
    def release(self) -> str | None:
        """The release last read; None before the first."""
        return self._control.release.release if self._control.release else None

    @property
    def candidate(self) -> str | None:
        """The generation that a cutover would lead to, as far as :meth:`start` has seen; None without one."""
        registry = self._control.last_registry
        return candidate(registry) if registry else None

    async def chunk(self, uid: str, principals: frozenset[str] | None = None) -> Hit | None:
        """The chunk with this uid in the serving generation; None where it is not there or not visible.

        Raises :class:`~tessera.errors.QueryError` where ``uid`` is not well formed.
        """
        wanted = parse_uid(uid)

        def find(_: Release, view: GenerationView, snapshot: Snapshot) -> list[Found]:
            if view.policy_id != wanted.policy_id:
                return []
            found = snapshot.chunk(wanted.source, wanted.doc_id, wanted.ordinal, principals)
            return [found] if found and found.document.revision == wanted.revision else []

        *_, hits = await self._hits(find)
        return hits[0] if hits else None

    async def document_chunks(
        self, source: str, doc_id: str, principals: frozenset[str] | None = None
    ) -> list[Hit] | None:
        """The document's chunks in source order; None where it has none or is not visible."""

        def find(_release: Release, _view: GenerationView, snapshot: Snapshot) -> list[Found]:
            return snapshot.document(source, doc_id, principals)

        *_, hits = await self._hits(find)
        return hits or None

    @asynccontextmanager
    async def pinned(self, generations: Sequence[str]) -> AsyncIterator[dict[str, PinnedGeneration]]:
        """Generations by name, all at the same offset of each shard, until the context ends.

        They are announced as in use for as long. Raises as :meth:`search` does for a generation by name, and
        for the served one too where it is not complete; :class:`~tessera.errors.StaleSnapshotError` where the
        shards are written to faster than they can be read.
        """
        announcing = asyncio.create_task(self._follower.keep_announcing()) if not self._background else None
        try:
            with self._lessee.using(*generations):
                pins = [await self._pin(name) for name in generations]
                views = [await self._view(pin) for pin in pins]
                for pin, view in zip(pins, views, strict=True):
                    await view.at(pin.heads)
                snapshots = await aligned(self._heads, views)
                for view, snapshot in zip(views, snapshots, strict=True):
                    require_whole(view.generation, snapshot.lacking)
                yield {
                    view.generation: PinnedGeneration(pins[0].release, view, snapshot, self._texts)
                    for view, snapshot in zip(views, snapshots, strict=True)
                }
        finally:
            if announcing:
                await _ended(announcing)

    def start(self) -> None:
        """Keep loaded what may be served next, and announce it, until :meth:`close`."""
        self._follows = True
        self._background = asyncio.create_task(self._follower.run())

    async def preload(self) -> None:
        """Load and announce now what :meth:`start` would by and by."""
        self._follows = True
        await self._follower.follow()
        await self._follower.settle()
        await self._follower.announce()

    async def refresh(self) -> dict[str, int]:
        """Bring the serving generation up to date; the last applied offset per ``<topic>/<partition>``."""
        _, snapshot = await self._current()
        return snapshot.as_of

    async def warm(self) -> None:
        """Load the serving generation and merge it in memory, so that queries are at full speed."""
        view, _ = await self._current()
        await view.settle()

    async def stats(self) -> SearchStats:
        """What the serving generation holds now."""
        view, snapshot = await self._current()
        parts = snapshot.parts
        live = sum(part.live_chunks for part in parts)
        return SearchStats(
            generation=view.generation,
            documents=snapshot.documents(),
            chunks_live=live,
            chunks_dead=sum(part.segment.chunks for part in parts) - live,
            segments=view.segments,
            parts=len(parts),
            memory_bytes=sum(part.index.size_bytes for part in parts),
            text_cache_bytes=self._texts.size_bytes,
        )

    async def close(self) -> None:
        """Stop background work and end the lease. The store stays open: it is the caller's."""
        if self._background:
            await _ended(self._background)
            self._background = None
        await self._follower.close()
        await self._views.keep(())
        await self._lessee.withdraw()

    async def _hits(self, find: Find, generation: str | None = None) -> tuple[Pin, Snapshot, list[Hit]]:
        """Find chunks in a current snapshot and read their texts."""

        async def work(release: Release, view: GenerationView, snapshot: Snapshot) -> list[Hit]:
            found = find(release, view, snapshot)
            texts = await self._texts.texts(found)
            return [hit_of(hit, text, view.policy_id) for hit, text in zip(found, texts, strict=True)]

        return await self._read(work, generation)

    async def _read(
        self,
        work: Callable[[Release, GenerationView, Snapshot], Awaitable[T]],
        generation: str | None = None,
    ) -> tuple[Pin, Snapshot, T]:
        """Do the work on a current snapshot; anew on the next one where texts went meanwhile."""
        pin = await self._pin(generation)
        with self._lessee.using(pin.generation):
            view = await self._view(pin)
            heads = pin.heads
            for _ in range(ATTEMPTS - 1):
                try:
                    snapshot = await self._snapshot(pin, view, heads)
                    return pin, snapshot, await work(pin.release, view, snapshot)
                except StaleSnapshotError:
                    heads = await self._heads.read()
            snapshot = await self._snapshot(pin, view, heads)
            return pin, snapshot, await work(pin.release, view, snapshot)

    @staticmethod
    async def _snapshot(pin: Pin, view: GenerationView, heads: Heads) -> Snapshot:
        snapshot = await view.at(heads)
        require_answers(pin, snapshot)
        return snapshot

    async def _current(self) -> tuple[GenerationView, Snapshot]:
        pin = await self._pin(None)
        view = await self._view(pin)
        return view, await self._snapshot(pin, view, pin.heads)

    async def _pin(self, generation: str | None) -> Pin:
        """The release, read once, and the heads; both as they were after the call began."""
        if generation is None:
            served, heads = await asyncio.gather(self._control.served(), self._heads.read())
            return Pin(served.release, served.release.generation, heads, served.stale_s)
        served, heads, registry = await asyncio.gather(
            self._control.served(), self._heads.read(), self._control.registry()
        )
        written_generation(registry, generation)
        pin = Pin(served.release, generation, heads, served.stale_s)
        if not pin.is_served and await self._announced_anew(generation):
            # A contraction may have begun before it could see the lease: only what is read now counts.
            registry, heads = await asyncio.gather(self._control.registry(), self._heads.read())
            written_generation(registry, generation)
            pin = Pin(served.release, generation, heads, served.stale_s)
        if not pin.is_served:
            require_whole(generation, heads.lacking(generation))
        return pin

    async def _announced_anew(self, generation: str) -> bool:
        """See that the lease names a generation that is not served; whether it did not before."""
        try:
            if self._lessee.lapsed:
                await self._renew()
            return await self._lessee.ensure(generation)
        except UnavailableError as error:
            raise UnavailableError(
                f"generation {generation} is not served here: it cannot be announced as in use, so it could "
                f"be deleted meanwhile ({error}); ask without a generation, or again later"
            ) from error

    async def _view(self, pin: Pin) -> GenerationView:
        view = self._views.get(pin.generation)
        if view is None:
            registry = await self._control.registry()
            if pin.is_served:
                view = self._views.open(served_generation(registry, pin.release))
            else:
                view = self._views.open(written_generation(registry, pin.generation))
            await self._views.keep({*registry.written, pin.generation})
        return view

    async def _renew(self) -> None:
        """Announce; after a lease that ran out, only the served generation may still be as it was loaded."""
        release = self._control.release
        if self._lessee.lapsed:
            await self._views.keep({release.generation} if release else ())
        await self._lessee.announce()

    def _lease(self, held: Collection[str], named: Collection[str]) -> Lease:
        release, registry = self._control.release, self._control.last_registry
        served = {release.generation} if release else set()
        written = registry.written if registry else ()
        return Lease(
            release=release.release if release else "",
            generations=self._views.current(),
            in_use=tuple(sorted(served.union(held, set(named).intersection(written)))),
            follows=self._follows,
        )


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a background task and wait for its end; raises what it failed with before."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
