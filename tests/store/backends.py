"""The stores under test, each with a view behind it."""

from __future__ import annotations

import copy
import uuid
from dataclasses import dataclass, field
from typing import Any

import redis
from servers import RedisServer

from tessera.store.base import ShardId, ShardStore
from tessera.store.connect import connect
from tessera.store.keys import Keys

SHARD = ShardId("tessera.documents", 3)


@dataclass
class Backend:
    """A store under test, and a view behind it."""

    store: ShardStore

    def another(self) -> ShardStore:
        """A second store on the same data, as another process would have it."""
        return self.store

    def dump(self) -> dict[str, Any]:
        """All that is stored, comparable; for blobs also whether they expire."""
        raise NotImplementedError

    def lose_blob(self, shard: ShardId, blob: str) -> None:
        """Let a blob's life end now."""
        raise NotImplementedError

    def expires(self, shard: ShardId, blob: str) -> bool:
        """Whether a blob that is there ends by itself."""
        raise NotImplementedError

    async def close(self) -> None:
        await self.store.close()


class MemoryBackend(Backend):
    def dump(self) -> dict[str, Any]:
        state = dict(vars(self.store))
        del state["_clock"]
        state["_shards"] = {shard: held for shard, held in state["_shards"].items() if held.head}
        return copy.deepcopy(state)

    def lose_blob(self, shard: ShardId, blob: str) -> None:
        del self.store._shards[shard].blobs[blob]  # type: ignore[attr-defined]

    def expires(self, shard: ShardId, blob: str) -> bool:
        return self.store._shards[shard].blobs[blob].expires_at is not None  # type: ignore[attr-defined]


@dataclass
class RedisBackend(Backend):
    url: str
    namespace: str
    nodes: tuple[RedisServer, ...]
    others: list[ShardStore] = field(default_factory=list)

    @property
    def keys(self) -> Keys:
        return Keys(self.namespace)

    def another(self) -> ShardStore:
        self.others.append(connect(self.url, self.namespace))
        return self.others[-1]

    def dump(self) -> dict[str, Any]:
        found = {}
        for node in self.nodes:
            with node.client() as client:
                for key in client.scan_iter(f"{self.namespace}:*"):
                    found[key.decode()] = (_content(client, key), client.pttl(key) >= 0)
        return found

    def lose_blob(self, shard: ShardId, blob: str) -> None:
        self.node_of(shard).delete(self.keys.shard(shard).blob(blob))

    def expires(self, shard: ShardId, blob: str) -> bool:
        left = int(self.node_of(shard).pttl(self.keys.shard(shard).blob(blob)))
        assert left != -2, f"blob {blob} is gone"
        return left >= 0

    def node_of(self, shard: ShardId) -> redis.Redis:
        """A plain client of the node that holds the shard."""
        key = self.keys.shard(shard).head
        for node in self.nodes:
            client = redis.Redis(port=node.port, protocol=2, single_connection_client=False)
            try:
                client.exists(key)
            except redis.exceptions.ResponseError:
                client.close()
                continue
            return client
        raise LookupError(f"no node holds {shard}")

    async def close(self) -> None:
        for store in (self.store, *self.others):
            await store.close()


def _content(client: redis.Redis, key: bytes) -> Any:
    match client.type(key):
        case b"hash":
            return client.hgetall(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"string":
            return client.get(key)
        case other:
            raise AssertionError(f"{key!r} is a {other!r}: the store writes none")


def redis_backend_of(url: str, nodes: tuple[RedisServer, ...]) -> RedisBackend:
    namespace = f"t{uuid.uuid4().hex[:12]}"
    return RedisBackend(connect(url, namespace), url, namespace, nodes)
