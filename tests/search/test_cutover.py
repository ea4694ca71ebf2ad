"""What readers see while generations are made, moved and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import orjson
import pytest
from live_index import (
    CANDIDATE,
    GENERATION,
    POLICIES,
    Document,
    LiveIndex,
    as_cut,
    expected_hits,
)
from stepped_store import SteppedStore

from tessera.errors import QueryError, StaleSnapshotError, UnavailableError
from tessera.generations.registry import State
from tessera.index.merge import MergePolicy
from tessera.search import Answer, PinnedGeneration, Searcher

QUERY = "word other"
DOCUMENTS = (
    Document("a", "x.md", ("one word here", "word other", "nothing")),
    Document("a", "y.md", ("other other word",)),
    Document("b", "z.md", ("longer text with a word in it", "other")),
)


async def two_generations(partitions: int = 2, candidate: State = "gated") -> tuple[LiveIndex, SteppedStore]:
    """An index whose candidate is complete in every shard."""
    store = SteppedStore()
    index = await LiveIndex(partitions, store=store).open()
    await index.upsert(*DOCUMENTS)
    await index.adopt(CANDIDATE)
    await index.backfill(CANDIDATE)
    await index.serve("r1", GENERATION, g2=candidate)
    return index, store


def check(index: LiveIndex, answer: Answer) -> None:
    """The answer is that of one generation alone, as it is now."""
    assert answer.generation == {"r1": GENERATION, "r2": CANDIDATE}[answer.release]
    require_one_generation(index, answer)


def require_one_generation(index: LiveIndex, answer: Answer) -> None:
    assert {hit.policy for hit in answer.hits} == {POLICIES[answer.generation]}
    expected = expected_hits(as_cut(answer.generation, index.live.values()), QUERY, 10)
    assert [(hit.score, hit.doc_id, hit.text) for hit in answer.hits] == [
        (hit.score, hit.doc_id, hit.text) for hit in expected
    ]


async def moves_at_every_point(
    ask: Callable[[Searcher], Awaitable[Answer]],
    happen: Callable[[LiveIndex], Awaitable[object]],
    *,
    warm: bool,
) -> list[tuple[Answer, Answer]]:
    """Play ``happen`` at each point of a query in turn, until it has fewer: its answer and the next."""
    answers = []
    for at in count():
        index, store = await two_generations()
        searcher = Searcher(store)
        if warm:
            await searcher.preload()
        store.watch(at, lambda index=index: happen(index))
        answer = await ask(searcher)
        played = store.points > at
        store.watch(None, None)
        if not played:
            await searcher.close()
            return answers
        answers.append((answer, await searcher.search(QUERY)))
        require_one_generation(index, answer)
        check(index, answers[-1][1])
        await searcher.close()
    raise AssertionError


@pytest.mark.parametrize("warm", [False, True])
def test_the_pointer_may_move_at_any_point_of_a_query(warm: bool) -> None:
    async def scenario() -> None:
        async def cutover(index: LiveIndex) -> None:
            await index.serve("r2", CANDIDATE, g1="retired")

        answers = await moves_at_every_point(lambda searcher: searcher.search(QUERY), cutover, warm=warm)
        for answer, following in answers:
            assert answer.generation == {"r1": GENERATION, "r2": CANDIDATE}[answer.release]
            assert following.release == "r2"
        assert {answer.release for answer, _ in answers} == {"r1", "r2"}
        # Once the release was read, it holds to the end of the query.
        releases = [answer.release for answer, _ in answers]
        assert releases == sorted(releases, reverse=True)

    asyncio.run(scenario())


@pytest.mark.parametrize("asked", [None, GENERATION, CANDIDATE])
def test_cutover_merge_and_changes_may_come_together_at_any_point_of_a_query(asked: str | None) -> None:
    async def scenario() -> None:
        async def everything(index: LiveIndex) -> None:
            await index.serve("r2", CANDIDATE, g1="retired")
            await index.upsert(Document("a", "x.md", ("word changed",)))
            await index.merge(MergePolicy(fan_out=2, floor_chunks=1))

        async def played(index: LiveIndex, searcher: Searcher, at: int) -> Answer:
            index.store.watch(at, lambda: everything(index))  # type: ignore[attr-defined]
            return await searcher.search(QUERY, generation=asked)

        for at in count():
            index, store = await two_generations()
            before = list(index.live.values())
            searcher = Searcher(store)
            await searcher.preload()
            answer = await played(index, searcher, at)
            done = store.points <= at
            store.watch(None, None)
            if asked is not None:
                assert answer.generation == asked
            assert {hit.policy for hit in answer.hits} == {POLICIES[answer.generation]}
            found = [(hit.score, hit.doc_id, hit.text) for hit in answer.hits]
            assert found in [
                [(hit.score, hit.doc_id, hit.text) for hit in expected_hits(state, QUERY, 10)]
                for state in (
                    as_cut(answer.generation, before),
                    as_cut(answer.generation, index.live.values()),
                )
            ]
            await searcher.close()
            if done:
                return

    asyncio.run(scenario())


def test_cutover_and_rollback_at_every_point_of_many_queries() -> None:
    async def scenario() -> None:
        index, store = await two_generations()
        searcher = Searcher(store)
        await searcher.preload()
        moves = count()

        async def move() -> None:
            if next(moves) % 2:
                await index.serve("r1", GENERATION, g2="retired")
            else:
                await index.serve("r2", CANDIDATE, g1="retired")

        store.watch(None, move)
        answers = await asyncio.gather(*(searcher.search(QUERY) for _ in range(20)))
        store.watch(None, None)
        for answer in answers:
            check(index, answer)
        await searcher.close()

    asyncio.run(scenario())


def test_a_preloaded_generation_is_served_without_a_load() -> None:
    async def scenario() -> None:
        index, store = await two_generations()
        searcher = Searcher(store)
        await searcher.preload()
        await searcher.search(QUERY)
        before = await calls_of(store, searcher)
        await index.serve("r2", CANDIDATE, g1="retired")
        after = await calls_of(store, searcher)
        assert sorted(after) == sorted(before) == ["heads", "release", "topics"]
        await index.serve("r1", GENERATION, g2="retired")
        assert sorted(await calls_of(store, searcher)) == sorted(before)
        await searcher.close()

    async def calls_of(store: SteppedStore, searcher: Searcher) -> list[str]:
        store.watch(None, None)
        check(index_of(store), await searcher.search(QUERY))
        return list(store.calls)

    def index_of(store: SteppedStore) -> LiveIndex:
        return LiveIndex(2, store, {each.key: each for each in DOCUMENTS})

    asyncio.run(scenario())


def test_changes_reach_the_candidate_off_the_path_of_queries() -> None:
    async def scenario() -> None:
        index, store = await two_generations(1)
        searcher = Searcher(store)
        await searcher.preload()
        await index.upsert(Document("b", "new.md", ("word", "other")))
        store.watch(None, None)
        await searcher.search(QUERY)
        assert store.calls.count("manifest") == 1  # The served generation's alone.
        await searcher.preload()
        await index.serve("r2", CANDIDATE, g1="retired")
        store.watch(None, None)
        check(index, await searcher.search(QUERY))
        assert "manifest" not in store.calls
        await searcher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("state", ["gated", "ready", "retired"])
def test_all_that_may_be_served_next_is_loaded_and_announced(state: State) -> None:
    async def scenario() -> None:
        _, store = await two_generations(candidate=state)
        searcher = Searcher(store, reader="s1")
        await searcher.preload()
        lease = {"release": "r1", "generations": ["g1", "g2"], "in_use": ["g1"], "follows": True}
        assert await leases(store) == {"s1": lease}
        await searcher.close()

    asyncio.run(scenario())


async def leases(store: SteppedStore) -> dict[str, Any]:
    return {reader: orjson.loads(lease) for reader, lease in (await store.readers()).items()}


def test_a_generation_that_is_built_is_neither_loaded_nor_announced() -> None:
    async def scenario() -> None:
        index = await LiveIndex(1, store=SteppedStore()).open()
        await index.upsert(*DOCUMENTS)
        await index.adopt(CANDIDATE)
        await index.serve("r1", GENERATION, g2="building")
        searcher = Searcher(index.store, reader="s1")
        await searcher.preload()
        assert (await leases(index.store))["s1"]["generations"] == ["g1"]  # type: ignore[arg-type]
        await searcher.close()

    asyncio.run(scenario())


def test_a_generation_is_refused_until_it_is_complete_in_every_shard_unless_it_is_served() -> None:
    async def scenario() -> None:
        store = SteppedStore()
        index = await LiveIndex(2, store=store).open()
        await index.upsert(*DOCUMENTS)
        searcher = Searcher(store)
        await index.serve("r1", GENERATION, g2="building")
        with pytest.raises(QueryError, match=r"'g2' does not hold all documents of tessera\.documents/0, "):
            await searcher.search(QUERY, generation=CANDIDATE)
        await index.adopt(CANDIDATE)
        store.watch(None, None)
        with pytest.raises(QueryError, match="does not hold all documents"):
            await searcher.search(QUERY, generation=CANDIDATE)
        assert "manifest" not in store.calls
        with pytest.raises(QueryError, match="does not hold all documents"):
            async with searcher.pinned([GENERATION, CANDIDATE]):
                pass
        await index.backfill(CANDIDATE)
        require_one_generation(index, await searcher.search(QUERY, generation=CANDIDATE))
        await searcher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("state", ["contracting", "contracted", "abandoned"])
def test_a_generation_that_is_not_written_is_refused_even_where_it_is_loaded(state: State) -> None:
    async def scenario() -> None:
        index, store = await two_generations()
        searcher = Searcher(store, reader="s1")
        await searcher.preload()
        await index.serve("r1", GENERATION, g2=state)
        with pytest.raises(QueryError, match=f"'g2' is {state}.*there are: g1"):
            await searcher.search(QUERY, generation=CANDIDATE)
        await searcher.preload()
        assert (await leases(store))["s1"]["generations"] == ["g1"]
        check(index, await searcher.search(QUERY))
        await searcher.close()

    asyncio.run(scenario())


def test_a_served_generation_that_a_shard_does_not_write_is_an_error_not_an_empty_answer() -> None:
    async def scenario() -> None:
        index, store = await two_generations()
        searcher = Searcher(store)
        await index.give_up(CANDIDATE)
        await index.serve("r2", CANDIDATE, g1="retired")
        with pytest.raises(UnavailableError, match="which is not written in"):
            await searcher.search(QUERY)
        await searcher.close()

    asyncio.run(scenario())


def test_what_a_query_reads_is_announced_before_it_is_read() -> None:
    async def scenario() -> None:
        _, store = await two_generations()
        searcher = Searcher(store, reader="s1")
        await searcher.search(QUERY)
        seen: list[list[str]] = []

        async def look() -> None:
            if store.calls[-1] in ("manifest", "blobs"):
                seen.append((await leases(store))["s1"]["in_use"])

        store.watch(None, look)
        await searcher.search(QUERY, generation=CANDIDATE)
        assert seen
        assert all(in_use == ["g1", "g2"] for in_use in seen)
        await searcher.close()
        assert (await leases(store))["s1"]["in_use"] == []

    asyncio.run(scenario())


@pytest.mark.parametrize("warm", [False, True])
def test_a_contraction_that_begins_before_it_could_see_the_lease_is_seen_by_the_query(warm: bool) -> None:
    async def scenario() -> None:
        for at in count():
            index, store = await two_generations()
            searcher = Searcher(store, reader="s1")
            await (searcher.preload() if warm else searcher.refresh())
            looked = False

            async def contract(index: LiveIndex = index, store: SteppedStore = store) -> None:
                nonlocal looked
                await index.serve("r1", GENERATION, g2="contracting")
                looked = not any(CANDIDATE in each["in_use"] for each in (await leases(store)).values())
                if looked:
                    await index.give_up(CANDIDATE)

            store.watch(at, contract)
            try:
                answer = await searcher.search(QUERY, generation=CANDIDATE)
            except QueryError:
                # Whoever is let in reads to the end.
                assert "manifest" not in store.calls
            else:
                require_one_generation(index, answer)
                assert not looked
            done = store.points <= at
            store.watch(None, None)
            await searcher.close()
            if done:
                return

    asyncio.run(scenario())


def test_a_generation_given_up_at_any_point_is_answered_whole_or_refused() -> None:
    async def scenario() -> None:
        refused = 0
        for at in count():
            index, store = await two_generations()
            searcher = Searcher(store)
            await searcher.search(QUERY)
            store.watch(at, lambda index=index: index.give_up(CANDIDATE))
            try:
                require_one_generation(index, await searcher.search(QUERY, generation=CANDIDATE))
            except QueryError:
                refused += 1
            done = store.points <= at
            store.watch(None, None)
            await searcher.close()
            if done:
                break
        assert refused > 10

    asyncio.run(scenario())


@pytest.mark.parametrize("last", range(0, 120, 10))
def test_two_generations_are_pinned_at_the_same_offsets_whatever_is_written_meanwhile(last: int) -> None:
    async def scenario() -> None:
        index, store = await two_generations()
        searcher = Searcher(store, reader="s1")
        writes = count()

        async def write() -> None:
            number = next(writes)
            if number < last:
                await index.upsert(Document("a", f"n{number}.md", ("word",) * (1 + number % 3)))

        store.watch(None, write)
        async with searcher.pinned([GENERATION, CANDIDATE]) as pinned:
            old, new = pinned[GENERATION], pinned[CANDIDATE]
            assert old.as_of == new.as_of
            for side in (old, new):
                counted = {
                    found.document.doc_id
                    for query in ("word", "other", "nothing")
                    for found in side.find(query, 1000)
                }
                assert side.snapshot.documents() == len(counted)
            assert ids(old) == ids(new)
            assert (await leases(store))["s1"]["in_use"] == ["g1", "g2"]
        await searcher.close()

    def ids(side: PinnedGeneration) -> set[str]:
        return {found.document.doc_id for found in side.find("word", 1000)}

    asyncio.run(scenario())


def test_pinning_comes_to_rest_while_all_shards_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.search.pinned.ATTEMPTS", 20)

    async def scenario() -> None:
        index, store = await two_generations(8)
        searcher = Searcher(store)
        await searcher.preload()
        writes = count()

        async def write() -> None:
            number = next(writes)
            if number % 3 == 0:
                await index.upsert(Document("a", f"n{number}.md", ("word",)))

        store.watch(None, write)
        async with searcher.pinned([GENERATION, CANDIDATE]) as pinned:
            assert pinned[GENERATION].as_of == pinned[CANDIDATE].as_of
        assert next(writes) > 20
        store.watch(None, None)
        await searcher.close()

    asyncio.run(scenario())


def test_a_text_deleted_under_a_comparison_is_not_shown() -> None:
    async def scenario() -> None:
        index, store = await two_generations()
        searcher = Searcher(store)
        async with searcher.pinned([GENERATION, CANDIDATE]) as pinned:
            await index.delete("a/x.md")
            with pytest.raises(StaleSnapshotError, match="is gone"):
                await pinned[GENERATION].search(QUERY, 10)
        await searcher.close()

    asyncio.run(scenario())
