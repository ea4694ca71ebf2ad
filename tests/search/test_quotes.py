"""Quotes against the index as it moves on: supported, stale, absent, and nothing for strangers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_store import SteppedStore
from test_context_policies import POLICIES, TEXT, store_of

from tessera.assembly.assembly import JOINED
from tessera.errors import QueryError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS, LOGS
from tessera.generations.bootstrap import bootstrap, contract_of, read_registry
from tessera.generations.registry import Generation, State
from tessera.releases import Release
from tessera.search import Searcher
from tessera.search.grounding import MAX_QUOTE_CHARACTERS, MAX_QUOTES, Grounded, Quote
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

EVERYONE = frozenset({"*"})
LEGAL = frozenset({"*", "group:legal"})
TEXT_A = "# Terms\n\nPay in thirty days.\n\nPay in thirty days or later.\n"


class Index:
    """A store and its writers; documents of ``handbook``, a log of ``devex``."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.searcher = Searcher(self.store)
        self.writers: dict[str, ShardWriter] = {}
        self.offsets = dict.fromkeys(CHANGE_TOPICS, 0)

    async def open(self) -> Index:
        await bootstrap(self.store, dict.fromkeys(CHANGE_TOPICS, 1))
        for topic in CHANGE_TOPICS:
            writer = ShardWriter(self.store, ShardId(topic, 0), partitions=1, catalog=SourceCatalog())
            await writer.open()
            self.writers[topic] = writer
        return self

    async def write(self, topic: str, event: dict[str, Any]) -> None:
        key = f"{event['source']}/{event['doc_id']}".encode()
        await self.writers[topic].write(
            [Record(topic, 0, self.offsets[topic], key, orjson.dumps({"v": 1, **event}))]
        )
        self.offsets[topic] += 1

    async def put(self, text: str, doc_id: str = "a.md", access: str = "*") -> None:
        event = {"op": "upsert", "source": "handbook", "doc_id": doc_id, "content": text}
        await self.write(DOCUMENTS, {**event, "media_type": "text/markdown", "access": [access]})

    async def delete(self, doc_id: str = "a.md") -> None:
        await self.write(DOCUMENTS, {"op": "delete", "source": "handbook", "doc_id": doc_id})

    async def append(self, first_line: int, text: str) -> None:
        event = {"op": "append", "source": "devex", "doc_id": "run.log", "first_line": first_line}
        await self.write(LOGS, {**event, "content": text})

    async def serve(self, release: str, served: str, policy: str, **states: State) -> None:
        """Serve another generation, made where it is not there yet."""
        registry = await read_registry(self.store)
        found = registry.generations.get(served, Generation(served, contract_of(POLICIES[policy]), "gated"))
        generations = {**registry.generations, served: found}
        await self._put(replace(registry, generations=generations))
        for writer in self.writers.values():
            await writer.tick()
            while await writer.backfill(0, 5.0):
                pass
        states[served] = "serving"
        moved = {
            name: replace(each, state=states.get(name, each.state)) for name, each in generations.items()
        }
        await self._put(replace(registry, release=Release(release, served), generations=moved))

    async def _put(self, registry: Any) -> None:
        version, _ = await self.store.control()
        moved = replace(registry, version=version + 1)
        assert await self.store.put_control(version, moved.to_json(), moved.release.to_json())

    async def uid(self, ordinal: int = 0, doc_id: str = "a.md", source: str = "handbook") -> str:
        chunks = await self.searcher.document_chunks(source, doc_id)
        assert chunks is not None
        return chunks[ordinal].uid

    async def digest(self, doc_id: str = "a.md", source: str = "handbook") -> str:
        chunks = await self.searcher.document_chunks(source, doc_id)
        assert chunks is not None
        return chunks[0].content_digest

    async def ask(
        self, uid: str, quote: str, principals: frozenset[str] | None = None, digest: str | None = None
    ) -> Grounded:
        [found] = (await self.searcher.ground([Quote(uid, quote, digest)], principals=principals)).quotes
        return found


def scenario(play: Callable[[Index], Awaitable[None]]) -> None:
    async def run() -> None:
        index = await Index().open()
        await play(index)
        await index.searcher.close()

    asyncio.run(run())


def told(found: Grounded) -> tuple[Any, ...]:
    return (
        found.verdict,
        found.reason,
        found.stands,
        (found.start, found.end),
        (found.start_line, found.end_line),
    )


NOWHERE = (None, None)
STRANGE = ("absent", "unknown", None, NOWHERE, NOWHERE)


def test_a_supported_quote_is_placed_in_the_chunk_it_is_cited_from() -> None:
    async def play(index: Index) -> None:
        await index.put(TEXT_A)
        second = TEXT_A.rindex("Pay")
        found = await index.ask(await index.uid(1), "Pay in thirty days")
        assert told(found) == ("supported", "held", True, (second, second + 18), (5, 5))
        assert found.content_digest == await index.digest()
        first = await index.ask(await index.uid(0), "Terms\n\nPay in")
        assert told(first) == ("supported", "held", True, (2, 15), (1, 3))

    scenario(play)


@settings(max_examples=50, deadline=None)
@given(text=TEXT, data=st.data(), policy=st.sampled_from(list(POLICIES.values())))
def test_every_slice_of_a_chunk_is_supported_at_its_place(
    text: str, data: st.DataObject, policy: Any
) -> None:
    async def run() -> None:
        searcher = Searcher(await store_of(policy, JOINED, {"a": text}))
        for hit in await searcher.document_chunks("handbook", "a") or []:
            start = data.draw(st.integers(0, len(hit.text) - 1))
            quote = hit.text[start : data.draw(st.integers(start + 1, len(hit.text)))]
            if not quote.strip():
                continue
            [found] = (await searcher.ground([Quote(hit.uid, quote)])).quotes
            assert found.verdict == "supported"
            assert found.start is not None
            assert hit.start <= found.start < (found.end or 0) <= hit.end
            assert text[found.start : found.end] == quote
            end = "\n" if "\n" in text else "\r"
            assert found.start_line == text.count(end, 0, found.start) + 1
            assert found.end_line == text.count(end, 0, (found.end or 0) - 1) + 1
        await searcher.close()

    asyncio.run(run())


def test_a_changed_document_makes_quotes_stale_and_tells_whether_they_still_stand() -> None:
    async def play(index: Index) -> None:
        await index.put(TEXT_A)
        uid = await index.uid(0)
        await index.put("New.\n\n" + TEXT_A)
        found = await index.ask(uid, "Pay in thirty days.")
        assert told(found) == ("stale", "changed", True, (15, 34), (5, 5))
        assert found.content_digest == await index.digest()
        await index.put("Pay at once.")
        assert told(await index.ask(uid, "thirty")) == ("stale", "changed", False, NOWHERE, NOWHERE)
        await index.put("")
        assert told(await index.ask(uid, "thirty")) == ("stale", "changed", False, NOWHERE, NOWHERE)

    scenario(play)


def test_of_a_deleted_document_the_operator_is_told_and_nobody_else() -> None:
    async def play(index: Index) -> None:
        await index.put(TEXT_A)
        uid = await index.uid()
        await index.delete()
        assert told(await index.ask(uid, "Pay")) == ("stale", "deleted", None, NOWHERE, NOWHERE)
        # A deleted document's access is not kept, so nobody's right to know of it can be checked.
        assert told(await index.ask(uid, "Pay", EVERYONE)) == STRANGE

    scenario(play)


def test_what_a_caller_may_not_read_is_as_if_it_were_not() -> None:
    async def play(index: Index) -> None:
        await index.put(TEXT_A, access="group:legal")
        uid = await index.uid()
        made_up = uid.replace("a.md", "b.md")
        for principals, verdict in [(None, "supported"), (LEGAL, "supported"), (EVERYONE, "absent")]:
            assert (await index.ask(uid, "Pay", principals)).verdict == verdict
        for quote in ("Pay", "Nothing"):
            for digest in (None, await index.digest(), "sha256:0"):
                hidden = await index.ask(uid, quote, EVERYONE, digest)
                assert replace(hidden, uid="") == replace(await index.ask(made_up, quote, EVERYONE), uid="")
        await index.put(TEXT_A + "More.\n", access="group:legal")
        assert told(await index.ask(uid, "Pay", LEGAL))[:2] == ("stale", "changed")
        assert told(await index.ask(uid, "Pay", EVERYONE)) == STRANGE
        await index.put(TEXT_A + "More.\n", access="group:none")
        assert told(await index.ask(uid, "Pay", LEGAL)) == STRANGE

    scenario(play)


def test_what_was_never_there_is_absent() -> None:
    async def play(index: Index) -> None:
        await index.put(TEXT_A)
        uid = await index.uid(0)
        policy = uid.split("/")[2]
        assert told(await index.ask(uid, "never"))[:2] == ("absent", "not_in_chunk")
        # The text of another chunk is not this chunk's.
        assert told(await index.ask(uid, "or later"))[:2] == ("absent", "not_in_chunk")
        for strange in (
            f"handbook/a.md@0/{policy}/7",
            f"handbook/a.md@0/{policy}/9999999999",
            f"handbook/a.md@9/{policy}/0",
            "handbook/a.md@0/other%40000000000000/0",
            f"nowhere/a.md@0/{policy}/0",
            "",
            "anything at all",
            "x" * 5000,
        ):
            assert told(await index.ask(strange, "Pay")) == STRANGE

    scenario(play)


def test_a_log_keeps_its_chunks_where_it_grows() -> None:
    async def play(index: Index) -> None:
        await index.append(1, "one word\n\ntwo words\n")
        first, open_chunk = await index.uid(0, "run.log", "devex"), await index.uid(1, "run.log", "devex")
        digest = await index.digest("run.log", "devex")
        await index.append(4, "three words\n\nfour\n")
        for uid, quote, place in [(first, "one", (0, 3)), (open_chunk, "two words", (10, 19))]:
            found = await index.ask(uid, quote, digest=digest)
            assert (found.verdict, (found.start, found.end)) == ("supported", place)
            assert found.content_digest != digest
        gone = await index.ask(first, "gone", digest=digest)
        assert told(gone) == ("stale", "changed", False, NOWHERE, NOWHERE)
        assert (await index.ask(first, "gone")).reason == "not_in_chunk"

    scenario(play)


def test_chunks_of_another_generation_are_stale_also_when_it_is_gone() -> None:
    async def play(index: Index) -> None:
        await index.put(TEXT_A)
        old = await index.uid()
        await index.serve("r2", "g2", "window", g1="retired")
        expected = ("stale", "generation", True, (9, 12), (3, 3))
        assert told(await index.ask(old, "Pay")) == expected
        new = await index.uid()
        assert (await index.ask(new, "Terms")).verdict == "supported"
        [back] = (await index.searcher.ground([Quote(old, "Pay")], generation="g1")).quotes
        assert back.verdict == "supported"
        await index.serve("r3", "g2", "window", g1="contracted")
        assert told(await index.ask(old, "Pay")) == expected
        await index.put("Pay")
        assert told(await index.ask(old, "Pay"))[:2] == ("stale", "changed")

    scenario(play)


def test_answers_name_their_release_and_say_whether_there_is_evidence() -> None:
    async def play(index: Index) -> None:
        await index.put(TEXT_A)
        uid = await index.uid()
        for floor, evidence in [(None, True), (2.0, True), (2.1, False)]:
            answer = await index.searcher.ground(
                [Quote(uid, "Pay", score=2.0), Quote(uid, "no", score=9)], floor
            )
            assert (answer.release, answer.generation, answer.evidence) == ("r1", "g1", evidence)
            assert answer.as_of[f"{DOCUMENTS}/0"] == 0

    scenario(play)


def test_documents_that_have_moved_are_looked_through_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.search.grounding.MAX_LOOKED_BYTES", 20)

    async def play(index: Index) -> None:
        uids = []
        for name in ("a.md", "b.md"):
            await index.put("Pay now.", name)
            uids.append(await index.uid(0, name))
            await index.put("Pay now, today.", name)
        answer = await index.searcher.ground([Quote(uid, "Pay") for uid in (*uids, uids[0])])
        assert [(each.verdict, each.stands) for each in answer.quotes] == [
            ("stale", True),
            ("stale", None),
            ("stale", True),
        ]

    scenario(play)


@pytest.mark.parametrize(
    ("quotes", "floor", "words"),
    [
        ([], None, "between 1 and 100 quotes"),
        ([Quote("u", "q")] * (MAX_QUOTES + 1), None, "not 101"),
        ([Quote("u", "")], None, "quote 0: give between 1 and 10,000 characters, not 0"),
        ([Quote("u", " \n")], None, "quote 0: is blank"),
        ([Quote("u", "q" * (MAX_QUOTE_CHARACTERS + 1))], None, "not 10,001"),
        ([Quote("u", "q", score=float("nan"))], None, "no number"),
        ([Quote("u", "q")], -0.1, "floor"),
        ([Quote("u", "q")], float("inf"), "floor"),
    ],
)
def test_what_is_out_of_bounds_is_refused(quotes: list[Quote], floor: float | None, words: str) -> None:
    async def play(index: Index) -> None:
        with pytest.raises(QueryError, match=words):
            await index.searcher.ground(quotes, floor)

    scenario(play)


def test_a_document_may_change_or_go_at_any_point_of_a_request() -> None:
    async def run() -> None:
        seen = set()
        for at in count():
            store = SteppedStore()
            index = await Index(store).open()
            await index.put(TEXT_A)
            old = await index.uid()
            await index.put("Pay soon.")
            current = await index.uid()
            to_come = current.replace("handbook/a.md@1/", "handbook/a.md@2/")

            async def happen(index: Index = index) -> None:
                await index.put("Pay never.")

            store.watch(at, happen)
            quotes = [Quote(old, "Pay"), Quote(current, "soon"), Quote(to_come, "never")]
            answer = (await index.searcher.ground(quotes)).quotes
            done = store.points <= at
            store.watch(None, None)
            await index.searcher.close()
            assert told(answer[0])[:3] == ("stale", "changed", True)
            found = (told(answer[1])[:3], told(answer[2])[:2])
            assert found in [
                (("supported", "held", True), ("absent", "unknown")),
                (("stale", "changed", False), ("supported", "held")),
            ], at
            seen.add(found)
            if done:
                assert len(seen) == 2
                return

    asyncio.run(run())
