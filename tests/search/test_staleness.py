"""What a searcher does where it cannot read the pointer, the shards, or keep its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from live_index import CANDIDATE, GENERATION, Document, LiveIndex
from stepped_store import SteppedStore

from tessera.errors import UnavailableError
from tessera.search import Searcher
from tessera.search.lease import LEASE_S, LINGER_S, Lease, Lessee


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def run(scenario: Callable[[LiveIndex, SteppedStore, Searcher, Clock], Awaitable[None]]) -> None:
    async def play() -> None:
        clock, store = Clock(), SteppedStore()
        index = await LiveIndex(2, store=store).open()
        await index.upsert(Document("a", "x.md", ("word", "other")))
        await index.adopt(CANDIDATE)
        await index.backfill(CANDIDATE)
        await index.serve("r1", GENERATION, g2="gated")
        searcher = Searcher(store, pointer_staleness_s=5, clock=clock, reader="s1")
        await scenario(index, store, searcher, clock)
        store.down.clear()
        await searcher.close()

    asyncio.run(play())


def test_a_pointer_that_cannot_be_read_is_served_for_a_bounded_time_and_the_answer_says_so() -> None:
    async def scenario(_: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        fresh = await searcher.search("word")
        assert fresh.stale_s is None
        assert "stale_s" not in fresh.to_value()
        store.down.add("release")
        clock.now += 4
        stale = await searcher.search("word")
        assert (stale.release, stale.stale_s, len(stale.hits)) == ("r1", 4, 1)
        assert stale.to_value()["stale_s"] == 4
        clock.now += 1.5
        with pytest.raises(UnavailableError, match=r"5\.5 s old \(at most 5 s\): release is down"):
            await searcher.search("word")
        store.down.clear()
        assert (await searcher.search("word")).stale_s is None

    run(scenario)


def test_a_pointer_never_read_is_not_guessed() -> None:
    async def scenario(_: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        store.down.add("release")
        with pytest.raises(UnavailableError, match="it was never read"):
            await searcher.search("word")

    run(scenario)


def test_a_pointer_that_hangs_is_as_one_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.search.control.POINTER_TIMEOUT_S", 0.01)

    async def scenario(_: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        await searcher.search("word")

        async def hang() -> None:
            if store.calls[-1] == "release":
                await asyncio.Event().wait()

        store.watch(None, hang)
        assert (await searcher.search("word")).stale_s == 0
        store.watch(None, None)

    run(scenario)


@pytest.mark.parametrize("down", ["heads", "topics"])
def test_no_query_is_answered_where_access_cannot_be_checked(down: str) -> None:
    async def scenario(_: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        await searcher.search("word")
        store.down.add(down)
        for asked in (None, GENERATION, CANDIDATE):
            with pytest.raises(UnavailableError, match=f"{down} is down"):
                await searcher.search("word", generation=asked)
        with pytest.raises(UnavailableError, match=f"{down} is down"):
            await searcher.document_chunks("a", "x.md")

    run(scenario)


def test_without_a_lease_only_the_served_generation_is_searched() -> None:
    async def scenario(_: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        await searcher.preload()
        assert len((await searcher.search("word", generation=CANDIDATE)).hits) == 1
        store.down.add("announce")
        clock.now += LEASE_S - 1
        assert (await searcher.search("word", generation=CANDIDATE)).generation == CANDIDATE
        clock.now += 2
        with pytest.raises(UnavailableError, match=r"g2 is not served here.*announce is down"):
            await searcher.search("word", generation=CANDIDATE)
        assert (await searcher.search("word")).generation == GENERATION
        assert (await searcher.search("word", generation=GENERATION)).generation == GENERATION

    run(scenario)


def test_a_generation_that_could_never_be_announced_is_not_searched() -> None:
    async def scenario(_: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        store.down.add("announce")
        with pytest.raises(UnavailableError, match=r"g2 is not served here.*announce is down"):
            await searcher.search("word", generation=CANDIDATE)
        assert (await searcher.search("word")).generation == GENERATION

    run(scenario)


def test_a_lease_is_announced_anew_where_one_under_way_may_lack_the_generation() -> None:
    async def scenario() -> None:
        clock, store = Clock(), SteppedStore()
        lessee = Lessee(
            store,
            "s1",
            lambda held, named: Lease("r1", (), tuple(sorted({*held, *named})), follows=True),
            clock,
        )
        assert await lessee.ensure("g2")
        clock.now += LINGER_S - 1
        await lessee.announce()
        clock.now += 2
        under_way = asyncio.create_task(lessee.announce())
        await asyncio.sleep(0)
        assert not await lessee.ensure("g2")
        await under_way
        assert b'"in_use":["g2"]' in (await store.readers())["s1"]

    asyncio.run(scenario())


def test_after_a_lease_that_ran_out_all_but_the_served_generation_is_loaded_anew() -> None:
    async def scenario(_: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        await searcher.preload()
        store.watch(None, None)
        await searcher.search("word", generation=CANDIDATE)
        assert "manifest" not in store.calls
        clock.now += LEASE_S + 1
        store.watch(None, None)
        await searcher.search("word", generation=CANDIDATE)
        assert store.calls.count("manifest") == 2
        store.watch(None, None)
        await searcher.search("word")
        assert "manifest" not in store.calls

    run(scenario)


def test_a_long_lived_searcher_loads_announces_and_ends_its_lease_by_itself() -> None:
    async def scenario(index: LiveIndex, store: SteppedStore, searcher: Searcher, clock: Clock) -> None:
        searcher.start()
        async with asyncio.timeout(10):
            while b'"generations":["g1","g2"]' not in (await store.readers()).get("s1", b""):  # noqa: ASYNC110 - asked as an operator does
                await asyncio.sleep(0.01)
            await index.serve("r2", CANDIDATE, g1="retired")
            while b'"release":"r2"' not in (await store.readers())["s1"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    run(scenario)
