"""What a query is held to, and whether that can answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import QueryError, UnavailableError
from tessera.releases import Release
from tessera.search.heads import Heads
from tessera.search.snapshot import Snapshot
from tessera.store.base import ShardId


@dataclass(frozen=True, slots=True)
class Pin:
    """What a query is held to from its first reading to its end; ``heads`` were read together with it."""

    release: Release
    generation: str
    heads: Heads
    stale_s: float | None = None

    @property
    def is_served(self) -> bool:
        """Whether it is the generation that the release serves."""
        return self.generation == self.release.generation


def require_answers(pin: Pin, snapshot: Snapshot) -> None:
    """Raise where the snapshot cannot answer for its generation.

    :class:`~tessera.errors.QueryError` for a generation asked for by name that is not whole,
    :class:`~tessera.errors.UnavailableError` for a served one that is not written.
    """
    if not pin.is_served:
        require_whole(pin.generation, snapshot.lacking)
    elif snapshot.absent:
        raise UnavailableError(
            f"release {pin.release.release} serves generation {pin.generation}, which is not written in "
            f"{_shards(snapshot.absent)}: ask again; if it stays, see "
            f"`tessera generation show {pin.generation}`"
        )


def require_whole(generation: str, lacking: Sequence[ShardId]) -> None:
    """Raise :class:`~tessera.errors.QueryError` where documents of a shard are lacking."""
    if lacking:
        raise QueryError(
            f"generation {generation!r} does not hold all documents of {_shards(lacking)} yet: wait for its "
            f"backfill, see `tessera generation show {generation}`",
            "generation",
        )


def _shards(shards: Sequence[ShardId]) -> str:
    """Names of shards for a message: some hundreds would hide what it says."""
    more = f" and {len(shards) - 3} more shards" if len(shards) > 3 else ""
    return ", ".join(map(str, shards[:3])) + more
