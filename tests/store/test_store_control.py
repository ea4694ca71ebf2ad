"""What every store promises of what is one for all shards: registry, release pointer, searchers' leases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from backends import Backend, RedisBackend

from tessera.store.memory import MemoryStore

ALL_BYTES = bytes(range(256))
DEADLINE_S = 10.0


async def test_there_is_no_registry_before_the_first(backend: Backend) -> None:
    assert await backend.store.control() == (0, None)
    assert await backend.store.release() is None


async def test_registry_and_release_move_together_from_the_version_expected(backend: Backend) -> None:
    store = backend.store
    assert await store.put_control(0, ALL_BYTES, b"r1")
    assert (await store.control(), await store.release()) == ((1, ALL_BYTES), b"r1")
    assert await store.put_control(1, b"", ALL_BYTES)
    assert (await store.control(), await store.release()) == ((2, b""), ALL_BYTES)


@pytest.mark.parametrize("expected", [0, 2, 3, 2**53 - 2])
async def test_another_version_than_the_one_expected_writes_nothing(backend: Backend, expected: int) -> None:
    store = backend.store
    assert await store.put_control(0, b"first", b"r1")
    before = backend.dump()
    assert not await store.put_control(expected, b"second", b"r2")
    assert backend.dump() == before
    assert (await store.control(), await store.release()) == ((1, b"first"), b"r1")


async def test_a_first_registry_that_is_not_expected_first_writes_nothing(backend: Backend) -> None:
    before = backend.dump()
    assert not await backend.store.put_control(1, b"x", b"r")
    assert backend.dump() == before


async def test_of_many_steps_from_one_version_one_wins(backend: Backend) -> None:
    stores = [backend.another() for _ in range(4)]
    steps = (stores[n % 4].put_control(0, b"%d" % n, b"r%d" % n) for n in range(12))
    won = await asyncio.gather(*steps)
    assert sum(won) == 1
    assert await backend.store.control() == (1, b"%d" % won.index(True))
    assert await backend.store.release() == b"r%d" % won.index(True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, b"", b""), "expected must be between"),
        ((2**53 - 1, b"", b""), "expected must be between"),
        ((True, b"", b""), "expected must be an integer"),
        ((0, "text", b""), "value of registry is str"),
        ((0, b"", None), "value of release is NoneType"),
    ],
)
async def test_a_registry_that_is_not_well_formed_is_an_error(
    backend: Backend, arguments: tuple[Any, ...], message: str
) -> None:
    before = backend.dump()
    with pytest.raises(ValueError, match=message):
        await backend.store.put_control(*arguments)
    assert backend.dump() == before


async def test_the_store_tells_its_own_clock(backend: Backend) -> None:
    before = time.time_ns() // 1_000_000
    told = await backend.store.now_ms()
    assert before <= told <= time.time_ns() // 1_000_000


async def test_leases_are_listed_and_the_next_announcement_replaces_one(backend: Backend) -> None:
    store = backend.store
    assert await store.readers() == {}
    await store.announce("host:1/é", b"one", 60)
    await store.announce("host:2", ALL_BYTES, 60.5)
    assert await store.readers() == {"host:1/é": b"one", "host:2": ALL_BYTES}
    await backend.another().announce("host:1/é", b"", 60)
    assert await store.readers() == {"host:1/é": b"", "host:2": ALL_BYTES}


async def test_a_lease_that_has_run_out_is_not_listed_and_leaves_nothing(backend: Backend) -> None:
    store = backend.store
    before = backend.dump()
    await store.announce("gone", b"1", 0.02)
    await until_equal(store.readers, {})
    assert backend.dump() == before


async def test_an_announcement_forgets_leases_that_have_run_out(backend: Backend) -> None:
    store = backend.store
    for n in range(50):
        await store.announce(f"restarted-{n}", b"1", 0.02)
    await store.announce("long", b"2", 60)
    await until_equal(store.readers, {"long": b"2"})
    await store.announce("short", b"3", 0.001)
    await store.announce("long", b"4", 60)
    await until_equal(store.readers, {"long": b"4"})
    assert "restarted" not in str(backend.dump())


async def test_a_shorter_announcement_shortens_a_lease(backend: Backend) -> None:
    store = backend.store
    await store.announce("leaving", b"1", 60)
    await store.announce("leaving", b"2", 0.02)
    await until_equal(store.readers, {})


@pytest.mark.parametrize("ttl_s", [0, -1, 3600.5, float("inf"), float("nan"), True, "9"])
async def test_a_lease_without_a_proper_life_is_an_error(backend: Backend, ttl_s: Any) -> None:
    before = backend.dump()
    with pytest.raises(ValueError, match="ttl_s must be above 0 and at most 3600"):
        await backend.store.announce("r", b"", ttl_s)
    assert backend.dump() == before


@pytest.mark.parametrize(("reader", "lease"), [("", b""), ("\ud800", b""), ("r", "text"), ("r", None)])
async def test_a_lease_that_is_not_well_formed_is_an_error(backend: Backend, reader: str, lease: Any) -> None:
    before = backend.dump()
    with pytest.raises(ValueError, match="reader"):
        await backend.store.announce(reader, lease, 1)
    assert backend.dump() == before


async def test_leases_in_memory_end_exactly_when_their_time_has_passed() -> None:
    now = [100.0]
    store = MemoryStore(clock=lambda: now[0])
    await store.announce("r", b"1", 10)
    now[0] = 109.9
    assert await store.readers() == {"r": b"1"}
    now[0] = 110.0
    assert await store.readers() == {}


async def test_the_key_of_leases_lives_as_long_as_the_last_of_them(redis_backend: RedisBackend) -> None:
    store, [node] = redis_backend.store, redis_backend.nodes
    key = redis_backend.keys.readers
    with node.client() as client:
        await store.announce("long", b"1", 60)
        await store.announce("short", b"2", 5)
        assert 50_000 < client.pttl(key) <= 60_000
        await store.announce("long", b"1", 3)
        assert 3_000 < client.pttl(key) <= 5_000


async def until_equal(read: Callable[[], Any], expected: Any) -> None:
    """Poll until ``read`` gives ``expected``; fail where it does not before the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := await read()) != expected:
        assert time.monotonic() < deadline, f"{found} did not become {expected}"
        await asyncio.sleep(0.005)
