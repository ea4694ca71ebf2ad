"""Topic names, and which topic and partition a document's changes travel on."""

from __future__ import annotations

from typing import Final

from aiokafka.partitioner import murmur2

from tessera.events.change import SourceKind

DOCUMENTS: Final = "tessera.documents"
LOGS: Final = "tessera.logs"
DEADLETTER_TOPIC: Final = "tessera.deadletter"
METRICS: Final = "tessera.metrics"
CONTROL: Final = "tessera.control"

ONE_PARTITION: Final = (CONTROL,)
"""Topics whose records are in one order: that of the control log decides between operators."""

CHANGE_TOPICS: Final = (DOCUMENTS, LOGS)
"""The topics whose partitions feed shards."""

_TOPIC_OF_KIND: Final[dict[SourceKind, str]] = {"documents": DOCUMENTS, "devex": LOGS, "github": LOGS}


def topic_of(kind: SourceKind) -> str:
    """The change topic that sources of this kind travel on."""
    return _TOPIC_OF_KIND[kind]


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key among ``partitions`` (at least 1): Kafka's murmur2, as its Java client has it.

    Every producer must agree on it, or one document would have copies in two shards.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least 1 partition, not {partitions}")
    return (int(murmur2(key)) & 0x7FFFFFFF) % partitions
