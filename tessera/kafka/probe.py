"""Whether a partition's log still is the one that a shard has applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tessera.events.digest import record_digest
from tessera.kafka.connection import DEADLINE_S, NO_SECURITY, Security, reaching
from tessera.kafka.reader import Bounds, open_reader
from tessera.store.base import NO_OFFSET, ShardId

Verdict = Literal["continues", "starts_after", "gap", "foreign"]


@dataclass(frozen=True, slots=True)
class LogState:
    """A partition's log, seen from the last offset that was applied.

    The log holds offsets from ``start`` to before ``end``. ``digest`` is that of the record at the applied
    offset, None where nothing was applied or no such record is there. Verdicts:

    * ``continues``: the applied record is there, or nothing was applied and the log starts at 0;
    * ``starts_after``: retention removed exactly what was applied;
    * ``gap``: the log starts later than the record after the applied one: records were lost unread;
    * ``foreign``: another record is at the applied offset, or the log ends before it.
    """

    verdict: Verdict
    start: int
    end: int
    digest: str | None
    explanation: str


async def probe_log(
    bootstrap: str,
    applied: Mapping[ShardId, tuple[int, str]],
    *,
    timeout_s: float = DEADLINE_S,
    security: Security = NO_SECURITY,
) -> dict[ShardId, LogState]:
    """The state of each partition's log against (applied offset, digest of the record there).

    ``applied`` holds :data:`~tessera.store.base.NO_OFFSET` and an empty digest where nothing was applied.
    Raises :class:`~tessera.errors.PartitionCountError` where a partition does not exist, and
    :class:`~tessera.errors.UnavailableError` after ``timeout_s`` seconds at the latest.
    """
    async with (
        reaching(bootstrap, "comparing logs with what was applied", timeout_s),
        open_reader(bootstrap, applied, security) as reader,
    ):
        bounds = await reader.bounds()
        offsets = {
            shard: offset
            for shard, (offset, _) in applied.items()
            if bounds[shard].start <= offset < bounds[shard].end
        }
        records = await reader.records(offsets)
    digests = {shard: record_digest(record) for shard, record in records.items() if record is not None}
    return {
        shard: judge(bounds[shard], offset, expected, digests.get(shard))
        for shard, (offset, expected) in applied.items()
    }


def judge(bounds: Bounds, applied: int, expected: str, digest: str | None) -> LogState:
    """The verdict on a log with these bounds and, at offset ``applied``, a record with this digest."""

    def state(verdict: Verdict, explanation: str) -> LogState:
        return LogState(verdict, bounds.start, bounds.end, digest, explanation)

    following = applied + 1
    if bounds.start > following:
        return state(
            "gap", f"the log starts at {bounds.start}: {following} to {bounds.start - 1} were lost unread"
        )
    if applied == NO_OFFSET:
        return state("continues", "nothing was applied and the log starts at 0")
    if bounds.end < following:
        last = f"ends with offset {bounds.end - 1}" if bounds.end > bounds.start else "is empty"
        return state("foreign", f"the log {last}, and {applied} was applied")
    if bounds.start == following:
        return state("starts_after", f"the log starts at {following}, just after what was applied")
    if digest is None:
        return state("foreign", f"there is no record at {applied}, which was applied")
    if digest != expected:
        return state("foreign", f"the record at {applied} is not the one that was applied")
    return state("continues", f"the record at {applied} is the one that was applied")
