"""How far the shards are with a generation, as their heads say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.store.base import Head, ShardId


@dataclass(frozen=True, slots=True)
class Progress:
    """A generation over all shards.

    ``documents`` of the ``of`` in the serving one are in it. ``complete`` of ``shards`` shards hold all of
    theirs, ``missing`` names the others. ``eta_s`` is how many seconds are left at the pace so
    far, None where no pace is known. ``notes`` say why a shard's backfill waits, by shard.
    """

    documents: int
    of: int
    complete: int
    shards: int
    missing: tuple[ShardId, ...]
    eta_s: float | None
    notes: dict[str, str]

    @property
    def done(self) -> bool:
        """Whether every shard holds all documents."""
        return self.complete == self.shards


def progress(
    shards: Sequence[ShardId], heads: Sequence[Head | None], name: str, serving: str, now_ms: int
) -> Progress:
    """The progress of generation ``name``. ``heads`` belong to ``shards``, in their order."""
    missing, notes, began = [], {}, []
    documents = of = 0
    for shard, head in zip(shards, heads, strict=True):
        standing = None if head is None else head.standings.get(name)
        served = None if head is None else head.standings.get(serving)
        of += served.documents if served else 0
        if standing is None:
            missing.append(shard)
            notes[str(shard)] = "no worker has claimed the shard" if head is None else "not adopted yet"
            continue
        documents += standing.documents
        if not standing.complete:
            missing.append(shard)
            began.append(standing.started_at_ms)
            if standing.note:
                notes[str(shard)] = standing.note
    eta_s = _eta_s(documents, of, min(began, default=0), now_ms) if began else None
    return Progress(documents, of, len(shards) - len(missing), len(shards), tuple(missing), eta_s, notes)


def _eta_s(documents: int, of: int, began_ms: int, now_ms: int) -> float | None:
    elapsed_s = (now_ms - began_ms) / 1000
    if not began_ms or not documents or elapsed_s <= 0:
        return None
    return max(0, of - documents) * elapsed_s / documents
