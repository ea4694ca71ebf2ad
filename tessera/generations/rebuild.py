"""A rebuild from the log: for when Redis was lost, or can no longer be trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tessera.errors import RefusedError
from tessera.generations.operations import Operator
from tessera.generations.rehearsal import in_doubt, known_records, lost
from tessera.kafka.connection import Security
from tessera.kafka.probe import LogState, probe_log
from tessera.kafka.reader import open_reader
from tessera.kafka.security import security_of
from tessera.limits import Limits
from tessera.shards.deadletters import all_shards
from tessera.store.base import Head, ShardId

NAMED: Final = 5
"""Documents named of those that would be lost: enough to find their source, and a line stays a line."""


@dataclass(frozen=True, slots=True)
class ShardRebuild:
    """What a rebuild of one shard reads: offsets ``start`` to before ``end`` of its log.

    ``applied`` is the last offset applied now, ``documents`` how many live documents the shard holds.
    ``unreachable`` are the keys of those that the log does not give back as they are, and ``returning`` the
    keys of deleted ones that it would bring back.
    """

    shard: ShardId
    applied: int
    start: int
    end: int
    documents: int
    unreachable: tuple[str, ...] = ()
    returning: tuple[str, ...] = ()

    @property
    def explanation(self) -> str:
        """The same in words."""
        reads = f"reads {self.end - self.start:,} records, offsets {self.start} to {self.end - 1}"
        if self.start == self.end:
            reads = "its log is empty: nothing can be read"
        if self.start and self.start < self.end:
            reads += f" (those before are gone from the log); it holds {self.documents:,} documents"
        else:
            reads += f"; it holds {self.documents:,} documents"
        if self.unreachable:
            reads += f", and {len(self.unreachable):,} of them would be lost"
        return (
            f"{reads}, and {len(self.returning):,} deleted ones would come back" if self.returning else reads
        )

    def to_value(self) -> dict[str, Any]:
        """The plan as JSON values. Documents are counted, those to be lost are named."""
        return {
            "shard": str(self.shard),
            "applied": self.applied,
            "start": self.start,
            "end": self.end,
            "documents": self.documents,
            "unreachable": list(self.unreachable),
            "returning": list(self.returning),
            "explanation": self.explanation,
        }


def losses(plan: list[ShardRebuild]) -> int:
    """How many documents a rebuild by this plan loses or brings back against a delete."""
    return sum(len(each.unreachable) + len(each.returning) for each in plan)


def losses_in_words(plan: list[ShardRebuild]) -> str:
    """Which documents, by source, the first ones by name; empty where there are none."""
    told = []
    for keys, what in (
        ([key for each in plan for key in each.unreachable], "would be lost, for the log does not hold them"),
        ([key for each in plan for key in each.returning], "were deleted and would come back"),
    ):
        if not keys:
            continue
        sources = Counter(key.partition("/")[0] for key in keys)
        by_source = ", ".join(f"{count:,} of {source}" for source, count in sorted(sources.items()))
        named = ", ".join(sorted(keys)[:NAMED]) + (", …" if len(keys) > NAMED else "")
        told.append(f"{by_source} {what}: {named}")
    return "; ".join(told)


async def plan_rebuild(
    operator: Operator,
    on_progress: Callable[[ShardId], None] = lambda shard: None,
) -> list[ShardRebuild]:
    """What a rebuild would read and lose, per shard that was ever claimed.

    ``on_progress`` hears which shard is next. A log is read only where documents of its shard are in doubt.
    """
    store, broker, security = operator.store, operator.settings.broker, security_of(operator.settings)
    shards = await all_shards(store)
    found = zip(shards, await store.heads(shards), strict=True)
    claimed = {shard: head for shard, head in found if head is not None}
    if not claimed:
        return []
    applied = {shard: (head.applied, head.record_digest) for shard, head in claimed.items()}
    logs: Mapping[ShardId, LogState] = await probe_log(broker, applied, security=security)
    plan = []
    for shard, head in claimed.items():
        on_progress(shard)
        plan.append(await _plan_shard(operator, head, logs[shard], security))
    return plan


async def _plan_shard(operator: Operator, head: Head, log: LogState, security: Security) -> ShardRebuild:
    store, settings, shard = operator.store, operator.settings, head.shard
    records = known_records(await store.scan_documents(shard))
    live = sum(record is None or not record.deleted for record in records.values())
    doubtful = in_doubt(records, head, log)
    keys = sorted(doubtful)
    if doubtful and log.end > log.start:
        partitions = (await store.topics())[shard.topic]
        limits = Limits(max_document_bytes=settings.max_document_bytes)
        async with open_reader(settings.broker, [shard], security) as reader:
            batches = reader.batches(shard)
            keys = await lost(doubtful, batches, shard, partitions, settings.catalog, limits)
    elif doubtful:
        keys = [key for key, record in sorted(doubtful.items()) if record is None or not record.deleted]
    gone = [key for key in keys if (record := doubtful[key]) is None or not record.deleted]
    back = [key for key in keys if key not in gone]
    return ShardRebuild(shard, head.applied, log.start, log.end, live, tuple(gone), tuple(back))


async def rebuild(
    operator: Operator, plan: list[ShardRebuild], *, confirmed: bool, lose: int = 0
) -> list[Head]:
    """Empty every shard of the plan, so that its worker reads its log from the beginning; the new heads.

    Refused unless ``confirmed``: until they have been read again, documents are missing from every answer.
    Refused where more than ``lose`` documents would be lost. It is a step in the life of every written
    generation: candidates have to be verified and compared again.
    """
    lossy = losses(plan)
    if lossy > lose:
        raise RefusedError(
            "unreachable",
            losses_in_words(plan),
            f"publish their sources again first; or give --lose {lossy} if they may be missing until then",
        )
    documents = sum(each.documents for each in plan)
    if not confirmed:
        raise RefusedError(
            "unconfirmed",
            f"a rebuild empties {len(plan)} shards with {documents:,} documents, which answer nothing until "
            "they have been read again",
            "give --yes if that is what you want",
        )
    if not plan:
        return []
    registry = await operator.registry()
    note = f"{documents:,} documents in {len(plan)} shards are read again from the log"
    note += f", {lossy:,} of them lost or come back" if lossy else ""
    await operator.step(registry, "rebuild", registry.serving.name, note)
    return [await operator.store.clear(each.shard) for each in plan]
