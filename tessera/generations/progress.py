"""How far the shards are with a generation, as their heads say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.store.base import Head, ShardId, Standing


@dataclass(frozen=True, slots=True)
class Progress:
    """A generation over all shards.

    ``documents`` of the ``of`` in the serving one are in it. ``complete`` of ``shards`` shards hold all of
    theirs, ``missing`` names the others. ``eta_s`` is how many seconds the slowest shard still takes at its
    pace so far, None where no pace is known. ``notes`` say why a shard's backfill waits, by shard.
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
    missing, notes, left_s = [], {}, []
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
            left_s.append(_left_s(standing, served.documents if served else 0, now_ms))
            if standing.note:
                notes[str(shard)] = standing.note
    eta_s = max((seconds for seconds in left_s if seconds is not None), default=None)
    return Progress(documents, of, len(shards) - len(missing), len(shards), tuple(missing), eta_s, notes)


def _left_s(standing: Standing, of: int, now_ms: int) -> float | None:
    """Seconds that a shard's backfill still takes at its pace so far; shards are filled side by side."""
    elapsed_s = (now_ms - standing.started_at_ms) / 1000
    if not standing.started_at_ms or not standing.documents or elapsed_s <= 0:
        return None
    return max(0, of - standing.documents) * elapsed_s / standing.documents
