"""What only a store on a server can meet: lost answers, lost data, full memory, foreign keys."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from backends import SHARD, RedisBackend
from servers import free_port, redis_server

from tessera.errors import CorruptionError, SequenceError, StagingError, UnavailableError
from tessera.store import scripts
from tessera.store.base import Commit, GenerationDelta, Head, SegmentMeta, ShardStore, Tombstone
from tessera.store.connect import connect

EMPTY = GenerationDelta(expected_next_tombstone=0)


def batch(head: Head, applied: int) -> Commit:
    """One record's commit."""
    documents: dict[str, bytes | None] = {"k": b"%d" % applied}
    return Commit(
        SHARD,
        head.fence,
        head.seq,
        applied=applied,
        generations={"g1": EMPTY},
        documents=documents,
        counters={"events": 1},
    )


class DroppingProxy:
    """Passes bytes on to a server until told to swallow the answers: then it hangs up instead."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.port = free_port()
        self.swallows = False
        self.swallowed = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, forward = await asyncio.open_connection("127.0.0.1", self._port)
        asked = asyncio.create_task(self._pass_on(reader, forward))
        try:
            while answer := await upstream.read(65536):
                if self.swallows:
                    self.swallowed += 1
                    return
                writer.write(answer)
        finally:
            asked.cancel()
            forward.close()
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, forward: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            forward.write(data)
        forward.close()


async def test_a_commit_whose_answer_is_lost_is_not_applied_twice(redis_backend: RedisBackend) -> None:
    proxy = DroppingProxy(redis_backend.nodes[0].port)
    async with proxy.running():
        store = connect(f"redis://127.0.0.1:{proxy.port}", redis_backend.namespace)
        try:
            head = await store.claim(SHARD, ["g1"])
            commit = batch(head, 7)
            await store.commit(commit)
            commit = batch(await redis_backend.store.claim(SHARD, []), 8)
            proxy.swallows = True
            with pytest.raises(UnavailableError, match=f"127.0.0.1:{proxy.port} does not answer"):
                await store.commit(commit)
            assert proxy.swallowed == 1, "the client asked again by itself"
            proxy.swallows = False
            with pytest.raises(SequenceError, match="although its answer was lost"):
                await store.commit(commit)
        finally:
            await store.close()
    held = await redis_backend.store.head(SHARD)
    assert held is not None
    assert held.applied == 8
    assert await redis_backend.store.counters(SHARD) == {"events": 2}


async def test_a_server_restored_from_an_older_copy_refuses_the_writer_that_is_ahead(tmp_path: Path) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    live.mkdir()
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(live, *durable) as server:
        store = connect(server.url)
        head = await store.commit(batch(await store.claim(SHARD, ["g1"]), 0))
        shutil.copytree(live, copy)
        head = await store.commit(batch(head, 1))
        await store.close()
    with redis_server(copy, *durable) as server:
        store = connect(server.url)
        with pytest.raises(SequenceError, match="at sequence 1, the commit expects 2"):
            await store.commit(batch(head, 2))
        again = await store.claim(SHARD, ["g1"])
        assert again.applied == 0
        head = await store.commit(batch(await store.commit(batch(again, 1)), 2))
        assert await store.documents(SHARD, ["k"]) == [b"2"]
        assert await store.counters(SHARD) == {"events": 3}
        await store.close()


async def test_a_server_that_lost_a_claim_refuses_its_writer(
    redis_backend: RedisBackend,
) -> None:
    store = redis_backend.store
    await store.claim(SHARD, ["g1"])
    head = await store.claim(SHARD, ["g1"])
    redis_backend.node_of(SHARD).hset(redis_backend.keys.shard(SHARD).head, "fence", "1")
    with pytest.raises(SequenceError, match="older than ours"):
        await store.commit(batch(head, 0))


async def test_what_is_staged_or_replaced_lives_ten_minutes(redis_backend: RedisBackend) -> None:
    store, client = redis_backend.store, redis_backend.node_of(SHARD)
    key = redis_backend.keys.shard(SHARD).blob("b")
    await store.stage(SHARD, {"b": b"1"})
    assert 590 < client.ttl(key) <= 600
    client.expire(key, 5)
    await store.stage(SHARD, {"b": b"1"})
    assert 590 < client.ttl(key) <= 600
    head = await store.claim(SHARD, ["g1"])
    head = await store.commit(Commit(SHARD, head.fence, head.seq, keep=("b",)))
    assert client.ttl(key) == -1
    await store.commit(Commit(SHARD, head.fence, head.seq, expire=("b",)))
    assert 590 < client.ttl(key) <= 600


async def test_scripts_are_sent_again_to_a_server_that_forgot_them(redis_backend: RedisBackend) -> None:
    store = redis_backend.store
    head = await store.claim(SHARD, ["g1"])
    redis_backend.node_of(SHARD).script_flush()
    head = await store.commit(batch(head, 0))
    assert redis_backend.node_of(SHARD).script_exists(scripts.COMMIT.sha) == [True]
    assert (await store.commit(batch(head, 1))).applied == 1


@pytest.mark.parametrize(
    "name",
    ["head", "documents", "parts", "deadletters", "outbox", "counters", "segments", "tombstones", "blob"],
)
async def test_a_key_of_another_type_refuses_the_commit_and_names_the_key(
    redis_backend: RedisBackend, name: str
) -> None:
    store, keys = redis_backend.store, redis_backend.keys.shard(SHARD)
    head = await store.claim(SHARD, ["g1"])
    await store.stage(SHARD, {"b": b""})
    arguments = {"segments": ("g1",), "tombstones": ("g1",), "blob": ("b",)}.get(name)
    key = getattr(keys, name)(*arguments) if arguments else getattr(keys, name)
    client = redis_backend.node_of(SHARD)
    client.delete(key)
    client.sadd(key, "foreign")
    before = _types_and_contents(redis_backend)
    with pytest.raises(CorruptionError) as caught:
        await store.commit(
            Commit(SHARD, head.fence, head.seq, generations={"g1": EMPTY}, keep=("b",), documents={"k": b"v"})
        )
    assert key in str(caught.value)
    assert "holds a set" in str(caught.value)
    assert _types_and_contents(redis_backend) == before


def _types_and_contents(backend: RedisBackend) -> dict[bytes, bytes | None]:
    client = backend.node_of(SHARD)
    return {key: client.dump(key) for key in client.scan_iter(f"{backend.namespace}:*")}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "1", "stored in format 1, this build reads 2"),
        ("seq", "x", "field seq"),
        ("applied", "9007199254740993", "field applied"),
        ("trimmed:g1", "1.5", "field trimmed:g1"),
    ],
)
async def test_a_head_that_cannot_be_read_is_refused_not_guessed_at(
    redis_backend: RedisBackend, field: str, value: str, message: str
) -> None:
    store = redis_backend.store
    head = await store.claim(SHARD, ["g1"])
    redis_backend.node_of(SHARD).hset(redis_backend.keys.shard(SHARD).head, field, value)
    before = redis_backend.dump()
    with pytest.raises(CorruptionError, match=message):
        await store.commit(batch(head, 0))
    with pytest.raises(CorruptionError, match=message):
        await store.manifest(SHARD, "g1")
    assert redis_backend.dump() == before


async def test_values_that_something_else_wrote_are_corruption(redis_backend: RedisBackend) -> None:
    store, client = redis_backend.store, redis_backend.node_of(SHARD)
    keys = redis_backend.keys
    head = await store.claim(SHARD, ["g1"])
    client.hset(keys.shard(SHARD).segments("g1"), "s1", "[]")
    with pytest.raises(CorruptionError, match="manifest cannot be read"):
        await store.manifest(SHARD, "g1")
    client.hset(keys.shard(SHARD).counters, "events", "many")
    with pytest.raises(CorruptionError, match="counter events"):
        await store.commit(batch(head, 0))
    client.sadd(keys.release, "foreign")
    with pytest.raises(CorruptionError, match=f"^key {keys.release} holds a set"):
        await store.put_control(0, b"1", b"r1")
    assert await store.control() == (0, None)
    client.delete(keys.release)
    client.hset(keys.registry, "version", "1.5")
    with pytest.raises(CorruptionError, match=f"field version of key {keys.registry} cannot be read"):
        await store.control()
    with pytest.raises(CorruptionError, match="field version"):
        await store.put_control(0, b"1", b"r1")
    client.delete(keys.registry)
    client.set(keys.registry, "foreign")
    with pytest.raises(CorruptionError, match="another type"):
        await store.control()
    client.hset(keys.readers, "w1", "soon {}")
    with pytest.raises(CorruptionError, match=f"field w1 of key {keys.readers} cannot be read"):
        await store.readers()
    client.delete(keys.readers)
    client.set(keys.readers, "foreign")
    with pytest.raises(CorruptionError, match=f"{keys.readers} holds a string"):
        await store.announce("w1", b"", 1)
    client.set(keys.shard(SHARD).segments("g2"), "foreign")
    with pytest.raises(CorruptionError, match="another type"):
        await store.contract_step(SHARD, head.fence, "g2", 1)
    client.hset(keys.shard(SHARD).head, "standings", '{"g9": {}}')
    with pytest.raises(CorruptionError, match="standings are not those of its live generations"):
        await store.head(SHARD)
    client.hset(keys.shard(SHARD).head, "standings", '{"g1": {"extra": 1}}')
    with pytest.raises(CorruptionError, match="head cannot be read"):
        await store.head(SHARD)
    client.set(keys.shard(SHARD).outbox, "foreign")
    with pytest.raises(CorruptionError, match="holds a string"):
        await store.discard_deadletter(SHARD, "d")


async def test_numbers_up_to_the_greatest_exact_one_come_back_unrounded(redis_backend: RedisBackend) -> None:
    store = redis_backend.store
    head = await store.claim(SHARD, ["g1"])
    key = redis_backend.keys.shard(SHARD).head
    redis_backend.node_of(SHARD).hset(key, mapping={"seq": 2**53 - 3, "fence": 2**53 - 3})
    head = await store.claim(SHARD, ["g1"])
    assert head.fence == 2**53 - 2
    big = SegmentMeta("s", 0, 2**53 - 1, 2**53 - 1)
    dead = Tombstone("k", 2**53 - 1)
    head = await store.commit(
        Commit(
            SHARD,
            head.fence,
            head.seq,
            applied=2**53 - 1,
            generations={"g1": GenerationDelta(0, (big,), (), (dead,))},
        )
    )
    assert (head.seq, head.applied) == (2**53 - 2, 2**53 - 1)
    manifest = await store.manifest(SHARD, "g1")
    assert manifest is not None
    assert (manifest.segments["s"], manifest.tombstones) == (big, (dead,))


async def test_a_full_server_is_unavailable_and_a_commit_stays_whole(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory-policy", "noeviction") as server, server.client() as client:
        store = connect(server.url)
        head = await store.claim(SHARD, ["g1"])
        await store.stage(SHARD, {"b": b"1"})
        head = await store.commit(batch(head, 0))
        client.config_set("maxmemory", "1")
        with pytest.raises(UnavailableError, match="out of memory: raise maxmemory"):
            await store.stage(SHARD, {"c": b"1"})
        before = client.hgetall("tessera:{tessera.documents/3}:head")
        with pytest.raises(UnavailableError, match="out of memory"):
            await store.commit(batch(head, 1))
        assert client.hgetall("tessera:{tessera.documents/3}:head") == before
        assert await store.documents(SHARD, ["k"]) == [b"0"]
        assert await store.head(SHARD) == head
        client.config_set("maxmemory", "0")
        assert (await store.commit(batch(head, 1))).applied == 1
        await store.close()


async def test_a_server_that_drops_what_is_staged_is_named(redis_backend: RedisBackend) -> None:
    class Evicting(type(redis_backend.store)):  # type: ignore[misc]
        async def blobs(self, shard: object, ids: list[str]) -> list[bytes | None]:
            return [None for _ in ids]

    redis_backend.store.__class__ = Evicting
    await redis_backend.store.stage(SHARD, {"b": b"1"})
    with pytest.raises(StagingError, match="maxmemory-policy"):
        await redis_backend.store.stage(SHARD, {"b": b"1"})


async def test_a_replica_is_refused_as_unavailable(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--replicaof", "127.0.0.1", "1") as server:
        store = connect(server.url)
        with pytest.raises(UnavailableError, match=r"replica|primary"):
            await store.claim(SHARD, ["g1"])
        await store.close()


async def test_a_frozen_server_does_not_hold_its_callers_for_ever(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        store = connect(f"{server.url}?socket_timeout=0.2&socket_connect_timeout=0.2")
        head = await store.claim(SHARD, ["g1"])
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(UnavailableError, match="does not answer"):
                await store.commit(batch(head, 0))
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        await _committed_once(store, head)
        await store.close()


async def _committed_once(store: ShardStore, head: Head) -> None:
    """The commit whose answer timed out was or was not applied; sent again, it is applied exactly once."""
    try:
        await store.commit(batch(head, 0))
    except SequenceError:
        held = await store.head(SHARD)
        assert held is not None
        assert held.applied == 0
    assert await store.counters(SHARD) == {"events": 1}


async def test_a_store_goes_on_after_its_server_was_restarted(tmp_path: Path) -> None:
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(tmp_path, *durable) as server:
        port, store = server.port, connect(server.url)
        head = await store.commit(batch(await store.claim(SHARD, ["g1"]), 0))
    with pytest.raises(UnavailableError, match="check that the server runs, or give --redis"):
        await store.ping()
    with redis_server(tmp_path, *durable, port=port):
        assert await store.head(SHARD) == head
        assert (await store.commit(batch(head, 1))).applied == 1
        await store.close()
