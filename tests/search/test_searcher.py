from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, replace

import pytest
from live_index import GENERATION, POLICY, WHOLE, Document, LiveIndex, generation, registry_of

from tessera.errors import CorruptionError, QueryError, SettingsError, StaleSnapshotError, UnavailableError
from tessera.index.merge import MergePolicy
from tessera.releases import Release, Scorer
from tessera.search import Hit, Searcher
from tessera.search.scoring import MAX_K, MAX_QUERY_CHARACTERS, MAX_TERMS
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

TEAM = frozenset({"team"})
NOBODY: frozenset[str] = frozenset()


def run(scenario: Callable[[LiveIndex, Searcher], Awaitable[None]], partitions: int = 2) -> None:
    """Play a scenario on an empty index and a searcher."""

    async def play() -> None:
        index = await LiveIndex(partitions).open()
        searcher = Searcher(index.store)
        await scenario(index, searcher)
        await searcher.close()

    asyncio.run(play())


def test_a_hit_has_the_fields_of_the_interface() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        text = ("# Größe", "the straße is long\nand wide")
        await index.upsert(Document("hand book", "a/b c.tar.md", text, ("team",), revision=42))
        [hit] = (await searcher.search("STRASSE straße", 3, TEAM)).hits
        document = index.live["hand book/a/b c.tar.md"]
        expected = Hit(
            id="a/b c.tar:chunk1",
            uid="hand%20book/a%2Fb%20c.tar.md@42/paragraph%400123456789ab/1",
            score=hit.score,
            source="hand book",
            doc_id="a/b c.tar.md",
            revision=42,
            content_digest=document.digest,
            policy=POLICY,
            access=("team",),
            start_token=10,
            end_token=16,
            start_line=3,
            end_line=4,
            start=9,
            end=36,
            headings=("Part 0",),
            text="the straße is long\nand wide",
        )
        assert hit == expected
        names = "id uid score source doc_id revision content_digest policy access start_token end_token"
        names += " start_line end_line start end headings text"
        assert [field.name for field in fields(Hit)] == names.split()
        assert await searcher.chunk(hit.uid, TEAM) == replace(hit, score=0.0)

    run(scenario)


def test_no_path_shows_a_document_to_those_without_access() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(
            Document("a", "open.md", ("word",), ("*",)),
            Document("a", "team.md", ("word",), ("team",)),
            Document("a", "closed.md", ("word",), ()),
        )

        async def seen(principals: frozenset[str] | None) -> list[str]:
            return [hit.doc_id for hit in (await searcher.search("word", 10, principals)).hits]

        assert await seen(None) == ["closed.md", "open.md", "team.md"]
        assert await seen(TEAM) == ["open.md", "team.md"]
        assert await seen(NOBODY) == ["open.md"]
        for doc_id, principals, visible in (
            ("team.md", TEAM, True),
            ("team.md", NOBODY, False),
            ("closed.md", TEAM, False),
            ("closed.md", None, True),
        ):
            chunks = await searcher.document_chunks("a", doc_id, principals)
            assert (chunks is not None) == visible
            uid = f"a/{doc_id}@1/{POLICY.replace('@', '%40')}/0"
            assert (await searcher.chunk(uid, principals) is not None) == visible

    run(scenario)


def test_revoked_access_holds_for_the_next_query_also_in_older_segments() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(Document("a", "run.log", ("one word", "two word", "three word"), ("team",)))
        assert len((await searcher.search("word", 10, TEAM)).hits) == 3
        held = index.live["a/run.log"]
        index.live["a/run.log"] = replace(held, access=("other",))
        await index.append("a/run.log", ["more"])
        assert (await searcher.search("word", 10, TEAM)).hits == []
        assert await searcher.document_chunks("a", "run.log", TEAM) is None
        assert len((await searcher.search("word", 10, frozenset({"other"}))).hits) == 3

    run(scenario)


def test_a_chunk_is_found_only_under_its_own_revision_policy_and_ordinal() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(Document("a", "b", ("x", "y"), revision=5))
        [first, second] = await searcher.document_chunks("a", "b") or []
        assert (first.text, second.text) == ("x", "y")
        assert await searcher.chunk(second.uid) == second
        for other in (
            second.uid.replace("@5", "@4"),
            second.uid.replace("paragraph", "markdown"),
            second.uid[:-1] + "2",
            second.uid.replace("a/", "c/"),
        ):
            assert await searcher.chunk(other) is None
        with pytest.raises(QueryError, match="not a chunk's uid"):
            await searcher.chunk("a/b@5/0")
        assert await searcher.document_chunks("a", "nowhere") is None

    run(scenario)


def test_texts_longer_than_a_block_are_joined() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        long = "é" * 70_000 + " needle"
        await index.upsert(Document("a", "b", ("start", long, "end needle")))
        hits = (await searcher.search("needle")).hits
        assert {hit.text for hit in hits} == {long, "end needle"}
        assert [hit.text for hit in await searcher.document_chunks("a", "b") or []] == [
            "start",
            long,
            "end needle",
        ]

    run(scenario)


@pytest.mark.parametrize("k", [0, -1, MAX_K + 1, True])
def test_k_outside_its_bounds_is_refused(k: int) -> None:
    async def scenario(_: LiveIndex, searcher: Searcher) -> None:
        with pytest.raises(QueryError, match=f"between 1 and {MAX_K}"):
            await searcher.search("x", k)

    run(scenario)


def test_queries_outside_their_bounds_are_refused() -> None:
    async def scenario(_: LiveIndex, searcher: Searcher) -> None:
        with pytest.raises(QueryError, match=f"{MAX_QUERY_CHARACTERS} characters"):
            await searcher.search("x" * (MAX_QUERY_CHARACTERS + 1))
        with pytest.raises(QueryError, match=f"{MAX_TERMS} distinct terms, this one has {MAX_TERMS + 1}"):
            await searcher.search(" ".join(f"w{n}" for n in range(MAX_TERMS + 1)))
        assert (await searcher.search(" ".join(["w"] * 1000))).hits == []

    run(scenario)


def test_a_query_without_a_known_term_finds_nothing() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        assert (await searcher.search("anything")).hits == []
        await index.upsert(Document("a", "b", ("x", "...")))
        for query in ("unknown", "", "...", "\ud800"):
            assert (await searcher.search(query)).hits == []

    run(scenario)


def test_an_unknown_generation_is_refused_and_the_known_ones_are_named() -> None:
    async def scenario(_: LiveIndex, searcher: Searcher) -> None:
        with pytest.raises(QueryError, match="no generation 'g9'; there are: g1"):
            await searcher.search("x", generation="g9")
        assert (await searcher.search("x", generation=GENERATION)).generation == GENERATION

    run(scenario)


def test_without_a_release_the_search_says_what_to_start() -> None:
    async def scenario() -> None:
        with pytest.raises(UnavailableError, match="tessera worker"):
            await Searcher(MemoryStore()).search("x")

    asyncio.run(scenario())


def test_another_analyzer_is_refused_with_an_explanation() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        old = generation("g2", "ready", "words@1/unicode-1.1")
        await index.control(registry_of(Release("r1", GENERATION), generation(GENERATION), old))
        await index.adopt("g2")
        await index.backfill("g2")
        with pytest.raises(SettingsError, match=r"unicode-1\.1"):
            await searcher.search("x", generation="g2")

    run(scenario)


def test_the_release_decides_generation_and_scorer_from_the_next_query_on() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(Document("a", "b", ("word word other", "word")))
        before = await searcher.search("word")
        await index.serve("r2", GENERATION, Scorer(k1=0.0))
        after = await searcher.search("word")
        assert (before.release, after.release) == ("r1", "r2")
        assert before.hits[0].score != before.hits[1].score
        assert after.hits[0].score == after.hits[1].score
        await index.adopt("g2")
        await index.backfill("g2")
        await index.serve("r3", "g2", g1="retired")
        answer = await searcher.search("word")
        assert (answer.release, answer.generation) == ("r3", "g2")
        assert [hit.policy for hit in answer.hits] == [WHOLE]

    run(scenario)


def test_a_topic_recorded_later_is_searched_too() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        assert list((await searcher.search("x")).as_of) == ["tessera.documents/0", "tessera.documents/1"]
        await index.store.record_topic("tessera.logs", 1)
        await index.store.claim(ShardId("tessera.logs", 0), [GENERATION])
        assert list((await searcher.search("x")).as_of)[-1] == "tessera.logs/0"

    run(scenario)


class InterruptedStore(MemoryStore):
    """Runs what is planned just before blobs are read, as another process might."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[Callable[[], Awaitable[object]]] = []
        self.heads_read = 0

    async def heads(self, shards: Sequence[ShardId]) -> list:  # type: ignore[type-arg]
        self.heads_read += 1
        await asyncio.sleep(0)
        return await super().heads(shards)

    async def blobs(self, shard: ShardId, ids: Sequence[str]) -> list[bytes | None]:
        if self.planned:
            await self.planned.pop(0)()
        return await super().blobs(shard, ids)


def test_segments_merged_away_while_they_are_fetched_are_read_anew() -> None:
    async def scenario() -> None:
        index = await LiveIndex(1, store=InterruptedStore()).open()
        for number in range(4):
            await index.upsert(Document("a", f"d{number}", ("word",)))
        searcher = Searcher(index.store)

        async def merge() -> None:
            assert await index.merge(MergePolicy(fan_out=2, floor_chunks=1))

        index.store.planned.append(merge)  # type: ignore[attr-defined]
        assert len((await searcher.search("word")).hits) == 4
        await searcher.close()

    asyncio.run(scenario())


def test_a_text_replaced_between_ranking_and_reading_starts_the_query_again() -> None:
    async def scenario() -> None:
        index = await LiveIndex(1, store=InterruptedStore()).open()
        await index.upsert(Document("a", "b", ("old word",)))
        searcher = Searcher(index.store)
        await searcher.refresh()

        async def replace_text() -> None:
            await index.upsert(Document("a", "b", ("new word here",)))

        index.store.planned.append(replace_text)  # type: ignore[attr-defined]
        answer = await searcher.search("word")
        assert [hit.text for hit in answer.hits] == ["new word here"]
        assert answer.as_of == {"tessera.documents/0": 1}
        await searcher.close()

    asyncio.run(scenario())


def test_a_lost_segment_or_text_is_an_error_not_a_shorter_answer() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(Document("a", "b", ("word",)))
        await searcher.refresh()
        blobs = index.store._shards[index.shards[0]].blobs
        for kind in ("text", "segment"):
            for name in [name for name in blobs if name.startswith(kind)]:
                del blobs[name]
            with pytest.raises(StaleSnapshotError, match=rf"{kind}/.* is gone"):
                await searcher.search("word")
            await searcher.close()

    run(scenario, partitions=1)


def test_a_text_that_is_not_the_one_indexed_is_an_error() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(Document("a", "b", ("woräd x",)), Document("a", "c", ("other text",)))
        blobs = index.store._shards[index.shards[0]].blobs
        first, second = (blobs[name] for name in sorted(blobs) if name.startswith("text"))
        first.content, second.content = second.content, first.content
        with pytest.raises(CorruptionError, match="not the text that was indexed"):
            await searcher.search("x other", source="a")

    run(scenario, partitions=1)


def test_concurrent_queries_share_one_look_at_the_store() -> None:
    async def scenario() -> None:
        store = InterruptedStore()
        index = await LiveIndex(1, store=store).open()
        await index.upsert(Document("a", "b", ("word",)))
        searcher = Searcher(store)
        await searcher.refresh()
        store.heads_read = 0
        answers = await asyncio.gather(*(searcher.search("word") for _ in range(50)))
        assert {len(answer.hits) for answer in answers} == {1}
        assert store.heads_read <= 2
        await searcher.close()

    asyncio.run(scenario())


def test_a_query_sees_what_was_committed_while_an_earlier_one_was_looking() -> None:
    async def scenario() -> None:
        index = await LiveIndex(1, store=InterruptedStore()).open()
        searcher = Searcher(index.store)
        await searcher.refresh()
        earlier = asyncio.create_task(searcher.search("word"))
        await asyncio.sleep(0)
        await index.upsert(Document("a", "b", ("word",)))
        assert len((await searcher.search("word")).hits) == 1
        await earlier
        await searcher.close()

    asyncio.run(scenario())


def test_queries_during_many_commits_and_merges_are_each_of_one_moment() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        done = asyncio.Event()

        async def write() -> None:
            for number in range(40):
                # Both documents always change together: an answer never holds one of each.
                words = (f"word v{number}", "filler " * (number % 5))
                await index.upsert(Document("a", "x", words), Document("a", "y", words))
                await index.merge(MergePolicy(fan_out=3, floor_chunks=4))
                await asyncio.sleep(0)
            done.set()

        async def ask() -> None:
            while not done.is_set():
                texts = [hit.text for hit in (await searcher.search("word")).hits]
                assert len(texts) in (0, 2)
                assert len(set(texts)) <= 1

        await asyncio.gather(write(), ask(), ask(), ask())

    run(scenario, partitions=1)


def test_the_text_cache_stays_within_its_bound() -> None:
    async def scenario(index: LiveIndex, _: Searcher) -> None:
        searcher = Searcher(index.store, text_cache_bytes=100)
        for number in range(10):
            await index.upsert(Document("a", f"d{number}", (f"w{number} " + "x" * 30,)))
        for _round in range(2):
            for number in range(10):
                [hit] = (await searcher.search(f"w{number}")).hits
                assert hit.doc_id == f"d{number}"
        assert 0 < (await searcher.stats()).text_cache_bytes <= 100
        await searcher.close()

    run(scenario)


def test_stats_count_what_is_live_and_what_is_dead() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(*(Document("a", f"d{n}", ("x", "y", "z")) for n in range(5)))
        await searcher.warm()
        await index.delete("a/d0")
        stats = await searcher.stats()
        assert (stats.generation, stats.documents) == (GENERATION, 4)
        assert (stats.chunks_live, stats.chunks_dead, stats.segments, stats.parts) == (12, 3, 1, 1)
        assert stats.memory_bytes > 0

    run(scenario, partitions=1)


def test_parts_in_memory_stay_few_however_many_segments_there_are() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        for number in range(60):
            await index.upsert(Document("a", f"d{number}", ("word",) * (1 + number % 3)))
            await searcher.refresh()
        await searcher.warm()
        stats = await searcher.stats()
        assert stats.segments == 60
        assert stats.parts <= 5
        assert stats.chunks_live == 120

    run(scenario)


def test_segments_that_hold_the_same_live_chunk_are_reported() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(Document("a", "b", ("word",)))
        await searcher.refresh()
        index.live.clear()  # So the next commit carries no tombstone for what is there.
        await index.upsert(Document("a", "b", ("word",)))
        with pytest.raises(CorruptionError, match="chunk 0 of a/b is alive in two segments"):
            await searcher.warm()
        with pytest.raises(CorruptionError, match="chunk 0 of a/b is alive in two segments"):
            await Searcher(index.store).search("word")

    run(scenario)


def test_a_searcher_recovers_from_an_index_that_contradicted_itself_once_it_does_not_any_more() -> None:
    async def scenario(index: LiveIndex, searcher: Searcher) -> None:
        await index.upsert(Document("a", "b", ("word",)))
        await searcher.refresh()
        index.live.clear()  # So the next commit carries no tombstone for what is there.
        await index.upsert(Document("a", "b", ("word",)))
        with pytest.raises(CorruptionError):
            await searcher.warm()
        with pytest.raises(CorruptionError):
            await searcher.search("word")
        await index.delete("a/b")
        await index.upsert(Document("a", "c", ("word",)))
        assert [hit.doc_id for hit in (await searcher.search("word")).hits] == ["c"]
        await searcher.warm()
        assert [hit.doc_id for hit in (await searcher.search("word")).hits] == ["c"]

    run(scenario)
