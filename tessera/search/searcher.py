"""Search over the shards' live chunks: what was committed before a query is in its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tessera.documents.identity import parse_uid
from tessera.errors import QueryError, StaleSnapshotError, UnavailableError
from tessera.index.analyzer import require_analyzer
from tessera.releases import GenerationDescription, Release
from tessera.search.answer import Answer, Hit, SearchStats, hit_of
from tessera.search.scoring import query_terms
from tessera.search.snapshot import Found, Snapshot
from tessera.search.texts import TextReader
from tessera.search.view import GenerationView
from tessera.store.base import ShardStore

TEXT_CACHE_BYTES = 64 * 1024 * 1024
"""Decompressed text blocks kept: without a bound a crawl through all documents would fill the memory."""

MAX_GENERATIONS = 3
"""Generations held at once: the serving one, a candidate, and one more for a comparison."""

ATTEMPTS = 4
"""Snapshots tried while text blocks go missing. Each has seen the commit that removed the last one's, so
more failures in a row mean that blobs are lost."""

Find = Callable[[Release, GenerationView, Snapshot], list[Found]]


class Searcher:
    """Answers queries from memory; each looks at the store's heads first and reads what changed.

    Principals are the caller's names; None is the operator, who sees everything. A document is visible
    where its access holds ``"*"`` or one of the names.
    """

    def __init__(self, store: ShardStore, *, text_cache_bytes: int = TEXT_CACHE_BYTES) -> None:
        self._store = store
        self._texts = TextReader(store, text_cache_bytes)
        self._views: dict[str, GenerationView] = {}
        self._serving: str | None = None
        self._opening = asyncio.Lock()

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
        Raises :class:`~tessera.errors.QueryError` for a query outside its bounds or an unknown generation,
        :class:`~tessera.errors.UnavailableError` where nothing is served yet.
        """
        began = time.perf_counter()

        def find(release: Release, view: GenerationView, snapshot: Snapshot) -> list[Found]:
            counts = query_terms(query, k, view.analyzer)
            return snapshot.search(counts, k, release.scorer, principals, source)

        release, view, snapshot, hits = await self._hits(find, generation)
        return Answer(
            release=release.release,
            generation=view.generation,
            as_of={str(shard): offset for shard, offset in snapshot.applied.items()},
            took_ms=(time.perf_counter() - began) * 1000,
            hits=hits,
        )

    async def chunk(self, uid: str, principals: frozenset[str] | None = None) -> Hit | None:
        """The chunk with this uid in the serving generation; None where it is not there or not visible.

        Raises :class:`~tessera.errors.QueryError` where ``uid`` is not well formed.
        """
        wanted = parse_uid(uid)

        def find(_: Release, view: GenerationView, snapshot: Snapshot) -> list[Found]:
            if view.policy_id != wanted.policy_id:
                return []
            document = snapshot.document(wanted.source, wanted.doc_id, principals)
            return [
                found
                for found in document
                if found.document.revision == wanted.revision and found.ordinal == wanted.ordinal
            ]

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

    async def refresh(self) -> dict[str, int]:
        """Bring the serving generation up to date; the last applied offset per ``<topic>/<partition>``."""
        _, _, snapshot = await self._current(None)
        return {str(shard): offset for shard, offset in snapshot.applied.items()}

    async def warm(self) -> None:
        """Load the serving generation and merge it in memory, so that queries are at full speed."""
        _, view, _ = await self._current(None)
        await view.settle()

    async def stats(self) -> SearchStats:
        """What the serving generation holds now."""
        _, view, snapshot = await self._current(None)
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
        """Stop background work. The store stays open: it is the caller's."""
        for view in self._views.values():
            await view.close()
        self._views.clear()

    async def _hits(
        self, find: Find, generation: str | None = None
    ) -> tuple[Release, GenerationView, Snapshot, list[Hit]]:
        """Find chunks in a current snapshot and read their texts; anew where texts went meanwhile."""
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._hits_once(find, generation)
            except StaleSnapshotError:
                continue
        return await self._hits_once(find, generation)

    async def _hits_once(
        self, find: Find, generation: str | None
    ) -> tuple[Release, GenerationView, Snapshot, list[Hit]]:
        release, view, snapshot = await self._current(generation)
        found = find(release, view, snapshot)
        texts = await self._texts.texts(found)
        hits = [hit_of(hit, text, view.policy_id) for hit, text in zip(found, texts, strict=True)]
        return release, view, snapshot, hits

    async def _current(self, generation: str | None) -> tuple[Release, GenerationView, Snapshot]:
        """The release, read once, and a snapshot of its generation, or of the one asked for.

        Both are read after the call began, and together: the release seldom moves to another generation.
        """
        expected = self._views.get(generation or self._serving or "")
        if expected is None:
            return await self._opened(await self._release(), generation)
        read, fresh = await asyncio.gather(self._release(), expected.fresh(), return_exceptions=True)
        if isinstance(read, BaseException):
            raise read
        if (generation or read.generation) != expected.generation:
            return await self._opened(read, generation)
        if isinstance(fresh, BaseException):
            raise fresh
        return read, expected, fresh

    async def _opened(
        self, release: Release, generation: str | None
    ) -> tuple[Release, GenerationView, Snapshot]:
        view = await self._view(generation or release.generation)
        return release, view, await view.fresh()

    async def _release(self) -> Release:
        encoded = await self._store.release()
        if encoded is None:
            raise UnavailableError(
                "the store names no release to serve: start a worker (tessera worker, or tessera up), "
                "which sets the first one"
            )
        release = Release.from_json(encoded)
        self._serving = release.generation
        return release

    async def _view(self, generation: str) -> GenerationView:
        async with self._opening:
            view = self._views.pop(generation, None) or await self._open(generation)
            self._views[generation] = view
            idle = [name for name in self._views if name not in (generation, self._serving)]
            for name in idle[: max(0, len(self._views) - MAX_GENERATIONS)]:
                await self._views.pop(name).close()
            return view

    async def _open(self, generation: str) -> GenerationView:
        registry = await self._store.registry()
        encoded = registry.get(generation)
        if encoded is None:
            names = ", ".join(sorted(registry)) or "none"
            raise QueryError(f"there is no generation {generation[:100]!r}; there are: {names}")
        contract = GenerationDescription.from_json(encoded).contract
        analyzer = require_analyzer(contract.analyzer, generation)
        return GenerationView(self._store, generation, contract.policy_id, analyzer)
