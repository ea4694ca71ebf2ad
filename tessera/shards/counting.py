"""What a shard counts of its documents: how a change moves it, and all of it counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.documents.record import DocumentRecord, IndexedState
from tessera.shards.standings import moved
from tessera.store.base import GENERATION_COUNTERS, NO_FINGERPRINT, Head, Standing


@dataclass(frozen=True, slots=True)
class Recount:
    """Standings as a shard's readable records give them, and what to add to its counters to have theirs."""

    standings: Mapping[str, Standing]
    corrections: Counter[str]


def recount(head: Head, records: Mapping[str, DocumentRecord], counters: Mapping[str, int]) -> Recount:
    """Count all ``records`` of a shard anew: one that was counted can no longer be read, so that taking its
    part away is not possible. ``counters`` are the shard's now."""
    standings = {
        name: replace(standing, documents=0, fingerprint=NO_FINGERPRINT)
        for name, standing in head.standings.items()
    }
    counted: Counter[str] = Counter()
    for key, record in records.items():
        counted.update(difference(key.partition("/")[0], None, record, head.live))
        for name, standing in standings.items():
            standings[name] = moved(standing, name, key, None, record)
    kept = {name: value for name, value in counters.items() if _is_counted(name, head.live)}
    corrections = Counter({name: counted[name] - kept.get(name, 0) for name in counted.keys() | kept.keys()})
    return Recount(standings, Counter({name: amount for name, amount in corrections.items() if amount}))


def _is_counted(counter: str, generations: Sequence[str]) -> bool:
    """Whether :func:`difference` moves this counter."""
    kind, _, rest = counter.partition(":")
    if kind in GENERATION_COUNTERS:
        return rest.partition(":")[0] in generations
    return kind in ("documents", "tombstones", "parse_failures", "text_bytes") and bool(rest)


def difference(
    source: str, held: DocumentRecord | None, record: DocumentRecord, generations: Sequence[str]
) -> Counter[str]:
    """How one document's change moves the shard's counters: its own, and those of the live ``generations``.

    A record may still be marked as written in one that was given up, whose counters are gone.
    """
    counts: Counter[str] = Counter()
    for sign, side in ((-1, held), (1, record)):
        if side is None:
            continue
        counts[f"documents:{source}"] += 0 if side.deleted else sign
        counts[f"tombstones:{source}"] += sign if side.deleted else 0
        counts[f"parse_failures:{source}"] += sign * side.undecodable_count
        counts[f"text_bytes:{source}"] += sign * side.size_bytes
        for generation in generations:
            if generation in side.indexed:
                for what, amount in indexed_counts(side.indexed[generation]).items():
                    counts[f"{what}:{generation}:{source}"] += sign * amount
    return Counter({name: amount for name, amount in counts.items() if amount})


def indexed_counts(state: IndexedState) -> dict[str, int]:
    """What a document adds to its source's counters in one generation, by the name of the counter."""
    return {name: getattr(state, name) for name in GENERATION_COUNTERS}
