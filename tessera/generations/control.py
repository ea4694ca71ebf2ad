"""The control log: its order decides which step of a generation's life happens.

A step is first a record on ``tessera.control``, made for one version of the registry. Whoever reads the log
in order comes to the same registries: a record moves the registry where it was made for the version that
stands then, and where the step is allowed; else it is void. So of two operators exactly one wins, and a Redis
that lost its last second is healed by reading the log again from the record that made the version it still
has. A log that does not hold that record (an embedded broker forgets at each start) is behind it as a whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tessera.errors import PartitionCountError, RefusedError, UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.topics import CONTROL
from tessera.failpoints import failpoint
from tessera.generations.bootstrap import read_registry
from tessera.generations.moments import shown
from tessera.generations.record import ControlRecord
from tessera.generations.registry import Registry
from tessera.generations.transitions import apply
from tessera.kafka.admin import ensure_topics
from tessera.kafka.connection import NO_SECURITY, Security, reaching
from tessera.kafka.publisher import Publisher
from tessera.kafka.reader import open_reader
from tessera.store.base import ShardId, ShardStore

logger = logging.getLogger(__name__)

CONTROL_SHARD = ShardId(CONTROL, 0)

READS = 20
READ_PAUSE_S = 0.1
"""How long a record that the broker has acknowledged may stay invisible to a reader."""


class Log(Protocol):
    """An ordered log of values that are never lost once they are appended."""

    async def append(self, key: bytes, value: bytes) -> None:
        """Append one value; returns once all replicas have it."""
        ...

    async def read(self) -> Sequence[bytes | None]:
        """All values, in order."""
        ...


class KafkaLog:
    """The topic ``tessera.control`` of a broker, made where it is not there yet."""

    def __init__(self, bootstrap: str, security: Security = NO_SECURITY) -> None:
        self._bootstrap = bootstrap
        self._security = security

    async def append(self, key: bytes, value: bytes) -> None:
        """Append with acks=all. Raises PartitionCountError where the topic has more partitions than one."""
        counts = {CONTROL: 1}
        async with Publisher(self._bootstrap, SourceCatalog(), counts, security=self._security) as publisher:
            await publisher.publish_record(CONTROL, key, value)

    async def read(self) -> Sequence[bytes | None]:
        """All values; a topic that is not there is made, and has none."""
        try:
            return await self._values()
        except PartitionCountError:
            await ensure_topics(self._bootstrap, 1, topics=(CONTROL,), security=self._security)
            return await self._values()

    async def _values(self) -> Sequence[bytes | None]:
        async with (
            reaching(self._bootstrap, "reading the control log"),
            open_reader(self._bootstrap, [CONTROL_SHARD], self._security) as reader,
        ):
            return [record.value for record in await reader.all_records(CONTROL_SHARD)]


@dataclass(slots=True)
class Folded:
    """What the log makes of a registry.

    ``registries`` are the versions it goes through, the first one after the one it began with. ``applied``
    holds the record that made each, by the version it was made for; ``refused`` why others are void, by id.
    """

    registry: Registry
    registries: list[Registry] = field(default_factory=list)
    applied: dict[int, ControlRecord] = field(default_factory=dict)
    refused: dict[str, RefusedError] = field(default_factory=dict)


def fold(registry: Registry, records: Iterable[ControlRecord]) -> Folded:
    """Apply the records in their order, those that the registry already holds left out.

    A record that a broker without idempotent producers stored twice is void the second time.
    """
    ordered = list(records)
    known = [index for index, record in enumerate(ordered) if record.id == registry.record]
    folded = Folded(registry)
    for record in ordered[known[0] + 1 if known else 0 :]:
        try:
            folded.registry = apply(folded.registry, record)
        except RefusedError as error:
            folded.refused[record.id] = error
        else:
            folded.applied[record.expected] = record
            folded.registries.append(folded.registry)
    return folded


class ControlLog:
    """The control log of one installation, which ``namespace`` tells from others on the same broker."""

    def __init__(self, log: Log, namespace: str) -> None:
        self._log = log
        self._namespace = namespace

    async def reapply(self, store: ShardStore) -> Registry:
        """Bring the registry up to the log and return it. An empty log changes nothing.

        Raises SettingsError where nothing was set up yet, and :class:`~tessera.errors.UnavailableError`.
        """
        registry = await read_registry(store)
        folded = fold(registry, await self._records())
        if not folded.registries:
            return registry
        logger.info(
            "the registry was at version %d, the control log leads to %d",
            registry.version,
            folded.registry.version,
        )
        return await _settle(store, folded)

    async def submit(self, store: ShardStore, registry: Registry, record: ControlRecord) -> Registry:
        """Make the step and return the registry it led to. ``record`` was made for ``registry``.

        Raises :class:`~tessera.errors.RefusedError` where the step is not allowed, or where another one came
        first (reason ``superseded``): then nothing has changed. After
        :class:`~tessera.errors.UnavailableError` the step may have been made: the registry tells.
        """
        apply(registry, record)
        await self._log.append(record.generation.encode(), record.to_json(self._namespace))
        failpoint("control.published")
        folded = fold(registry, await self._up_to(record.id))
        won = folded.applied.get(record.expected)
        settled = await _settle(store, folded)
        failpoint("control.put")
        if won is None or won.id != record.id:
            raise _lost(record, won, folded)
        return settled

    async def _records(self) -> list[ControlRecord]:
        records = []
        for value in await self._log.read():
            try:
                namespace, record = ControlRecord.from_json(value or b"")
            except ValueError as error:
                logger.warning("a record on %s is ignored: %s", CONTROL, error)
                continue
            if namespace == self._namespace:
                records.append(record)
        return records

    async def _up_to(self, record_id: str) -> list[ControlRecord]:
        """The records up to the one just appended: what stands behind it cannot change its fate."""
        for _ in range(READS):
            records = await self._records()
            for index, record in enumerate(records):
                if record.id == record_id:
                    return records[: index + 1]
            await asyncio.sleep(READ_PAUSE_S)
        raise UnavailableError(
            f"the record just written to {CONTROL} cannot be read back; `tessera generation list` shows "
            "whether the step was made"
        )


async def _settle(store: ShardStore, folded: Folded) -> Registry:
    """Move the stored registry through the versions of the log; others may be doing the same."""
    for registry in folded.registries:
        await store.put_control(registry.version - 1, registry.to_json(), registry.release.to_json())
    stored = await read_registry(store)
    if stored.version < folded.registry.version:
        raise UnavailableError(
            f"the registry stands at version {stored.version}, the control log led to "
            f"{folded.registry.version}: Redis has lost data again; give the command again"
        )
    return folded.registry


def _lost(record: ControlRecord, won: ControlRecord | None, folded: Folded) -> RefusedError:
    if won is None:
        return folded.refused[record.id]
    return RefusedError(
        "superseded",
        f"{won.actor} came first: {won.action} of {won.generation!r} at {shown(won.at_ms)}",
        "look at `tessera generation list`, and give the command again where it still makes sense",
    )
