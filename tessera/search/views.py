"""The generations a searcher has in memory."""

from __future__ import annotations

from collections.abc import Collection

from tessera.generations.registry import Generation
from tessera.index.analyzer import require_analyzer
from tessera.search.heads import Heads, HeadsReader
from tessera.search.view import GenerationView
from tessera.store.base import ShardStore


class Views:
    """Views by generation. Their number is that of the generations written, which operators bound."""

    def __init__(self, store: ShardStore, heads: HeadsReader) -> None:
        self._store = store
        self._heads = heads
        self._open: dict[str, GenerationView] = {}

    def get(self, name: str) -> GenerationView | None:
        """The view, None where it is not open."""
        return self._open.get(name)

    def open(self, generation: Generation) -> GenerationView:
        """The generation's view, a new and empty one where there is none.

        Raises :class:`~tessera.errors.SettingsError` where this build does not know its analyzer.
        """
        view = self._open.get(generation.name)
        if view is None:
            contract = generation.contract
            analyzer = require_analyzer(contract.analyzer, generation.name)
            view = GenerationView(self._store, self._heads, generation.name, contract.policy_id, analyzer)
            self._open[generation.name] = view
        return view

    def current(self) -> tuple[str, ...]:
        """Names of the views that are whole and follow their shards, sorted: serving one needs no load."""
        return tuple(sorted(name for name, view in self._open.items() if view.loaded and view.snapshot.whole))

    async def keep(self, names: Collection[str]) -> None:
        """Drop all views but these; queries that hold a snapshot of a dropped one go on."""
        for name in [name for name in self._open if name not in names]:
            await self._open.pop(name).close()

    async def load(self, generation: Generation, heads: Heads) -> GenerationView:
        """The generation's view, brought up to these heads; raises as opening and following do."""
        view = self.open(generation)
        await view.at(heads)
        return view
