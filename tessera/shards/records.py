"""Records of a batch: decoded into changes, or poison with a reason."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from tessera.documents.draft import Stamp
from tessera.errors import EventError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Change, Part, Record
from tessera.events.decoding import check_partition, check_routing, decode_record
from tessera.limits import Limits
from tessera.store.base import ShardId

REPLAY_HEADER = "tessera-replay"
"""Carried by a replayed dead letter: JSON with its first ``log_revision`` and ``offset``."""


class Arrival(NamedTuple):
    """A change in the order of its arrival."""

    record: Record
    key: str
    stamp: Stamp
    change: Change


class PartArrival(NamedTuple):
    """One part of a large event in the order of its arrival."""

    record: Record
    key: str
    stamp: Stamp
    part: Part


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that cannot be applied. ``value`` is what is kept of it (None: a null value)."""

    record: Record
    stamp: Stamp
    reason: str
    message: str
    field: str
    value: bytes | None
    suffix: str = ""

    @classmethod
    def of(cls, record: Record, stamp: Stamp, error: EventError) -> Poison:
        """The record, refused for this error."""
        return cls(record, stamp, error.reason, str(error), error.field, record.value)

    def deadletter_id(self) -> str:
        """``<topic>:<partition>:<epoch>:<offset>``, unique and rising in order of arrival."""
        record = self.record
        return f"{record.topic}:{record.partition}:{self.stamp.epoch}:{record.offset}{self.suffix}"

    def describe(self) -> bytes:
        """The stored description; the value is a blob beside it."""
        record = self.record
        return orjson.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "epoch": self.stamp.epoch,
                "offset": record.offset,
                "log_revision": self.stamp.log_revision,
                "reason": self.reason,
                "field": self.field,
                "message": self.message,
                "key_base64": None if record.key is None else b64encode(record.key).decode(),
                "headers": [[name, b64encode(value).decode()] for name, value in record.headers],
                "has_value": self.value is not None,
                "size_bytes": len(self.value or b""),
                "timestamp_ms": record.timestamp_ms,
            }
        )


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes a shard's records against what is declared of their sources."""

    shard: ShardId
    partitions: int
    catalog: SourceCatalog
    limits: Limits

    def decode(self, records: Sequence[Record], epoch: int) -> list[Arrival | PartArrival | Poison]:
        """Each record as a change, a part or poison, in order; never raises for what a record holds."""
        return [self._decode_one(record, epoch) for record in records]

    def _decode_one(self, record: Record, epoch: int) -> Arrival | PartArrival | Poison:
        stamp = Stamp(epoch, record.offset, record.timestamp_ms)
        try:
            stamp = stamp._replace(replayed_from=replayed_revision(record, stamp.log_revision))
            decoded = decode_record(record, self.limits.max_document_bytes)
            check_partition(record, self.partitions)
            key = (record.key or b"").decode()
            if isinstance(decoded, Part):
                return PartArrival(record, key, stamp, decoded)
            check_routing(decoded, self.catalog, self.shard.topic)
        except EventError as error:
            return Poison.of(record, stamp, error)
        return Arrival(record, key, stamp, decoded)


def replayed_revision(record: Record, own: int) -> int | None:
    """The log revision a replayed dead letter had at first, before its ``own``; None for any other record.

    Raises EventError (``invalid_replay``) where the header is not what a replay writes.
    """
    for name, value in record.headers:
        if name == REPLAY_HEADER:
            try:
                revision = orjson.loads(value)["log_revision"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                revision = None
            if type(revision) is not int or not 0 <= revision < own:
                raise EventError(
                    "invalid_replay",
                    f"header {REPLAY_HEADER} holds no log_revision: replay it again",
                    REPLAY_HEADER,
                )
            return revision
    return None
