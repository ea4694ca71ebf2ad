"""Ranking after any history equals ranking of the live documents built afresh, to the last bit."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live_index import ANALYZER, GENERATION, Document, LiveIndex, expected_hits, live_chunks
from rank_bm25 import BM25Okapi

from tessera.index.merge import MergePolicy
from tessera.search import Hit, Searcher

WORDS = ["alpha", "beta", "gamma", "delta", "the", "of", "Straße", "é", "x_1", "rare"]
KEYS = [("a", "one.md"), ("a", "two.md"), ("b", "one.md"), ("b", "logs/run.log"), ("c", "z")]
ACCESS = [("*",), ("team",), ("other", "team"), ()]

words = st.sampled_from(WORDS + ["the"] * 6 + ["of"] * 3)
paragraphs = st.lists(words, max_size=8).map(" ".join)
texts = st.lists(paragraphs, min_size=0, max_size=6).map(tuple)
documents = st.builds(
    lambda key, text, access: Document(*key, paragraphs=text, access=access),
    st.sampled_from(KEYS),
    texts,
    st.sampled_from(ACCESS),
)
batches = st.lists(documents, min_size=1, max_size=4, unique_by=lambda document: document.key)
queries = st.tuples(
    st.lists(words, min_size=1, max_size=7).map(" ".join),
    st.sampled_from([1, 2, 5, 1000]),
    st.sampled_from([None, None, frozenset(), frozenset({"team"})]),
    st.sampled_from([None, None, "a", "nowhere"]),
)
appends = st.tuples(st.integers(0, 99), st.lists(paragraphs, min_size=1, max_size=3))
changes = st.one_of(
    st.tuples(st.just("upsert"), batches),
    st.tuples(st.just("upsert"), batches),
    st.tuples(st.just("delete"), st.integers(0, 99)),
    st.tuples(st.just("append"), appends),
    st.tuples(st.just("merge"), st.integers(2, 3)),
)
looks = st.one_of(
    st.tuples(st.just("search"), queries),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)
operations = st.lists(st.one_of(changes, changes, looks), max_size=25)


class History:
    """Plays operations on a live index and checks a searcher against what is live."""

    def __init__(self, index: LiveIndex) -> None:
        self.index = index
        self.searcher = Searcher(index.store)
        self.saved = index.saved()

    async def play(self, name: str, argument: Any) -> None:
        live = sorted(self.index.live)
        if name == "upsert":
            await self.index.upsert(*argument)
        elif name == "delete" and live:
            await self.index.delete(live[argument % len(live)])
        elif name == "append" and live:
            await self.index.append(live[argument[0] % len(live)], argument[1])
        elif name == "merge":
            policy = MergePolicy(fan_out=argument, floor_chunks=2, max_tombstones=6)
            await self.index.merge(policy)
        elif name == "search":
            await self.check(*argument)
        elif name == "settle":
            await self.searcher.warm()
        elif name == "restart":
            await self.searcher.close()
            self.searcher = Searcher(self.index.store)
        elif name == "save":
            self.saved = self.index.saved()
        elif name == "claim":
            await self.index.claim()
        elif name == "lose":
            self.index.lose_writes_since(self.saved)
            if argument:
                await self.index.claim()

    async def check(self, query: str, k: int, principals: frozenset[str] | None, source: str | None) -> None:
        answer = await self.searcher.search(query, k, principals, source)
        expected = expected_hits(self.index.live.values(), query, k, principals, source)
        found = [(hit.score, hit.source, hit.doc_id, ordinal_of(hit), hit.text) for hit in answer.hits]
        assert found == [(hit.score, hit.source, hit.doc_id, hit.ordinal, hit.text) for hit in expected]
        for hit in answer.hits:
            document = self.index.live[f"{hit.source}/{hit.doc_id}"]
            assert hit.text == document.text[hit.start : hit.end]
            assert (hit.access, hit.content_digest) == (document.access, document.digest)


def ordinal_of(hit: Hit) -> int:
    return int(hit.uid.rpartition("/")[2])


async def play_all(partitions: int, history: list[tuple[str, Any]], last: tuple[Any, ...]) -> None:
    played = History(await LiveIndex(partitions).open())
    for name, argument in history:
        await played.play(name, argument)
    await played.check(*last)
    await played.check(" ".join(WORDS), 1000, None, None)
    await played.searcher.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3), operations, queries)
def test_any_history_ranks_like_the_live_documents_alone(
    partitions: int, history: list[tuple[str, Any]], last: tuple[Any, ...]
) -> None:
    asyncio.run(play_all(partitions, history, last))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 2),
    st.lists(changes, max_size=6),
    st.lists(changes, min_size=1, max_size=4),
    st.lists(changes, max_size=8),
    st.tuples(st.booleans(), st.booleans()),
    queries,
)
def test_a_store_that_lost_its_last_writes_is_followed(
    partitions: int,
    kept: list[tuple[str, Any]],
    lost: list[tuple[str, Any]],
    since: list[tuple[str, Any]],
    claims: tuple[bool, bool],
    last: tuple[Any, ...],
) -> None:
    """The searcher has seen what is lost; numbers are used again, by the same writer or by another."""
    history = [*kept, ("save", None), *([("claim", None)] if claims[0] else []), *lost, ("search", last)]
    history += [("lose", claims[1]), *since]
    asyncio.run(play_all(partitions, history, last))


class LuceneIdf(BM25Okapi):
    """rank-bm25 with Lucene's idf."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        for word, n in nd.items():
            self.idf[word] = math.log(1 + (self.corpus_size - n + 0.5) / (n + 0.5))


async def scores_of(batch: list[Document], query: str) -> list[tuple[tuple[str, str, int], float]]:
    index = await LiveIndex(2).open()
    for document in batch:
        await index.upsert(document)
    searcher = Searcher(index.store)
    answer = await searcher.search(query, 1000)
    await searcher.close()
    return [((hit.source, hit.doc_id, ordinal_of(hit)), hit.score) for hit in answer.hits]


@settings(max_examples=60, deadline=None)
@given(batches, st.lists(words, min_size=1, max_size=7).map(" ".join))
def test_scores_and_order_are_those_of_rank_bm25(batch: list[Document], query: str) -> None:
    chunks = live_chunks(batch)
    tokens = [ANALYZER.terms(text) for *_, text in chunks]
    found = asyncio.run(scores_of(batch, query))
    if not any(tokens):
        assert not found
        return
    oracle = LuceneIdf(tokens, k1=1.2, b=0.75).get_scores(ANALYZER.terms(query))
    wanted = {chunk[:3]: score for chunk, score in zip(chunks, oracle.tolist(), strict=True) if score > 0}
    assert {key for key, _ in found} == set(wanted)
    for key, score in found:
        assert score == pytest.approx(wanted[key], rel=0, abs=1e-9)
    reference = [wanted[key] for key, _ in found]
    assert all(first >= second - 2e-9 for first, second in pairwise(reference))


def test_long_lists_rank_like_a_plain_scan() -> None:
    """Enough chunks that common terms are looked up instead of added up, with many ties."""

    async def scenario() -> None:
        index = await LiveIndex(2).open()
        for number in range(60):
            lines = [
                " ".join(
                    WORDS[(number * 7 + line * step) % len(WORDS)]
                    for step in range(1, 2 + (number + line) % 6)
                )
                + (" the of" * (line % 3))
                + (" unique" if number == 17 and line == 3 else "")
                for line in range(20)
            ]
            await index.upsert(Document("s", f"d{number:02}.md", tuple(lines)))
        for number in range(0, 60, 7):
            await index.delete(f"s/d{number:02}.md")
        played = History(index)
        for k in (1, 3, 10, 200):
            for query in ("unique the", "rare alpha the of", "the", "the of", "x_1 beta beta gamma the of é"):
                await played.check(query, k, None, None)
        await played.searcher.warm()
        for k in (1, 3, 10, 200):
            for query in ("unique the", "rare alpha the of", "the", "the of", "x_1 beta beta gamma the of é"):
                await played.check(query, k, None, None)
        await played.searcher.close()

    asyncio.run(scenario())


def test_the_generation_under_test_is_the_one_served() -> None:
    async def scenario() -> None:
        index = await LiveIndex(3).open()
        await index.upsert(Document("a", "one.md", ("alpha",)))
        searcher = Searcher(index.store)
        answer = await searcher.search("alpha")
        assert (answer.release, answer.generation) == ("r1", GENERATION)
        shard = index.shard_of("a/one.md")
        assert answer.as_of == {str(other): 0 if other == shard else -1 for other in index.shards}
        await searcher.close()

    asyncio.run(scenario())
