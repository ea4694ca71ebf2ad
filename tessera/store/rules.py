"""What every store asks of a commit, and how it says no.

Both stores call :func:`require_well_formed` before they look at the shard, and raise the errors built here
when the shard refuses: so a refusal reads the same whatever holds the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tessera.errors import CorruptionError, FencedError, SequenceError, StagingError
from tessera.store.base import (
    GENERATION_COUNTERS,
    NO_OFFSET,
    Commit,
    GenerationDelta,
    ShardId,
    Standing,
)
from tessera.store.keys import STAGING_S

MAX_INTEGER = 2**53 - 1
"""Numbers in Lua are doubles; beyond this they would be rounded and a compare-and-set could pass wrongly."""

MAX_LEASE_S = 3600
"""Longest life of a searcher's lease. One given for ever by mistake would block every cutover."""

FORMAT = 2
"""Version of what a shard's keys hold. A head with another one is refused, not guessed at."""

_FINGERPRINT = re.compile("[0-9a-f]{32}")

_REJOIN = "give the partition up, claim it again and continue from the head's applied offset"


def live_names(live: Iterable[str]) -> tuple[str, ...]:
    """Generation names, sorted, each once; ValueError where one cannot be a generation's name."""
    names = tuple(sorted(set(live)))
    for name in names:
        _generation(name)
    return names


def complete(live: Iterable[str]) -> dict[str, Standing]:
    """Standings in a shard without documents: all of them, none, are in every generation."""
    return {name: Standing(complete=True) for name in live}


def counters_of(generation: str) -> tuple[str, ...]:
    """What the names of a generation's counters begin with."""
    return tuple(f"{what}:{generation}:" for what in GENERATION_COUNTERS)


def require_fence(floor: int) -> None:
    """Raise ValueError where a fence cannot be at least ``floor``."""
    _integer("floor", floor)


def require_well_formed(commit: Commit) -> None:
    """Raise ValueError where the commit would be wrong on any shard: a fault of its caller, not a race."""
    _integer("fence", commit.fence)
    _integer("seq", commit.seq)
    if commit.after is not None:
        _integer("after", commit.after, least=-1)
    if commit.applied is not None:
        _integer("applied", commit.applied)
    elif commit.record_digest:
        raise ValueError("record_digest is given, applied is not: the digest is of the record at applied")
    for name, delta in commit.generations.items():
        _generation(name)
        _require_delta(name, delta)
    for name, standing in (commit.standings or {}).items():
        _generation(name)
        _require_standing(name, standing)
    _require_blobs(commit)
    _require_values("documents", commit.documents)
    _require_values("parts", commit.parts)
    _require_values("deadletters", commit.deadletters)
    if None in commit.deadletters.values():
        raise ValueError("deadletters: a commit adds dead letters; discard_deadletter removes one")
    for name, amount in commit.counters.items():
        _name("counter", name)
        _integer(f"counter {name}", amount, least=-MAX_INTEGER)


def require_step(fence: int, generation: str, limit: int) -> None:
    """Raise ValueError where a step of contraction would be wrong on any shard."""
    _integer("fence", fence)
    _generation(generation)
    _integer("limit", limit, least=1)


def require_control(expected: int, registry: bytes, release: bytes) -> None:
    """Raise ValueError where a registry cannot follow version ``expected``."""
    _integer("expected", expected, most=MAX_INTEGER - 1)
    _bytes("control", "registry", registry)
    _bytes("control", "release", release)


def require_lease(reader: str, lease: bytes, ttl_s: float) -> None:
    """Raise ValueError where an announcement is not well formed."""
    _name("reader", reader)
    _bytes("reader", reader, lease)
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 0 < ttl_s <= MAX_LEASE_S:
        raise ValueError(f"ttl_s must be above 0 and at most {MAX_LEASE_S}, got {ttl_s!r}")


def _require_standing(name: str, standing: Standing) -> None:
    _integer(f"{name}: adopted_at", standing.adopted_at, least=NO_OFFSET)
    _integer(f"{name}: documents", standing.documents)
    _integer(f"{name}: started_at_ms", standing.started_at_ms)
    if not isinstance(standing.complete, bool):
        raise ValueError(f"{name}: complete must be true or false, got {standing.complete!r}")
    if not isinstance(standing.fingerprint, str) or not _FINGERPRINT.fullmatch(standing.fingerprint):
        raise ValueError(f"{name}: fingerprint must be 32 lower hex digits, got {standing.fingerprint!r}")
    _text(f"{name}: note", standing.note)


def _require_delta(name: str, delta: GenerationDelta) -> None:
    _integer(f"{name}: expected_next_tombstone", delta.expected_next_tombstone)
    end = delta.expected_next_tombstone + len(delta.tombstones)
    for tombstone in delta.tombstones:
        _name(f"{name}: tombstone", tombstone.key)
        _integer(f"{name}: from_ordinal of {tombstone.key}", tombstone.from_ordinal)
    added = [segment.id for segment in delta.add]
    _distinct(f"{name}: segments to add and to drop", [*added, *delta.drop])
    for segment in delta.add:
        _integer(f"{name}: watermark of segment {segment.id}", segment.watermark, most=end)
        _integer(f"{name}: chunks of segment {segment.id}", segment.chunks)
        _integer(f"{name}: size_bytes of segment {segment.id}", segment.size_bytes)
    if delta.trim_tombstones_below is not None:
        _integer(f"{name}: trim_tombstones_below", delta.trim_tombstones_below, most=end)


def _require_blobs(commit: Commit) -> None:
    for blob in (*commit.keep, *commit.expire, *commit.unlink):
        _name("blob", blob)
    both = set(commit.keep) & {*commit.expire, *commit.unlink}
    if both:
        raise ValueError(f"blob {min(both)} is to be kept and to be removed by the same commit")


def _require_values(what: str, values: Mapping[str, bytes | None]) -> None:
    for key, value in values.items():
        _name(what, key)
        if value is not None:
            _bytes(what, key, value)


def _bytes(what: str, key: str, value: bytes) -> None:
    if not isinstance(value, bytes):
        raise ValueError(f"{what}: the value of {key} is {type(value).__name__}, not bytes")


def _generation(name: str) -> None:
    """Blobs and counters are named by generation, then / or :, so these in its name would mix generations."""
    _name("generation", name)
    if set(name) & set("/:"):
        raise ValueError(f"generation: a name must hold neither / nor :, got {name!r}")


def _name(what: str, name: str) -> None:
    if not name or not isinstance(name, str):
        raise ValueError(f"{what}: a name must be a string that is not empty, got {name!r}")
    _text(what, name)


def _text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{what} must be a string, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what}: {text!r} has no UTF-8 form: {error.reason}") from error


def _integer(what: str, value: int, least: int = 0, most: int = MAX_INTEGER) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} must be an integer, got {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be between {least} and {most}, got {value}")


def _distinct(what: str, names: Sequence[str]) -> None:
    for name in names:
        _name(what, name)
    if len(set(names)) != len(names):
        raise ValueError(f"{what}: {max(names, key=names.count)} is named twice")


def fenced(shard: ShardId, held: int, given: int) -> FencedError:
    """Another writer claimed the shard after this one."""
    return FencedError(
        f"shard {shard}: fence {given} was replaced by {held}; another worker owns the partition: "
        "drop the batch"
    )


def fence_lost(shard: ShardId, held: int, given: int) -> SequenceError:
    """The store forgot a claim: it lost its last writes."""
    return SequenceError(
        f"shard {shard}: the store holds fence {held}, older than ours, {given}: it lost data; {_REJOIN}"
    )


def unknown_shard(shard: ShardId) -> SequenceError:
    """There is no head: nothing was claimed, or all of it is lost."""
    return SequenceError(f"shard {shard}: the store holds no such shard; {_REJOIN}")


def moved(shard: ShardId, held: int, given: int) -> SequenceError:
    """The sequence differs: lost data, a race, or a commit whose answer never arrived."""
    return SequenceError(
        f"shard {shard}: the store is at sequence {held}, the commit expects {given} "
        f"(lost data, a race, or a commit that was applied although its answer was lost); {_REJOIN}"
    )


def elsewhere(shard: ShardId, held: int, after: int) -> SequenceError:
    """The batch does not begin where the shard stands: records between would be left out, or come twice."""
    return SequenceError(f"shard {shard}: offset {held} is applied, the commit follows {after}; {_REJOIN}")


def not_rising(shard: ShardId, held: int, given: int) -> SequenceError:
    """The commit's applied offset is not above the head's."""
    return SequenceError(f"shard {shard}: offset {held} is applied, the commit ends at {given}; {_REJOIN}")


def other_generations(shard: ShardId, live: Sequence[str], named: Iterable[str]) -> SequenceError:
    """The commit does not write the generations it must."""
    return SequenceError(
        f"shard {shard}: generations {_listed(live)} are live, the commit writes "
        f"{_listed(sorted(named))}; {_REJOIN}"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "(none)"


def adoption_not_alone(shard: ShardId, live: Sequence[str], given: Iterable[str]) -> ValueError:
    """A commit changes which generations are live and writes some too: a fault of its caller, not a race."""
    return ValueError(
        f"shard {shard}: the commit changes the live generations from {_listed(live)} to "
        f"{_listed(sorted(given))}: it must name no generations and no applied"
    )


def left_over(shard: ShardId, generation: str) -> SequenceError:
    """A generation to adopt was given up before, and not all of it is removed."""
    return SequenceError(
        f"shard {shard}, generation {generation}: it was given up and is not removed yet: contract it, "
        "and give the new one another name"
    )


def removed(shard: ShardId, generation: str) -> SequenceError:
    """A generation to adopt was removed from the shard, maybe before it had adopted it."""
    return SequenceError(
        f"shard {shard}, generation {generation}: it was removed, and what is removed is not adopted again: "
        "claim the shard again, and follow the registry as it is now"
    )


def still_live(shard: ShardId, generation: str) -> SequenceError:
    """A generation to remove is live."""
    return SequenceError(
        f"shard {shard}, generation {generation}: it is live: give it up by a commit before it is contracted"
    )


def claimed_while_cleared(shard: ShardId) -> FencedError:
    """A worker claimed the shard again and again while its blobs were listed."""
    return FencedError(
        f"shard {shard}: a worker claimed it while it was to be cleared, so nothing was removed: "
        "stop the shard's worker, then clear it again"
    )


def other_tombstones(shard: ShardId, generation: str, held: int, expected: int) -> SequenceError:
    """The next tombstone would get another number than the watermarks were computed from."""
    return SequenceError(
        f"shard {shard}, generation {generation}: the next tombstone is {held}, the commit expects "
        f"{expected}; {_REJOIN}"
    )


def segment_missing(shard: ShardId, generation: str, segment: str) -> SequenceError:
    """A segment to drop is not in the manifest."""
    return SequenceError(f"shard {shard}, generation {generation}: no segment {segment} to drop; {_REJOIN}")


def segment_taken(shard: ShardId, generation: str, segment: str) -> SequenceError:
    """A segment to add is in the manifest already; segments are immutable."""
    return SequenceError(
        f"shard {shard}, generation {generation}: segment {segment} is there already; {_REJOIN}"
    )


def trim_unsafe(shard: ShardId, generation: str, segment: str, below: int) -> SequenceError:
    """A segment still needs tombstones that the commit would trim: dead chunks would come back."""
    return SequenceError(
        f"shard {shard}, generation {generation}: segment {segment} has a watermark below {below}, "
        f"so tombstones below {below} still apply to it and cannot be trimmed; {_REJOIN}"
    )


def blob_gone(shard: ShardId, blob: str) -> StagingError:
    """A blob to keep is not there."""
    return StagingError(
        f"shard {shard}: staged blob {blob} is gone (expired, or never staged): stage it again"
    )


def blob_differs(shard: ShardId, blob: str) -> SequenceError:
    """The id of a blob is taken by other bytes; blobs are immutable."""
    return SequenceError(
        f"shard {shard}: blob {blob} holds other bytes, from another writer; a staged one is gone "
        f"within {STAGING_S // 60} minutes; {_REJOIN}"
    )


def counter_full(shard: ShardId, counter: str) -> CorruptionError:
    """A counter is no integer, or would pass the greatest exact one."""
    return CorruptionError(
        f"shard {shard}: counter {counter} is not an integer within ±{MAX_INTEGER} after this commit; "
        "set it to 0 in the store"
    )


def other_format(shard: ShardId, held: str) -> CorruptionError:
    """The shard was written by a build with another format."""
    return CorruptionError(
        f"shard {shard}: stored in format {held}, this build reads {FORMAT}: use the build that wrote it, "
        "or another namespace"
    )


def damaged(shard: ShardId | None, what: str) -> CorruptionError:
    """Stored values that cannot be read; ``shard`` is None for those of no shard."""
    return CorruptionError(
        f"{_in(shard)}{what} cannot be read; something else wrote to it: restore a backup or rebuild"
    )


def wrong_type(shard: ShardId | None, key: str, held: str, wanted: str) -> CorruptionError:
    """A key of ours holds another type of value; ``shard`` is None for a key of no shard."""
    return CorruptionError(
        f"{_in(shard)}key {key} holds a {held}, not a {wanted}; something else wrote to it: "
        "use another namespace"
    )


def _in(shard: ShardId | None) -> str:
    return f"shard {shard}: " if shard is not None else ""
