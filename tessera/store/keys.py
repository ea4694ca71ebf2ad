"""The name of every Redis key, why it exists, and why the keys that expire do.

All keys of a shard carry the hash tag ``{<topic>/<partition>}``, so they lie in one slot of a Redis Cluster
and one script may touch them all; so do the registry, the release pointer and the leases with ``{control}``.
The namespace in front lets several installations share a server.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.store.base import ShardId

STAGING_S = 600
"""Life of a staged blob. Without it, what a worker staged before it died would stay for ever; much shorter,
and a worker that backs off while the server is busy would find its blobs gone before the commit."""

GRACE_S = 600
"""Life of a replaced blob. Without it a query that holds an older snapshot would miss texts and segments
that were merged away or replaced while it ran."""

DEFAULT_NAMESPACE = "tessera"

_CONTROL = "{control}"
"""Hash tag of what is one for all shards. No shard has it: theirs hold a ``/``."""


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """Names of the keys of one shard. None of them expires but blobs that are staged or replaced."""

    prefix: str

    @property
    def head(self) -> str:
        """Hash: fence, sequence, applied offset, epoch, live generations and how the shard stands with each;
        what every commit compares."""
        return f"{self.prefix}:head"

    @property
    def documents(self) -> str:
        """Hash, document key → record: which revision is held, where its text is."""
        return f"{self.prefix}:documents"

    @property
    def parts(self) -> str:
        """Hash, document key → state: documents that arrive in several records, not complete yet."""
        return f"{self.prefix}:parts"

    @property
    def deadletters(self) -> str:
        """Hash, id → description: records that could not be applied, until replayed or discarded."""
        return f"{self.prefix}:deadletters"

    @property
    def outbox(self) -> str:
        """List of dead-letter ids in order of arrival: those the broker does not have yet."""
        return f"{self.prefix}:outbox"

    @property
    def counters(self) -> str:
        """Hash, name → integer: counted in the commit itself, so a replay counts nothing twice."""
        return f"{self.prefix}:counters"

    def segments(self, generation: str) -> str:
        """Hash, segment id → meta: the generation's manifest."""
        return f"{self.prefix}:segments:{generation}"

    def tombstones(self, generation: str) -> str:
        """List of tombstones not trimmed; the head's field ``trimmed:<generation>`` numbers the first."""
        return f"{self.prefix}:tombstones:{generation}"

    def blob(self, blob: str) -> str:
        """String: immutable bytes. Expires after STAGING_S until a commit keeps it, GRACE_S once replaced."""
        return f"{self.prefix}:blob:{blob}"


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of all keys under one namespace; ValueError where the namespace could break hash tags."""

    namespace: str = DEFAULT_NAMESPACE

    def __post_init__(self) -> None:
        if not self.namespace or set(self.namespace) & set("{}"):
            raise ValueError(f"a namespace must not be empty or hold braces, got {self.namespace!r}")

    def shard(self, shard: ShardId) -> ShardKeys:
        """Names of one shard's keys; ValueError where the topic holds braces."""
        if set(shard.topic) & set("{}"):
            raise ValueError(f"a topic's name must not hold braces, got {shard.topic!r}")
        return ShardKeys(f"{self.namespace}:{{{shard}}}")

    @property
    def topics(self) -> str:
        """Hash, topic → partition count: another count would move keys to other shards, so it is refused."""
        return f"{self.namespace}:topics"

    @property
    def registry(self) -> str:
        """Hash of the registry's bytes and its version, which every change of it compares."""
        return f"{self.namespace}:{_CONTROL}:registry"

    @property
    def release(self) -> str:
        """String: the release that queries use. One key, so that one write moves all queries at once; in the
        registry's slot, so that one script moves both."""
        return f"{self.namespace}:{_CONTROL}:release"

    @property
    def readers(self) -> str:
        """Hash, searcher → until when its lease runs, and the lease. Expires with the last of them: otherwise
        searchers that are gone would be listed until another one announces itself."""
        return f"{self.namespace}:{_CONTROL}:readers"
