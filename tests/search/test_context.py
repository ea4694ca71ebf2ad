"""Contexts of live documents: what a slow model assembles, of one release and one snapshot, verbatim."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_index import CANDIDATE, GENERATION, Document, LiveIndex, as_cut, chunks_of, expected_hits
from stepped_store import SteppedStore

from tessera.assembly.assemble import assemble
from tessera.assembly.assembly import ASSEMBLIES, JOINED, SENTENCES, Assembly
from tessera.assembly.passage import Context, Passage
from tessera.documents.identity import parse_uid
from tessera.errors import QueryError
from tessera.search import Searcher
from tessera.search.context import MAX_BUDGET, Asked, ContextAnswer, ContextPiece

QUERY = "word other"
DOCUMENTS = (
    Document(
        "a", "x.md", ("One word here. Some more.", "Other word\nover lines.", "nothing", "word. É other.")
    ),
    Document("a", "y.md", ("other other word",), access=("group:legal",)),
    Document("b", "z.md", ("longer text with a word in it", "Nothing at all.", "other")),
)


def words(text: str) -> int:
    return len(re.findall(r"\w+", text))


def model(
    documents: Sequence[Document],
    assembly: Assembly,
    budget: int,
    principals: frozenset[str] | None = None,
    floor: float = 0.0,
) -> Context:
    """The context, of whole texts and by the pure function alone."""
    texts = {document.key: document.text for document in documents}
    spans = {
        each.key: [(chunk.start, chunk.end) for chunk in chunks_of(each.paragraphs)] for each in documents
    }
    passages = []
    for hit in expected_hits(documents, QUERY, assembly.hits, principals):
        key = f"{hit.source}/{hit.doc_id}"
        start, end = spans[key][hit.ordinal]
        blank = re.compile(r"[ \t\r\n]*").match(texts[key], end)
        assert blank is not None
        passages.append(Passage(key, f"{key}#{hit.ordinal}", start, end, hit.score, hit.text, blank[0]))
    passages = [each for each in passages if each.score >= floor]
    leads = {each.uid: [lead_of(each, documents)] for each in passages}
    return assemble(assembly, passages, budget, words, spans, leads)


def lead_of(hit: Passage, documents: Sequence[Document]) -> Passage:
    """The first chunk of the hit's part: three chunks are one."""
    [document] = [each for each in documents if each.key == hit.key]
    number = int(hit.uid.partition("#")[2]) // 3 * 3
    chunk = chunks_of(document.paragraphs)[number]
    after = "\n\n" if chunk.end < len(document.text) else ""
    return Passage(
        hit.key,
        f"{hit.key}#{number}",
        chunk.start,
        chunk.end,
        0.0,
        document.text[chunk.start : chunk.end],
        after,
    )


def short(uid: str) -> str:
    named = parse_uid(uid)
    return f"{named.source}/{named.doc_id}#{named.ordinal}"


def check(documents: Sequence[Document], answer: ContextAnswer, expected: Context) -> None:
    """The answer is the model's; every piece is verbatim, at its lines, and nothing is there twice."""
    made = answer.assembled
    assert (made.used, made.budget) == (expected.used, expected.budget)
    assert made.used == sum(words(piece.text) for piece in made.pieces) <= made.budget
    assert [short(uid) for uid in made.left_out] == list(expected.left_out)
    assert [(p.start, p.end, p.text, p.score) for p in made.pieces] == [
        (p.start, p.end, p.text, p.score) for p in expected.pieces
    ]
    assert [[short(uid) for uid in p.uids] for p in made.pieces] == [list(p.uids) for p in expected.pieces]
    live = {(document.source, document.doc_id): document for document in documents}
    for piece in made.pieces:
        require_place(piece, live[piece.source, piece.doc_id])
    by_document: dict[tuple[str, str], list[ContextPiece]] = {}
    for piece in made.pieces:
        by_document.setdefault((piece.source, piece.doc_id), []).append(piece)
    for pieces in by_document.values():
        assert all(a.end < b.start for a, b in pairwise(sorted(pieces, key=lambda piece: piece.start)))


def require_place(piece: ContextPiece, document: Document) -> None:
    text = document.text
    assert piece.text == text[piece.start : piece.end]
    assert (piece.revision, piece.content_digest) == (document.revision, document.digest)
    assert piece.start_line == text.count("\n", 0, piece.start) + 1
    assert piece.end_line == text.count("\n", 0, piece.end - 1) + 1
    assert piece.headings


async def opened(assembly: Assembly | None = None, *documents: Document) -> tuple[LiveIndex, Searcher]:
    index = await LiveIndex(2).open()
    await index.upsert(*(documents or DOCUMENTS))
    await index.serve("r1", GENERATION, assembly=assembly)
    return index, Searcher(index.store)


WORD = st.sampled_from(["word", "other", "thing", "Word.", "other!", "Ünder", "one,"])
PARAGRAPH = st.lists(WORD, min_size=1, max_size=8).map(" ".join)
PARAGRAPHS = st.lists(st.lists(PARAGRAPH, min_size=1, max_size=3).map("\n".join), min_size=1, max_size=6).map(
    tuple
)


@settings(max_examples=60, deadline=None)
@given(
    first=PARAGRAPHS,
    second=PARAGRAPHS,
    budget=st.integers(1, 60),
    assembly=st.sampled_from(list(ASSEMBLIES.values())),
    restricted=st.booleans(),
)
def test_a_context_is_what_the_slow_model_assembles(
    first: tuple[str, ...], second: tuple[str, ...], budget: int, assembly: Assembly, restricted: bool
) -> None:
    documents = (
        Document("a", "x.md", first),
        Document("b", "y.md", second, access=("group:legal",)),
        Document("b", "z.md", ("other word and more",), access=("group:legal", "group:all")),
    )
    seen_as = frozenset({"*", "group:all"}) if restricted else None

    async def scenario() -> None:
        _, searcher = await opened(assembly, *documents)
        answer = await searcher.context(Asked(QUERY, budget), seen_as)
        assert (answer.release, answer.assembly) == ("r1", assembly.id)
        check(documents, answer, model(documents, assembly, budget, seen_as))
        await searcher.close()

    asyncio.run(scenario())


def test_a_log_that_grew_is_joined_over_segments_and_a_replaced_document_is_of_its_new_revision() -> None:
    async def scenario() -> None:
        index, searcher = await opened()
        for change in range(3):
            await index.append("a/x.md", (f"word {change}", "other one"))
            await index.upsert(Document("b", "z.md", ("other", f"word {change}"), revision=2 + change))
            for assembly in ASSEMBLIES.values():
                await index.serve("r1", GENERATION, assembly=assembly)
                answer = await searcher.context(Asked(QUERY, 50))
                check(list(index.live.values()), answer, model(list(index.live.values()), assembly, 50))
        await searcher.close()

    asyncio.run(scenario())


def test_what_a_caller_may_not_see_is_not_in_the_context_nor_named() -> None:
    async def scenario() -> None:
        _, searcher = await opened()
        for principals, seen in [
            (None, True),
            (frozenset({"*", "group:legal"}), True),
            (frozenset({"*"}), False),
        ]:
            for budget in (1, 3, 100):
                answer = (await searcher.context(Asked(QUERY, budget), principals)).assembled
                named = [*answer.left_out, *(uid for piece in answer.pieces for uid in piece.uids)]
                assert any("y.md" in uid for uid in named) is seen
        await searcher.close()

    asyncio.run(scenario())


def test_fewer_hits_one_source_and_a_floor_narrow_what_is_assembled() -> None:
    async def scenario() -> None:
        _, searcher = await opened()
        everything = (await searcher.context(Asked(QUERY, 100))).assembled
        one = (await searcher.context(Asked(QUERY, 100, k=1))).assembled
        assert (one.hits, [piece.source for piece in one.pieces]) == (1, ["a"])
        only = (await searcher.context(Asked(QUERY, 100), source="b")).assembled
        assert {piece.source for piece in only.pieces} == {"b"}
        best = max(piece.score for piece in everything.pieces)
        kept = await searcher.context(Asked(QUERY, 100, floor=best))
        check(DOCUMENTS, kept, model(DOCUMENTS, JOINED, 100, floor=best))
        assert (kept.assembled.hits, kept.assembled.evidence) == (1, True)
        none = (await searcher.context(Asked(QUERY, 100, floor=best + 0.001))).assembled
        assert (none.pieces, none.left_out, none.evidence) == ((), (), False)
        await searcher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"budget": 0}, "budget must be between 1 and 100,000 tokens"),
        ({"budget": MAX_BUDGET + 1}, "budget must be"),
        ({"k": 0}, "k must be 1 or more"),
        ({"k": -1}, "k must be between"),
        ({"k": 1001}, "k must be between"),
        ({"floor": -1.0}, "floor must be"),
        ({"floor": float("nan")}, "floor must be"),
        ({"query": "x" * 9000}, "a query may have"),
    ],
)
def test_what_is_out_of_bounds_is_refused(asked: dict[str, Any], words: str) -> None:
    async def scenario() -> None:
        _, searcher = await opened()
        with pytest.raises(QueryError, match=words):
            await searcher.context(Asked(**{"query": QUERY, "budget": 10, **asked}))
        await searcher.close()

    asyncio.run(scenario())


OF_RELEASE = {"r1": (GENERATION, JOINED), "r2": (CANDIDATE, SENTENCES), "r3": (GENERATION, SENTENCES)}


@pytest.mark.parametrize("released", ["r2", "r3"])
def test_the_release_may_move_at_any_point_of_a_request_and_its_assembly_with_it(released: str) -> None:
    async def scenario() -> None:
        seen = set()
        for at in count():
            store = SteppedStore()
            index = await LiveIndex(2, store=store).open()
            await index.upsert(*DOCUMENTS)
            await index.adopt(CANDIDATE)
            await index.backfill(CANDIDATE)
            await index.serve("r1", GENERATION, g2="gated")
            searcher = Searcher(store)
            await searcher.preload()

            async def move(index: LiveIndex = index) -> None:
                served, assembly = OF_RELEASE[released]
                other = {"g1": "g2", "g2": "g1"}[served]
                await index.serve(released, served, assembly=assembly, **{other: "retired"})  # type: ignore[arg-type]
                await index.upsert(Document("a", "x.md", ("other", "one word", "word more"), revision=9))

            before = list(index.live.values())
            store.watch(at, move)
            answer = await searcher.context(Asked(QUERY, 6))
            done = store.points <= at
            store.watch(None, None)
            await searcher.close()
            generation, assembly = OF_RELEASE[answer.release]
            assert (answer.generation, answer.assembly) == (generation, assembly.id)
            texts = [piece.text for piece in answer.assembled.pieces]
            states = [as_cut(generation, state) for state in (before, list(index.live.values()))]
            assert texts in [[piece.text for piece in model(state, assembly, 6).pieces] for state in states]
            seen.add(answer.release)
            if done:
                assert seen == {"r1", released}
                return

    asyncio.run(scenario())


def test_another_generation_is_assembled_as_the_release_says() -> None:
    async def scenario() -> None:
        index = await LiveIndex(2).open()
        await index.upsert(*DOCUMENTS)
        await index.adopt(CANDIDATE)
        await index.backfill(CANDIDATE)
        await index.serve("r1", GENERATION, assembly=SENTENCES, g2="gated")
        searcher = Searcher(index.store)
        answer = await searcher.context(Asked(QUERY, 6), generation=CANDIDATE)
        assert (answer.generation, answer.assembly) == (CANDIDATE, "sentences@1")
        check(DOCUMENTS, answer, model(as_cut(CANDIDATE, DOCUMENTS), SENTENCES, 6))
        await searcher.close()

    asyncio.run(scenario())
