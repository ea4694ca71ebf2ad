"""What a searcher knows of one shard of one generation, and what a newer manifest changes in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessera.errors import CorruptionError
from tessera.store.base import Head, Manifest, SegmentMeta, Tombstone

OVERLAP = 64
"""Known tombstones read again with each manifest. A store can lose a claim together with the commits under
it, and the next claim then gets the same fence: only the tombstones show that others stand in their place.
One alone could be the same by chance."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """The shard as of one manifest; ``log`` holds tombstones, the first numbered ``log_base``."""

    head: Head
    segments: Mapping[str, SegmentMeta]
    log_base: int
    log: tuple[Tombstone, ...]

    @property
    def next_tombstone(self) -> int:
        """The number of the first tombstone that is not known yet."""
        return self.log_base + len(self.log)

    @property
    def overlap_from(self) -> int:
        """The number of the first of the last :data:`OVERLAP` known tombstones."""
        return max(self.next_tombstone - OVERLAP, self.log_base)

    def ask_from(self, head: Head) -> int:
        """The tombstone to read the next manifest from, so that :func:`next_state` can compare.

        The last few known ones; all of them once another writer may have begun from an older state.
        """
        same_writer = (head.fence, head.epoch) == (self.head.fence, self.head.epoch)
        return self.overlap_from if same_writer else self.log_base

    def tombstones_from(self, number: int) -> tuple[Tombstone, ...]:
        """The known tombstones numbered from ``number``, which is not below ``log_base``."""
        return self.log[number - self.log_base :]

    def trimmed(self) -> ShardState:
        """Without the tombstones that no segment needs any more, the last few excepted.

        A segment still to come is either new or made from those held, so its watermark is not below theirs.
        """
        needed = min((meta.watermark for meta in self.segments.values()), default=self.next_tombstone)
        base = max(self.log_base, min(needed, self.overlap_from))
        return replace(self, log_base=base, log=self.tombstones_from(base))


@dataclass(frozen=True, slots=True)
class ShardChange:
    """What leads to ``state``.

    ``gone`` are segments to forget and ``added`` segments to load, with the state's tombstones from their
    watermark on. ``tombstones`` are those to apply to what stays: no watermark of it is above them.
    """

    state: ShardState
    gone: frozenset[str] = frozenset()
    added: tuple[SegmentMeta, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()


def first_state(manifest: Manifest, forget: frozenset[str] = frozenset()) -> ShardChange:
    """The change from knowing nothing, or nothing but what is to be forgotten; read from tombstone 0.

    Raises :class:`~tessera.errors.CorruptionError` where tombstones are missing that a segment needs.
    """
    base = manifest.tombstone_base
    for name, meta in manifest.segments.items():
        if meta.watermark < base:
            raise CorruptionError(
                f"shard {manifest.head.shard}: segment {name} needs tombstones from {meta.watermark}, but "
                f"they begin at {base}, so deleted chunks would come back: rebuild the generation"
            )
    state = ShardState(manifest.head, dict(manifest.segments), base, tuple(manifest.tombstones))
    return ShardChange(state, forget, tuple(state.segments.values()))


def next_state(known: ShardState, manifest: Manifest) -> ShardChange | None:
    """The change to a newer manifest, read from ``known.ask_from``; None where it does not continue it.

    A store that lost its last writes went back, and then on with others: sequence and tombstone numbers are
    used twice, for different things. A number that fell, or anything known that reads differently now, shows
    it; the shard must then be read afresh. Tombstones below ``known.log_base`` need no comparison: they do
    not apply to any segment held, and one that they might apply to is not continued either.
    """
    head, segments = manifest.head, dict(manifest.segments)
    if head.seq < known.head.seq or (head.seq == known.head.seq and head != known.head):
        return None
    if any(known.segments.get(name, meta) != meta for name, meta in segments.items()):
        return None
    if head.fence != known.head.fence and any(
        meta.watermark < manifest.tombstone_base for meta in segments.values()
    ):
        return None
    log = _continued(known, manifest)
    if log is None or any(meta.watermark < log[0] for meta in segments.values()):
        return None
    state = ShardState(head, segments, *log)
    return ShardChange(
        state=state,
        gone=frozenset(known.segments) - frozenset(segments),
        added=tuple(meta for name, meta in segments.items() if name not in known.segments),
        tombstones=state.tombstones_from(max(known.next_tombstone, state.log_base)),
    )


def _continued(known: ShardState, manifest: Manifest) -> tuple[int, tuple[Tombstone, ...]] | None:
    """Base and tombstones of the known log with the manifest's joined on; None where they contradict.

    Where the store has trimmed past what is known, the log begins anew: no segment needs what is missing.
    """
    base, read = manifest.tombstone_base, tuple(manifest.tombstones)
    if manifest.next_tombstone < known.next_tombstone:
        return None
    if base > known.next_tombstone:
        return base, read
    seen = known.tombstones_from(base)
    if read[: len(seen)] != seen:
        return None
    return known.log_base, known.log + read[len(seen) :]
