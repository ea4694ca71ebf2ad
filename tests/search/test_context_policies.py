"""Contexts over texts as policies really cut them: overlaps, line ends of every kind, blank stretches."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.assembly.assemble import assemble
from tessera.assembly.assembly import ASSEMBLIES, JOINED, SECTIONS, SENTENCES, Assembly
from tessera.assembly.passage import MAX_BLANK, Context, Passage
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS, LOGS
from tessera.generations.bootstrap import bootstrap, contract_of, first_registry
from tessera.generations.registry import Generation
from tessera.index.analyzer import WordsAnalyzer
from tessera.lab.corpus import LabDocument
from tessera.lab.cuts import cut_corpus
from tessera.lab.retrievers import TesseraRetriever
from tessera.lab.stages import leads, passages
from tessera.policies import ChunkPolicy, TextPolicy
from tessera.releases import Release
from tessera.search import Hit, Searcher
from tessera.search.context import Asked, ContextAnswer
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

SENTENCE = TextPolicy("sentence", size=6, overlap=3)
WINDOW = TextPolicy("window", size=4, overlap=2)
POLICIES = {
    "paragraph": ChunkPolicy("paragraph"),
    "sentence": ChunkPolicy("s", documents=SENTENCE, run_logs=SENTENCE),
    "window": ChunkPolicy("w", documents=WINDOW, run_logs=WINDOW),
    "markdown": ChunkPolicy("m", documents=TextPolicy("markdown", size=12, parent_context="headings")),
}
BLANK = re.compile(r"[ \t\r\n]*")


def words(text: str) -> int:
    return len(re.findall(r"\w+", text))


async def store_of(
    policy: ChunkPolicy, assembly: Assembly, texts: dict[str, str], logs: Sequence[str] = ()
) -> MemoryStore:
    """An index of documents, and of one log to which lines are appended by turns."""
    store = MemoryStore()
    serving = Generation("g1", contract_of(policy), "serving")
    first = replace(
        first_registry(), release=Release("r1", "g1", assembly=assembly), generations={"g1": serving}
    )
    assert await store.put_control(0, first.to_json(), first.release.to_json())
    await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
    events: dict[str, list[dict[str, Any]]] = {DOCUMENTS: [], LOGS: []}
    for doc_id, text in texts.items():
        event = {"v": 1, "op": "upsert", "source": "handbook", "doc_id": doc_id, "content": text}
        events[DOCUMENTS].append({**event, "media_type": "text/markdown", "access": ["*"]})
    line = 1
    for text in logs:
        event = {"v": 1, "op": "append", "source": "devex", "doc_id": "run.log", "first_line": line}
        events[LOGS].append({**event, "content": text})
        line += text.count("\n")
    for topic, changes in events.items():
        writer = ShardWriter(store, ShardId(topic, 0), partitions=1, catalog=SourceCatalog())
        await writer.open()
        for offset, event in enumerate(changes):
            key = f"{event['source']}/{event['doc_id']}".encode()
            await writer.write([Record(topic, 0, offset, key, orjson.dumps(event))])
    return store


async def model(
    searcher: Searcher, query: str, budget: int, assembly: Assembly, texts: dict[str, str]
) -> Context:
    """Assembled of what a search finds, with whole texts and all chunks at hand."""
    passages, others, leads = [], {}, {}
    for hit in (await searcher.search(query, assembly.hits)).hits:
        text = texts[hit.doc_id]
        key = f"{hit.source}/{hit.doc_id}"
        passages.append(passage(hit, key, text))
        chunks = await searcher.document_chunks(hit.source, hit.doc_id) or []
        others[key] = [(chunk.start, chunk.end) for chunk in chunks]
        leads[hit.uid] = [passage(chunk, key, text) for chunk in sections_of(hit, chunks)]
    return assemble(assembly, passages, budget, words, others, leads)


def passage(chunk: Hit, key: str, text: str) -> Passage:
    blank = BLANK.match(text, chunk.end)
    assert blank is not None
    after = blank[0] if len(blank[0].encode()) <= MAX_BLANK else ""
    return Passage(key, chunk.uid, chunk.start, chunk.end, chunk.score, chunk.text, after)


def sections_of(hit: Hit, chunks: Sequence[Hit]) -> list[Hit]:
    """The first chunks of the sections that the hit is in, the innermost first."""
    found = []
    for depth in range(len(hit.headings), 0, -1):
        first = hit
        for chunk in sorted(chunks, key=lambda each: -each.start):
            if chunk.start < hit.start and chunk.start <= first.start:
                if chunk.headings[:depth] != hit.headings[:depth]:
                    break
                first = chunk
        found.append(first)
    return found


def lab_context(policy: ChunkPolicy, budget: int, assembly: Assembly, texts: dict[str, str]) -> Context:
    """What the lab measures of the same documents."""
    corpus = {
        f"handbook/{doc_id}": LabDocument("handbook", doc_id, "documents", "text/markdown", text)
        for doc_id, text in sorted(texts.items())
    }
    cut = cut_corpus(policy, corpus)
    hits = TesseraRetriever(cut, corpus, WordsAnalyzer()).find("word other", assembly.hits)
    found, leading = passages(hits, cut, corpus), leads(hits, cut, corpus)
    return assemble(assembly, found, budget, words, cut.spans, leading)


def check(answer: ContextAnswer, expected: Context, texts: dict[str, str]) -> None:
    made = answer.assembled
    assert [(p.start, p.end, p.text, p.uids, p.score) for p in made.pieces] == [
        (p.start, p.end, p.text, p.uids, p.score) for p in expected.pieces
    ]
    assert (made.used, made.left_out) == (expected.used, expected.left_out)
    assert made.used <= made.budget
    for piece in made.pieces:
        text = texts[piece.doc_id]
        assert piece.text == text[piece.start : piece.end]
        end = "\n" if "\n" in text or piece.doc_id == "run.log" else "\r"
        assert piece.start_line == text.count(end, 0, piece.start) + 1
        assert piece.end_line == text.count(end, 0, piece.end - 1) + 1
    for one, other in pairwise(sorted(made.pieces, key=lambda piece: (piece.doc_id, piece.start))):
        assert one.doc_id != other.doc_id or one.end <= other.start


PARTS = st.sampled_from(
    [
        "\n" * (MAX_BLANK + 1),
        "Word other.",
        "Other thing here.",
        "word",
        "Ünder word?",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        " ",
        "# Head\n",
        "🙂 other ",
        "\n\n# Head\n\n",
        "\n\n## Sub\n\n",
    ]
)
TEXT = st.lists(PARTS, min_size=1, max_size=25).map("".join)


@settings(max_examples=60, deadline=None)
@given(
    first=TEXT,
    second=TEXT,
    policy=st.sampled_from(list(POLICIES.values())),
    assembly=st.sampled_from(list(ASSEMBLIES.values())),
    budget=st.integers(1, 50),
)
def test_pieces_are_verbatim_whatever_the_text_and_the_policy(
    first: str, second: str, policy: ChunkPolicy, assembly: Assembly, budget: int
) -> None:
    texts = {"a": first, "b": second}

    async def scenario() -> None:
        searcher = Searcher(await store_of(policy, assembly, texts))
        expected = await model(searcher, "word other", budget, assembly, texts)
        check(await searcher.context(Asked("word other", budget)), expected, texts)
        measured = lab_context(policy, budget, assembly, texts)
        assert [(p.key, p.start, p.end, p.text, p.score) for p in measured.pieces] == [
            (p.key, p.start, p.end, p.text, p.score) for p in expected.pieces
        ]
        await searcher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("assembly", ASSEMBLIES.values(), ids=ASSEMBLIES)
def test_a_log_that_was_appended_to_is_assembled_over_its_segments(
    policy: ChunkPolicy, assembly: Assembly
) -> None:
    logs = ["word one other\n\nother\n", "two word\nother\n\n", "word word\n"]
    texts = {"run.log": "".join(logs)}

    async def scenario() -> None:
        searcher = Searcher(await store_of(policy, assembly, {}, logs))
        for budget in (6, 8, 50):
            expected = await model(searcher, "word other", budget, assembly, texts)
            assert expected.pieces
            check(await searcher.context(Asked("word other", budget)), expected, texts)
        await searcher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("lines", "pieces"), [(2, 1), (MAX_BLANK, 1), (MAX_BLANK + 1, 2)])
def test_blank_space_joins_neighbours_up_to_a_bound(lines: int, pieces: int) -> None:
    async def scenario() -> None:
        texts = {"a": "word one" + "\n" * lines + "word two"}
        searcher = Searcher(await store_of(POLICIES["paragraph"], JOINED, texts))
        made = (await searcher.context(Asked("word", 10))).assembled
        assert (len(made.pieces), made.used) == (pieces, 4)
        await searcher.close()

    asyncio.run(scenario())


def test_chunks_that_are_no_hits_count_against_a_sentence_that_they_hold() -> None:
    texts = {"a": "One two three. Word five six. Seven eight nine. Ten eleven twelve."}

    async def scenario() -> None:
        searcher = Searcher(await store_of(POLICIES["sentence"], SENTENCES, texts))
        [piece] = (await searcher.context(Asked("ten", 3))).assembled.pieces
        assert piece.text == "Ten eleven twelve."
        await searcher.close()

    asyncio.run(scenario())


def test_nothing_is_joined_over_the_missing_lines_of_a_log() -> None:
    async def scenario() -> None:
        store = await store_of(POLICIES["paragraph"], JOINED, {}, ["word one\n\nword two\n"])
        writer = ShardWriter(store, ShardId(LOGS, 0), partitions=1, catalog=SourceCatalog())
        await writer.open()
        lines = {"v": 1, "op": "append", "source": "devex", "doc_id": "run.log"}
        appends = [(6, "word six\n", ""), (4, "other\n", "\nother"), (5, "\n", None)]
        for offset, (first, text, before) in enumerate(appends, start=1):
            event = {**lines, "first_line": first, "content": text}
            await writer.write([Record(LOGS, 0, offset, b"devex/run.log", orjson.dumps(event))])
            searcher = Searcher(store)
            pieces = (await searcher.context(Asked("word", 50))).assembled.pieces
            found = [piece.text for piece in pieces]
            if before is None:  # line 5 is there by now, and blank
                assert found == ["word one\n\nword two\nother\n\nword six"]
            else:
                assert found == ["word one\n\nword two" + before, "word six"]
            await searcher.close()

    asyncio.run(scenario())


def test_what_leads_a_section_is_read_where_it_is_no_hit_itself() -> None:
    text = "# Deploys\n\nBy hand.\n\nWord one.\n\nNothing.\n\n## Night\n\nOther.\n\nWord two.\n"

    async def scenario() -> None:
        searcher = Searcher(await store_of(POLICIES["paragraph"], SECTIONS, {"a": text}))
        for budget, expected in [
            (20, ["# Deploys\n\nBy hand.\n\nWord one.", "Word two."]),
            (6, ["Word one.", "Word two."]),
        ]:
            made = (await searcher.context(Asked("word", budget))).assembled
            assert [piece.text for piece in made.pieces] == expected
            assert (made.hits, made.left_out) == (2, ())
        await searcher.close()

    asyncio.run(scenario())
