"""How commits, heads and manifests look in Redis: what is sent to the scripts and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from tessera.errors import CorruptionError, TesseraError
from tessera.store import rules
from tessera.store.base import (
    Commit,
    GenerationDelta,
    Head,
    Manifest,
    SegmentMeta,
    ShardId,
    Standing,
    Tombstone,
)
from tessera.store.keys import GRACE_S, ShardKeys
from tessera.store.scripts import Argument

HEAD_FIELDS = ("format", "fence", "seq", "applied", "record_digest", "epoch", "live", "standings")
"""Fields of the head's hash, in the order that the scripts return; ``trimmed:<generation>`` come on top."""


def encode_live(names: Iterable[str]) -> bytes:
    """Generations as the head stores them: JSON, sorted, so that equal sets are equal bytes."""
    return orjson.dumps(sorted(names))


def encode_standings(standings: Mapping[str, Standing]) -> bytes:
    """Standings as the head stores them: one JSON object by generation."""
    return orjson.dumps(standings, option=orjson.OPT_SORT_KEYS)


def encode_commit(commit: Commit, keys: ShardKeys) -> tuple[list[str], list[Argument]]:
    """Keys and arguments of ``commit.lua``, in the order that its head describes."""
    key_names = [keys.head, keys.documents, keys.parts, keys.deadletters, keys.outbox, keys.counters]
    args: list[Argument] = []
    generations = []
    for name, delta in sorted(commit.generations.items()):
        key_names += (keys.segments(name), keys.tombstones(name))
        generations.append(_plan_of(name, delta))
        args += _data_of(delta)
    for name in sorted(commit.standings or ()):
        key_names += (keys.segments(name), keys.tombstones(name))
    kept, expired, unlinked = (
        list(dict.fromkeys(ids)) for ids in (commit.keep, commit.expire, commit.unlink)
    )
    key_names += (keys.blob(blob) for blob in (*kept, *expired, *unlinked))
    plan = {
        "format": str(rules.FORMAT),
        "fence": commit.fence,
        "seq": commit.seq,
        "live": encode_live(commit.generations).decode(),
        "generations": generations,
        "grace_s": GRACE_S,
        "keep": len(kept),
        "expire": len(expired),
        "unlink": len(unlinked),
        "documents": _append_changes(args, commit.documents),
        "parts": _append_changes(args, commit.parts),
        "deadletters": len(commit.deadletters),
        "counters": len(commit.counters),
    }
    if commit.applied is not None:
        plan |= {"applied": commit.applied, "digest": commit.record_digest}
    if commit.standings is not None:
        plan["standings"] = _standings_plan(commit.standings)
    if commit.after is not None:
        plan |= {"after": commit.after}
    args += (item for pair in commit.deadletters.items() for item in pair)
    args += (item for pair in commit.counters.items() for item in pair)
    return key_names, [orjson.dumps(plan), *args]


def _standings_plan(standings: Mapping[str, Standing]) -> dict[str, Any]:
    return {
        "live": encode_live(standings).decode(),
        "json": encode_standings(standings).decode(),
        "of": [{"name": name} for name in sorted(standings)],
    }


def _plan_of(name: str, delta: GenerationDelta) -> dict[str, str | int]:
    plan: dict[str, str | int] = {
        "name": name,
        "next": delta.expected_next_tombstone,
        "add": len(delta.add),
        "drop": len(delta.drop),
        "tombstones": len(delta.tombstones),
    }
    if delta.trim_tombstones_below is not None:
        plan["trim"] = delta.trim_tombstones_below
    return plan


def _data_of(delta: GenerationDelta) -> list[Argument]:
    data: list[Argument] = []
    for meta in delta.add:
        data += (meta.id, meta.watermark, _encode_segment(meta))
    data += delta.drop
    data += (f"{tombstone.from_ordinal} {tombstone.key}" for tombstone in delta.tombstones)
    return data


def _append_changes(args: list[Argument], changes: Mapping[str, bytes | None]) -> tuple[int, int]:
    removed = [key for key, value in changes.items() if value is None]
    for key, value in changes.items():
        if value is not None:
            args += (key, value)
    args += removed
    return len(changes) - len(removed), len(removed)


def _encode_segment(meta: SegmentMeta) -> bytes:
    return orjson.dumps({"watermark": meta.watermark, "chunks": meta.chunks, "size_bytes": meta.size_bytes})


def decode_head(shard: ShardId, fields: Sequence[bytes | None]) -> Head | None:
    """The head from its fields, None where there is none; CorruptionError where it cannot be read."""
    version = fields[0]
    if version is None:
        return None
    if version != str(rules.FORMAT).encode():
        raise rules.other_format(shard, version.decode("utf-8", "replace"))
    try:
        fence, seq, applied, digest, epoch, live, standings = (field or b"" for field in fields[1:])
        head = Head(
            shard,
            int(fence),
            int(seq),
            int(applied),
            digest.decode(),
            int(epoch),
            tuple(orjson.loads(live)),
            {name: Standing(**value) for name, value in orjson.loads(standings).items()},
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise rules.damaged(shard, "head") from error
    if set(head.standings) != set(head.live):
        raise rules.damaged(shard, "head, whose standings are not those of its live generations,")
    return head


def decode_manifest(shard: ShardId, head: Head, reply: Sequence[Any]) -> Manifest:
    """The manifest from what follows the head in the reply of ``manifest.lua``."""
    base, segments, tombstones = reply
    try:
        metas = [
            SegmentMeta(segment.decode(), **orjson.loads(meta))
            for segment, meta in zip(segments[::2], segments[1::2], strict=True)
        ]
        dead = tuple(_decode_tombstone(item) for item in tombstones)
    except (ValueError, TypeError) as error:
        raise rules.damaged(shard, "manifest") from error
    return Manifest(head, {meta.id: meta for meta in metas}, base, dead)


def _decode_tombstone(item: bytes) -> Tombstone:
    ordinal, _, key = item.decode().partition(" ")
    return Tombstone(key, int(ordinal))


def decode_control(key: str, fields: Sequence[bytes | None]) -> tuple[int, bytes | None]:
    """Version and registry from their fields, (0, None) where there are none."""
    version, registry = fields
    if version is None and registry is None:
        return 0, None
    try:
        return int(version or b""), registry
    except ValueError as error:
        raise rules.damaged(None, f"field version of key {key}") from error


def refusal(
    shard: ShardId | None, reply: Sequence[Any], commit: Commit | None = None
) -> TesseraError | ValueError:
    """The error that a script's refusal stands for; a ValueError is a fault of the caller.

    ``shard`` is None for a script on keys of no shard.
    """
    status = reply[0].decode()
    details = [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in reply[1:]]
    if commit is not None and status in _REFUSED_COMMITS:
        return _REFUSED_COMMITS[status](commit, *details)
    if status in _REFUSED_SHARDS:
        return _REFUSED_SHARDS[status](shard, *details)
    return CorruptionError(
        f"{shard or 'store'}: the script's answer {status} {details} is unknown: do versions differ?"
    )


_REFUSED_SHARDS: Mapping[str, Callable[..., TesseraError]] = {
    "FENCED": rules.fenced,
    "FENCE_LOST": rules.fence_lost,
    "LIVE": rules.still_live,
    "UNKNOWN": rules.unknown_shard,
    "FORMAT": rules.other_format,
    "DAMAGED": lambda shard, key, field: rules.damaged(shard, f"field {field} of key {key}"),
    "TYPE": rules.wrong_type,
}
"""What may refuse a commit too: these are looked up second."""

_REFUSED_COMMITS: Mapping[str, Callable[..., TesseraError | ValueError]] = {
    "ADOPTION": lambda commit, live: rules.adoption_not_alone(
        commit.shard, orjson.loads(live), commit.standings
    ),
    "REMOVED": lambda commit, generation: rules.removed(commit.shard, generation),
    "LEFT_OVER": lambda commit, generation: rules.left_over(commit.shard, generation),
    "MOVED": lambda commit, held: rules.moved(commit.shard, held, commit.seq),
    "NOT_RISING": lambda commit, held: rules.not_rising(commit.shard, held, commit.applied),
    "ELSEWHERE": lambda commit, held: rules.elsewhere(commit.shard, held, commit.after),
    "GENERATIONS": lambda commit, live: rules.other_generations(
        commit.shard, orjson.loads(live), commit.generations
    ),
    "TOMBSTONES": lambda commit, *details: rules.other_tombstones(commit.shard, *details),
    "MISSING": lambda commit, *details: rules.segment_missing(commit.shard, *details),
    "TAKEN": lambda commit, *details: rules.segment_taken(commit.shard, *details),
    "TRIM": lambda commit, *details: rules.trim_unsafe(commit.shard, *details),
    "GONE": lambda commit, index: rules.blob_gone(commit.shard, list(dict.fromkeys(commit.keep))[index]),
    "COUNTER": lambda commit, counter: rules.counter_full(commit.shard, counter),
}
