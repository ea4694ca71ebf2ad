"""The store in Redis: any Redis-compatible server from 6.2 on, without modules, or a Redis Cluster.

Every change of a shard is one Lua script on keys of one hash slot (``lua/``); big bytes never pass through
Lua, they are staged as plain string keys. The same code serves both clients of redis-py.

A commit whose answer is lost (UnavailableError) may have been applied. Sending it again is safe: an applied
one has moved the sequence, so it is refused with SequenceError and its counters are not added twice; the
writer then claims the shard again and continues from the head's applied offset.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tessera.errors import StagingError
from tessera.store import rules, scripts, wire
from tessera.store.base import Commit, Head, Manifest, ShardId, deadletter_blob, segment_blob
from tessera.store.failures import translated
from tessera.store.keys import DEFAULT_NAMESPACE, STAGING_S, Keys, ShardKeys
from tessera.store.scripts import Argument, Client, Script

_SCAN_COUNT = 1000
"""Records asked for by one HSCAN: a much greater number would block the server for other clients."""

_SLICE_BYTES = 8 * 2**20
"""Bytes staged by one pipeline: a larger batch is sent in several, so that no buffer holds all of it."""

_SLICE_BLOBS = 64
"""Blobs read or removed by one command: a server does nothing else while it answers one."""

_CLEARING_ROUNDS = 3
"""How often a shard that a worker claims while its blobs are listed is listed again."""

_STAGING_ROUNDS = 3
"""How often a blob that expires while it is being staged again is tried; a server that evicts staged
blobs at once would otherwise be asked for ever."""


class RedisStore:
    """A :class:`~tessera.store.base.ShardStore` on a Redis client.

    ``address`` names the server in errors and must hold no password. The client must return bytes.
    """

    def __init__(self, client: Client, address: str, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._client = client
        self._address = address
        self._keys = Keys(namespace)
        self._opening = asyncio.Lock()

    async def claim(self, shard: ShardId, live: Sequence[str], floor: int = 0) -> Head:
        """Take the fence; a new shard begins with ``live``, complete. Once more, it only raises the fence."""
        rules.require_fence(floor)
        names = rules.live_names(live)
        standings = wire.encode_standings(rules.complete(names))
        args = (str(rules.FORMAT), wire.encode_live(names), floor, standings)
        return self._head(shard, await self._run(scripts.CLAIM, [self._shard(shard).head], args))

    async def adopt_log(self, shard: ShardId) -> Head:
        """Begin a new log; SequenceError where the shard was never claimed."""
        reply = await self._run(scripts.ADOPT_LOG, [self._shard(shard).head], (str(rules.FORMAT),))
        return self._head(shard, reply)

    async def contract_step(self, shard: ShardId, fence: int, generation: str, limit: int) -> int:
        """Remove at most ``limit`` segments of a generation given up; return how many are left."""
        rules.require_step(fence, generation, limit)
        keys = self._shard(shard)
        held = [name.decode() for name in await self._ask("HKEYS", keys.segments(generation))]
        chosen = sorted(held)[:limit]
        names = [keys.head, keys.segments(generation), keys.tombstones(generation), keys.counters]
        names += (keys.blob(segment_blob(generation, segment)) for segment in chosen)
        counters = rules.counters_of(generation)
        args: list[Argument] = [str(rules.FORMAT), fence, generation, *counters, *chosen]
        return int(self._done(shard, await self._run(scripts.CONTRACT, names, args)))

    async def clear(self, shard: ShardId) -> Head:
        """Remove all but dead letters; see :meth:`~tessera.store.base.ShardStore.clear` for what is refused.

        Blobs are listed under a fence of its own, since nobody else can then keep one, and go last: where
        it dies on the way some are left, which the next call removes.
        """
        keys = self._shard(shard)
        for _ in range(_CLEARING_ROUNDS):
            if await self.head(shard) is None:
                raise rules.unknown_shard(shard)
            head = await self.claim(shard, ())
            blobs, manifests = await self._clearable(keys)
            names = [keys.head, *(keys.tombstones(name) for name in head.live)]
            names += (keys.documents, keys.parts, keys.counters, *manifests)
            standings = wire.encode_standings(rules.complete(head.live))
            args: list[Argument] = [str(rules.FORMAT), head.fence, standings, *head.live]
            reply = await self._run(scripts.CLEAR, names, args)
            if reply[0] != b"FENCED":
                cleared = self._head(shard, reply)
                await self._pipe([("UNLINK", *piece) for piece in _pieces(blobs)])
                return cleared
        raise rules.claimed_while_cleared(shard)

    async def _clearable(self, keys: ShardKeys) -> tuple[list[str], list[str]]:
        """Names of all blobs but those of dead letters, and of the manifests' keys of all generations."""
        blobs, kept = keys.blob(""), keys.blob(deadletter_blob(""))
        manifests = (keys.segments(""), keys.tombstones(""))
        async with self._client_open() as client:
            found = client.scan_iter(f"{_literal(keys.head.removesuffix('head'))}*", count=_SCAN_COUNT)
            names = sorted({name.decode() async for name in found})
        return (
            [name for name in names if name.startswith(blobs) and not name.startswith(kept)],
            [name for name in names if name.startswith(manifests)],
        )

    async def head(self, shard: ShardId) -> Head | None:
        """The head, or None where the shard was never claimed."""
        fields = await self._ask("HMGET", self._shard(shard).head, *wire.HEAD_FIELDS)
        return wire.decode_head(shard, fields)

    async def heads(self, shards: Sequence[ShardId]) -> list[Head | None]:
        """The heads, in the order asked for, in one round trip to each server."""
        replies = await self._pipe(
            [("HMGET", self._shard(shard).head, *wire.HEAD_FIELDS) for shard in shards]
        )
        return [wire.decode_head(shard, fields) for shard, fields in zip(shards, replies, strict=True)]

    async def documents(self, shard: ShardId, keys: Sequence[str]) -> list[bytes | None]:
        """Encoded records, None where there is none."""
        return await self._fields(self._shard(shard).documents, keys)

    async def scan_documents(self, shard: ShardId, prefix: str = "") -> list[tuple[str, bytes]]:
        """Records whose key starts with ``prefix``, in key order (not one moment's view)."""
        found: dict[str, bytes] = {}
        cursor = 0
        key, pattern = self._shard(shard).documents, f"{_literal(prefix)}*"
        while True:
            cursor, records = await self._ask("HSCAN", key, cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            found.update((name.decode(), record) for name, record in records.items())
            if cursor == 0:
                return sorted(found.items())

    async def parts(self, shard: ShardId, keys: Sequence[str]) -> list[bytes | None]:
        """Encoded states of documents that arrive in several records."""
        return await self._fields(self._shard(shard).parts, keys)

    async def manifest(self, shard: ShardId, generation: str, from_tombstone: int = 0) -> Manifest | None:
        """Head, segments and tombstones at one moment; None where the shard does not hold the generation."""
        if from_tombstone < 0:
            raise ValueError(f"from_tombstone must not be negative, got {from_tombstone}")
        keys = self._shard(shard)
        names = [keys.head, keys.segments(generation), keys.tombstones(generation)]
        reply = await self._run(scripts.MANIFEST, names, (str(rules.FORMAT), generation, from_tombstone))
        if reply[0] in (b"UNKNOWN", b"NONE"):
            return None
        split = 1 + len(wire.HEAD_FIELDS)
        return wire.decode_manifest(shard, self._head(shard, reply[:split]), reply[split:])

    async def stage(self, shard: ShardId, blobs: Mapping[str, bytes]) -> None:
        """Write blobs with an expiry; those kept already stay as they are.

        SequenceError where an id is taken by other bytes: another writer has used it.
        """
        for piece in _slices(blobs):
            await self._stage(shard, piece)

    async def _stage(self, shard: ShardId, blobs: Mapping[str, bytes]) -> None:
        missing = dict(blobs)
        for _ in range(_STAGING_ROUNDS):
            taken = await self._set_new(shard, missing)
            if not taken:
                return
            held = dict(zip(taken, await self.blobs(shard, taken), strict=True))
            for name, content in held.items():
                if content is not None and content != blobs[name]:
                    raise rules.blob_differs(shard, name)
            names = [self._shard(shard).blob(name) for name in taken]
            alive = await self._run(scripts.REFRESH, names, (STAGING_S,))
            missing = {
                name: blobs[name]
                for name, kept in zip(taken, alive, strict=True)
                if not kept or held[name] is None
            }
            if not missing:
                return
        raise StagingError(
            f"shard {shard}: {self._address} drops staged blob {min(missing)} as soon as it is written: "
            "set maxmemory-policy to noeviction, or raise maxmemory"
        )

    async def _set_new(self, shard: ShardId, blobs: Mapping[str, bytes]) -> list[str]:
        keys = self._shard(shard)
        replies = await self._pipe(
            [("SET", keys.blob(name), content, "EX", STAGING_S, "NX") for name, content in blobs.items()]
        )
        return [name for name, written in zip(blobs, replies, strict=True) if not written]

    async def blobs(self, shard: ShardId, ids: Sequence[str]) -> list[bytes | None]:
        """The bytes, None where a blob is gone, in one round trip."""
        names = [self._shard(shard).blob(name) for name in ids]
        replies = await self._pipe([("MGET", *piece) for piece in _pieces(names)])
        return [content for reply in replies for content in reply]

    async def commit(self, commit: Commit) -> Head:
        """Apply the commit as a whole; see :class:`~tessera.store.base.Commit` for what is refused."""
        rules.require_well_formed(commit)
        names, args = wire.encode_commit(commit, self._shard(commit.shard))
        reply = await self._run(scripts.COMMIT, names, args)
        if reply[0] != b"OK":
            raise wire.refusal(commit.shard, reply, commit)
        return self._head(commit.shard, reply)

    async def counters(self, shard: ShardId) -> dict[str, int]:
        """The counters."""
        return _integers(await self._ask("HGETALL", self._shard(shard).counters))

    async def outbox(self, shard: ShardId) -> list[str]:
        """Ids of dead letters to deliver, oldest first."""
        return [name.decode() for name in await self._ask("LRANGE", self._shard(shard).outbox, 0, -1)]

    async def outbox_done(self, shard: ShardId, ids: Sequence[str]) -> None:
        """Take delivered dead letters out of the outbox."""
        await self._pipe([("LREM", self._shard(shard).outbox, 0, name) for name in ids])

    async def deadletters(self, shard: ShardId) -> dict[str, bytes]:
        """All dead letters."""
        return _decoded(await self._ask("HGETALL", self._shard(shard).deadletters))

    async def discard_deadletter(self, shard: ShardId, deadletter_id: str) -> bool:
        """Remove one dead letter, its bytes and its place in the outbox."""
        keys = self._shard(shard)
        names = [keys.deadletters, keys.outbox, keys.blob(deadletter_blob(deadletter_id))]
        return bool(self._done(shard, await self._run(scripts.DISCARD, names, (deadletter_id,))))

    async def topics(self) -> dict[str, int]:
        """Recorded partition counts."""
        return _integers(await self._ask("HGETALL", self._keys.topics))

    async def record_topic(self, topic: str, partitions: int) -> int:
        """Record a count if none is, and return the recorded one."""
        key = self._keys.topics
        _, recorded = await self._pipe([("HSETNX", key, topic, partitions), ("HGET", key, topic)])
        return int(recorded)

    async def control(self) -> tuple[int, bytes | None]:
        """Version and registry, read at one moment."""
        key = self._keys.registry
        return wire.decode_control(key, await self._ask("HMGET", key, "version", "registry"))

    async def put_control(self, expected: int, registry: bytes, release: bytes) -> bool:
        """Write registry and release pointer if the version is ``expected``."""
        rules.require_control(expected, registry, release)
        names = [self._keys.registry, self._keys.release]
        reply = await self._run(scripts.PUT_CONTROL, names, (expected, registry, release))
        return bool(self._done(None, reply))

    async def release(self) -> bytes | None:
        """The release pointer."""
        release: bytes | None = await self._ask("GET", self._keys.release)
        return release

    async def now_ms(self) -> int:
        """The clock of the server that keeps the release."""
        seconds, microseconds = await self._run(scripts.CLOCK, [self._keys.release], ())
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def announce(self, reader: str, lease: bytes, ttl_s: float) -> None:
        """Keep a searcher's lease for ``ttl_s`` seconds of the server's clock."""
        rules.require_lease(reader, lease, ttl_s)
        await self._leases(reader, lease, math.ceil(ttl_s * 1000))

    async def readers(self) -> dict[str, bytes]:
        """The leases that have not run out."""
        return await self._leases()

    async def _leases(self, *announcement: Argument) -> dict[str, bytes]:
        reply = await self._run(scripts.LEASES, [self._keys.readers], announcement)
        if reply[0] != b"OK":
            raise wire.refusal(None, reply)
        return _decoded(dict(zip(reply[1::2], reply[2::2], strict=True)))

    async def ping(self) -> None:
        """Raise UnavailableError where the server does not answer, SettingsError where it refuses access."""
        await self._ask("PING")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _shard(self, shard: ShardId) -> ShardKeys:
        return self._keys.shard(shard)

    @staticmethod
    def _head(shard: ShardId, reply: Sequence[Any]) -> Head:
        head = wire.decode_head(shard, reply[1:]) if reply[0] == b"OK" else None
        if head is None:
            raise wire.refusal(shard, reply)
        return head

    @staticmethod
    def _done(shard: ShardId | None, reply: Sequence[Any]) -> Any:
        if reply[0] != b"OK":
            raise wire.refusal(shard, reply)
        return reply[1]

    async def _fields(self, key: str, fields: Sequence[str]) -> list[bytes | None]:
        if not fields:
            return []
        values: list[bytes | None] = await self._ask("HMGET", key, *fields)
        return values

    @asynccontextmanager
    async def _client_open(self) -> AsyncIterator[Client]:
        """The client, ready for use.

        A cluster's client that several tasks make look at the layout at once closes connections that one of
        them is using: so one task makes it look, and the others wait.
        """
        with translated(self._address):
            async with self._opening:
                await self._client.initialize()
            yield self._client

    async def _ask(self, *command: Argument) -> Any:
        async with self._client_open() as client:
            return await client.execute_command(*command)

    async def _pipe(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        if not commands:
            return []
        async with self._client_open() as client:
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return list(await pipeline.execute())

    async def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        async with self._client_open() as client:
            return await script.run(client, keys, args)


def _slices(blobs: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    piece: dict[str, bytes] = {}
    size = 0
    for name, content in blobs.items():
        if piece and size + len(content) > _SLICE_BYTES:
            yield piece
            piece, size = {}, 0
        piece[name] = content
        size += len(content)
    if piece:
        yield piece


def _pieces(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + _SLICE_BLOBS] for start in range(0, len(names), _SLICE_BLOBS)]


def _literal(prefix: str) -> str:
    """A glob pattern that matches ``prefix`` and nothing else."""
    return "".join(f"\\{char}" if char in "*?[]^\\" else char for char in prefix)


def _decoded(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in fields.items()}


def _integers(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    # A status reads tens of thousands: mapped, they take two thirds of a comprehension's time.
    return dict(zip(map(bytes.decode, fields), map(int, fields.values()), strict=True))
