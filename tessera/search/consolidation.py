"""Fewer parts, so that a query makes few calls: merged in memory, in the background.

While parts are being merged, changes go on; each is also noted in the merge's journal and replayed on its
result, since a change acts on any part in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tessera.search.part import Change, Part, PartIndex, consolidated

SIZE_RATIO = 2
"""A part is merged with those smaller than it unless it is over twice their sum. So there are at most
log3(chunks) parts, and each chunk is copied about as often."""


def plan(parts: Sequence[Part]) -> list[Part]:
    """The parts to merge into one next, one alone to drop its dead chunks, or none."""
    smallest_first = sorted(parts, key=lambda part: part.live_chunks)
    chosen: list[Part] = []
    chunks = 0
    for part in smallest_first:
        if part.live_chunks > SIZE_RATIO * chunks and chosen:
            break
        chosen.append(part)
        chunks += part.live_chunks
    if len(chosen) > 1:
        return chosen
    rotten = [part for part in parts if part.live_chunks * 2 < part.segment.chunks]
    return rotten[:1]


class Consolidation:
    """One merge of parts under way."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.inputs: frozenset[PartIndex] = frozenset(part.index for part in parts)
        self._parts = parts
        self._journal: list[Change] = []

    def note(self, changes: Sequence[Change]) -> None:
        """Changes that were made to all parts since the merge began, in order."""
        self._journal.extend(changes)

    async def run(self) -> Part:
        """The merged part, as of when the merge began."""
        return await asyncio.to_thread(consolidated, self._parts)

    def finished(self, merged: Part, parts: Sequence[Part]) -> tuple[Part, ...]:
        """``parts`` with the merged one, brought up to date, in place of its inputs; greatest first."""
        for change in self._journal:
            merged = change(merged)
        return in_order([*(part for part in parts if part.index not in self.inputs), merged])


def in_order(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with a live chunk, greatest first: its k-th best score spares work in the others."""
    alive = [part for part in parts if part.live_chunks]
    return tuple(sorted(alive, key=lambda part: -part.live_chunks))
