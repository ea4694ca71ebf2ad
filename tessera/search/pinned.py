"""Generations side by side: all of them as of one and the same offset per shard, for as long as it takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tessera.errors import StaleSnapshotError
from tessera.releases import Release
from tessera.search.answer import Answer, hit_of
from tessera.search.heads import HeadsReader
from tessera.search.scoring import query_terms
from tessera.search.snapshot import Found, Snapshot
from tessera.search.texts import TextReader
from tessera.search.view import GenerationView
from tessera.store.base import Head, ShardId

ATTEMPTS = 200
"""Readings of shards that were written to between the manifests of two generations. A reading takes a
millisecond and a shard commits some tens of times a second: more in a row mean that something is wrong."""


@dataclass(frozen=True, slots=True)
class PinnedGeneration:
    """One generation at one moment; it does not move, whatever is published, replaced or cut over."""

    release: Release
    view: GenerationView
    snapshot: Snapshot
    reader: TextReader

    @property
    def generation(self) -> str:
        """The generation's name."""
        return self.view.generation

    @property
    def policy_id(self) -> str:
        """Identity of the policy that cut it."""
        return self.view.policy_id

    @property
    def as_of(self) -> dict[str, int]:
        """The last applied offset per ``<topic>/<partition>``: equal in all generations pinned together."""
        return self.snapshot.as_of

    def find(
        self, query: str, k: int, principals: frozenset[str] | None = None, source: str | None = None
    ) -> list[Found]:
        """The best ``k`` chunks that the principals may see, by the release's scorer; no text is read."""
        counts = query_terms(query, k, self.view.analyzer)
        return self.snapshot.search(counts, k, self.release.scorer, principals, source)

    def document(self, source: str, doc_id: str, principals: frozenset[str] | None = None) -> list[Found]:
        """The document's chunks by ordinal; empty where it has none or the principals may not see it."""
        return self.snapshot.document(source, doc_id, principals)

    async def texts(self, found: Sequence[Found]) -> list[str]:
        """The texts of chunks of this generation, in order.

        Raises :class:`~tessera.errors.StaleSnapshotError` where one was deleted or revoked since: pin anew.
        """
        return await self.reader.texts(found)

    async def search(
        self, query: str, k: int, principals: frozenset[str] | None = None, source: str | None = None
    ) -> Answer:
        """As :meth:`~tessera.search.Searcher.search`, in this snapshot; raises as :meth:`texts` does."""
        began = time.perf_counter()
        found = self.find(query, k, principals, source)
        texts = await self.texts(found)
        return Answer(
            release=self.release.release,
            generation=self.generation,
            as_of=self.as_of,
            took_ms=(time.perf_counter() - began) * 1000,
            hits=[hit_of(hit, text, self.policy_id) for hit, text in zip(found, texts, strict=True)],
        )


async def aligned(heads: HeadsReader, views: Sequence[GenerationView]) -> list[Snapshot]:
    """Snapshots of the views that hold each shard at the same head, which was current after this call.

    A generation's manifest is read by itself, so a commit can fall between two of them; then this shard alone
    is read again for both. Raises :class:`~tessera.errors.StaleSnapshotError` where that never comes to rest.
    """
    async with AsyncExitStack() as locks:
        for view in sorted(views, key=lambda view: view.generation):
            await locks.enter_async_context(view.lock)
        wanted = dict((await heads.read()).by_shard)
        for _ in range(ATTEMPTS):
            try:
                snapshots = [await view.follow(wanted) for view in views]
            except StaleSnapshotError:
                wanted = dict((await heads.read()).by_shard)
                continue
            held = {shard: [view.head(shard) for view in views] for shard in wanted}
            moved = {shard for shard, each in held.items() if any(head != each[0] for head in each)}
            if not moved:
                return snapshots
            wanted = _again(held, moved, (await heads.read()).by_shard)
    raise StaleSnapshotError("the shards are written to faster than two generations can be read: ask again")


def _again(
    held: Mapping[ShardId, Sequence[Head | None]], moved: set[ShardId], now: Mapping[ShardId, Head | None]
) -> dict[ShardId, Head | None]:
    """Heads to follow next: the shards that agree stay where they are."""
    return {shard: now[shard] if shard in moved else each[0] for shard, each in held.items()}
