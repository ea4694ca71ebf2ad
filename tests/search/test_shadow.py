from __future__ import annotations

import asyncio

import pytest
from live_index import CANDIDATE, GENERATION, Document, LiveIndex

from tessera.generations.registry import State
from tessera.search import Searcher
from tessera.search.shadow import QUEUED, ShadowReads, overlap

Observed = list[tuple[str, float | None]]


async def open_index(candidate: State = "gated") -> LiveIndex:
    index = await LiveIndex(2).open()
    await index.upsert(
        Document("a", "x.md", ("word", "other", "word again")), Document("a", "y.md", ("word", "alone"))
    )
    await index.adopt(CANDIDATE)
    await index.backfill(CANDIDATE)
    await index.serve("r1", GENERATION, g2=candidate)
    return index


async def shadowed(index: LiveIndex, share: float, queries: list[tuple[str, int]]) -> Observed:
    """What is observed of these queries once all that was sampled has run."""
    observed: Observed = []
    searcher = Searcher(index.store)
    await searcher.preload()
    shadow = ShadowReads(searcher, share, lambda outcome, value: observed.append((outcome, value)))
    running = asyncio.create_task(shadow.run())
    for query, k in queries:
        shadow.offer(query, k, None, None, await searcher.search(query, k))
        await shadow.settle()
    running.cancel()
    await searcher.close()
    return observed


def test_hits_of_both_generations_are_compared_by_the_ranges_of_the_source() -> None:
    async def scenario() -> None:
        index = await open_index()
        observed = await shadowed(index, 1.0, [("word", 10), ("alone", 10), ("nowhere", 10), ("word", 1)])
        assert observed[:3] == [("compared", 1.0), ("compared", 1.0), ("compared", 1.0)]
        [(outcome, value)] = observed[3:]
        assert outcome == "compared"
        assert value in (0.0, 1.0)

    asyncio.run(scenario())


def test_overlap_counts_hits_of_either_side_that_share_text_with_the_other() -> None:
    async def scenario() -> None:
        searcher = Searcher((await open_index()).store)
        hits = (await searcher.search("word", 10)).hits  # x.md twice, y.md once.
        whole = await searcher.found_in(CANDIDATE, "word", 10)
        assert (len(hits), len(whole)) == (3, 2)
        assert overlap(hits, whole) == 1.0
        x_alone = [found for found in whole if found.document.doc_id == "x.md"]
        assert overlap(hits, x_alone) == pytest.approx((2 + 1) / (3 + 1))
        assert overlap([], whole) == overlap(hits, []) == 0.0
        assert overlap([], []) == 1.0
        # Of the same document, but not of the same text.
        other = await searcher.found_in(GENERATION, "other", 10)
        assert overlap(hits, other) == 0.0
        await searcher.close()

    asyncio.run(scenario())


def test_the_sample_is_that_share_and_the_same_each_time() -> None:
    async def scenario() -> None:
        index = await open_index("ready")
        queries = [("word", number) for number in range(1, 201)]
        first, second = [await shadowed(index, 0.25, queries) for _ in range(2)]
        assert first == second
        assert 30 <= len(first) <= 70
        assert await shadowed(index, 0.0, queries) == []

    asyncio.run(scenario())


def test_nothing_is_sampled_without_a_candidate() -> None:
    async def scenario() -> None:
        index = await open_index("retired")
        assert await shadowed(index, 1.0, [("word", 5)]) == []

    asyncio.run(scenario())


def test_what_waits_is_bounded_and_what_is_dropped_is_counted() -> None:
    async def scenario() -> None:
        index = await open_index()
        observed: Observed = []
        searcher = Searcher(index.store)
        await searcher.preload()
        shadow = ShadowReads(searcher, 1.0, lambda outcome, value: observed.append((outcome, value)))
        answer = await searcher.search("word")
        for _ in range(QUEUED + 3):
            shadow.offer("word", 5, None, None, answer)
        assert observed == [("dropped", None)] * 3
        await searcher.close()

    asyncio.run(scenario())


def test_a_shadow_read_that_fails_is_counted_and_hurts_nothing() -> None:
    async def scenario() -> None:
        index = await open_index()
        await index.give_up(CANDIDATE)
        assert await shadowed(index, 1.0, [("word", 5), ("word", 5)]) == [("failed", None)] * 2

    asyncio.run(scenario())
