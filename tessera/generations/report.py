"""What verifying finds: per shard, per source, per document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tessera.generations.differences import DocumentDifference
from tessera.store.base import NO_FINGERPRINT, NO_OFFSET, Head, ShardId


@dataclass(frozen=True, slots=True)
class ShardParity:
    """One shard by one reading of its head; ``documents`` and ``fingerprint`` are the baseline's."""

    shard: str
    applied: int = NO_OFFSET
    documents: int = 0
    fingerprint: str = NO_FINGERPRINT
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationCounts:
    """What one generation holds of one source: chunks, and content ranges that no chunk holds."""

    chunks: int
    uncovered: int


@dataclass(frozen=True, slots=True)
class SourceComparison:
    """One source in both generations.

    ``parse_failures`` are undecodable ranges, the documents' own and so the same in both. ``split`` and
    ``joined`` count as in :class:`~tessera.generations.differences.DocumentDifference`, over all documents.
    """

    documents: int
    parse_failures: int
    baseline: GenerationCounts
    candidate: GenerationCounts
    split: int
    joined: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome: passed, or the reasons why not, with what was looked at.

    ``sampled`` documents were cut anew; ``moved`` ones were written to meanwhile and passed over.
    ``differences`` are those of the sample, and of documents that one generation leaves uncovered more than
    the other, as far as there are any.
    """

    candidate: str
    baseline: str
    passed: bool
    reasons: tuple[str, ...]
    shards: tuple[ShardParity, ...]
    sources: Mapping[str, SourceComparison]
    sampled: int
    moved: int
    seed: int
    differences: tuple[DocumentDifference, ...]

    def to_value(self) -> dict[str, Any]:
        """The report as JSON values; ranges are ``[start, end, start_line, end_line]``."""
        return asdict(self)


def shard_parity(shard: ShardId, head: Head | None, candidate: str, baseline: str) -> ShardParity:
    """What one reading of a shard's head proves of two generations. Pure."""
    if head is None:
        return ShardParity(str(shard), faults=(f"shard {shard}: no worker has claimed it; start one",))
    faults = []
    for name in (candidate, baseline):
        if name not in head.standings:
            faults.append(f"shard {shard}: {name} is not adopted yet; wait for its worker")
        elif not head.standings[name].complete:
            note = head.standings[name].note or "the backfill is under way"
            faults.append(f"shard {shard}: {name} is not complete yet ({note})")
    ours, theirs = head.standings.get(baseline), head.standings.get(candidate)
    if ours is None:
        return ShardParity(str(shard), head.applied, faults=tuple(faults))
    if theirs is not None and not faults:
        for name in ("documents", "fingerprint"):
            one, other = getattr(ours, name), getattr(theirs, name)
            if one != other:
                faults.append(
                    f"shard {shard} at offset {head.applied}: {name} are {other} in {candidate} and {one} in "
                    f"{baseline}; abandon {candidate} and create another"
                )
    return ShardParity(str(shard), head.applied, ours.documents, ours.fingerprint, tuple(faults))
