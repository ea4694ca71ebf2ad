from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reading import check_shard, read_records
from test_writer import CATALOG, DOCUMENTS, LINES, LOGS, Log, append, delete, new_writer, texts, upsert

from tessera.generations.bootstrap import contract_of, read_registry
from tessera.generations.registry import Generation
from tessera.policies import load_policy
from tessera.shards import backfill, caretaker, sampling
from tessera.shards.fingerprint import add, contribution
from tessera.shards.writer import ShardWriter
from tessera.store.base import NO_FINGERPRINT
from tessera.store.memory import MemoryStore

PARAGRAPH, WINDOW = load_policy("paragraph"), load_policy("window-200")


async def move(store: MemoryStore, **generations) -> None:
    """Put these generations into the registry as a control record would."""
    registry = await read_registry(store)
    named = {**registry.generations, **generations}
    moved = replace(registry, version=registry.version + 1, generations=named)
    assert await store.put_control(registry.version, moved.to_json(), moved.release.to_json())


def second(state="building", **changes) -> Generation:
    return replace(Generation("g2", contract_of(WINDOW), state), **changes)


async def fill(writer: ShardWriter) -> None:
    await writer.tick()
    while await writer.backfill(0, 5.0):
        pass


async def check_both(store, shard, expected) -> None:
    await check_shard(store, shard, expected, PARAGRAPH, "g1")
    await check_shard(store, shard, expected, WINDOW, "g2")
    head = await store.head(shard)
    records = await read_records(store, shard)
    total = NO_FINGERPRINT
    for key, record in records.items():
        if not record.deleted:
            total = add(total, contribution(key, record.revision, record.content_digest), 0)
    for standing in head.standings.values():
        assert (standing.fingerprint, standing.documents) == (total, len(expected))
        assert standing.complete


changes = st.one_of(
    st.builds(upsert, st.sampled_from("vwxyz"), st.integers(0, 9), texts),
    st.builds(delete, st.sampled_from("vwxyz"), st.integers(0, 9)),
)


@given(
    events=st.lists(changes, max_size=20),
    adopted=st.integers(0, 20),
    step=st.integers(1, 6),
    size=st.integers(1, 4),
)
@settings(max_examples=80, deadline=None)
def test_documents_of_a_backfilled_and_dual_written_generation_equal_those_cut_at_once(
    events, adopted, step, size
):
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        for number, start in enumerate(range(0, len(events) + 1, step)):
            if start <= adopted < start + step:
                await move(store, g2=second())
                await writer.tick()
            records = [log.add(event) for event in events[start : start + step]]
            if records:
                await writer.write(records)
            if number % 2 and "g2" in writer.head.live:
                fill_ = writer._caretaker._backfills.get("g2")
                if fill_ is not None:
                    fill_.size = size
                await writer.backfill(0, 0.0005)
        if "g2" not in writer.head.live:
            await move(store, g2=second())
        await fill(writer)
        live = {key: r for key, r in (await read_records(store, DOCUMENTS)).items() if not r.deleted}
        winners = {}
        for event in events:
            winners.setdefault(f"handbook/{event['doc_id']}", []).append(event)
        expected = {}
        for key in live:
            contents = [
                e["content"]
                for e in winners[key]
                if e.get("revision") == live[key].revision and "content" in e
            ]
            expected[key] = next(c for c in contents if digest(c) == live[key].content_digest)
        await check_both(store, DOCUMENTS, expected)

    asyncio.run(run())


def digest(text: str) -> str:
    from tessera.documents.digests import document_digest

    return document_digest(text)


@given(lines=LINES, adopted=st.integers(0, 29), step=st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_logs_that_grow_during_a_backfill_are_whole_in_both_generations(lines, adopted, step):
    async def run() -> None:
        store, log = MemoryStore(), Log(LOGS)
        writer = await new_writer(store, LOGS)
        for start in range(0, len(lines), step):
            if start <= adopted < start + step:
                await move(store, g2=second())
                await writer.tick()
            text = "".join(f"{line}\n" for line in lines[start : start + step])
            await writer.write([log.add(append("r.log", start + 1, text))])
        if "g2" not in writer.head.live:
            await move(store, g2=second())
        await fill(writer)
        await check_both(store, LOGS, {"devex/r.log": "".join(f"{line}\n" for line in lines)})

    asyncio.run(run())


def test_a_killed_backfill_is_gone_on_with_by_the_next_writer_and_repeats_nothing(monkeypatch):
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert(f"d{n}", 1, f"text {n}")) for n in range(40)])
        await move(store, g2=second(rate=7.0))
        await writer.tick()
        await writer.backfill(0, 0.2)
        await asyncio.sleep(0.2)
        await writer.backfill(0, 0.2)
        written = writer.head.standings["g2"].documents
        assert 0 < written < 40
        monkeypatch.setattr(caretaker, "build_slice", counting := Counting(caretaker.build_slice))
        await move(store, g2=second())
        again = ShardWriter(store, DOCUMENTS, partitions=1, catalog=CATALOG)
        await again.open()
        await fill(again)
        assert counting.keys == 40 - written
        await check_both(store, DOCUMENTS, {f"handbook/d{n}": f"text {n}" for n in range(40)})

    asyncio.run(run())


class Counting:
    def __init__(self, real) -> None:
        self._real, self.keys = real, 0

    async def __call__(self, store, head, generation, keys, *rest):
        self.keys += len(keys)
        return await self._real(store, head, generation, keys, *rest)


@pytest.mark.parametrize(
    ("changes", "lag", "note"),
    [({"paused": True}, 0, "paused by an operator"), ({}, 10_000, "waiting: live changes come first")],
)
def test_a_backfill_that_waits_says_why_and_goes_on_by_itself(changes, lag, note):
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert("a", 1, "text"))])
        await move(store, g2=second(**changes))
        await writer.tick()
        assert not await writer.backfill(lag, 1.0)
        standing = (await store.head(DOCUMENTS)).standings["g2"]
        assert (standing.note, standing.complete, standing.documents) == (note, False, 0)
        await move(store, g2=second())
        await fill(writer)
        standing = (await store.head(DOCUMENTS)).standings["g2"]
        assert (standing.note, standing.complete, standing.documents) == ("", True, 1)

    asyncio.run(run())


def test_a_document_whose_text_is_gone_is_named_in_the_log_and_the_rest_is_written(caplog):
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert(name, 1, f"text {name}")) for name in "abc"])
        lost = (await read_records(store, DOCUMENTS))["handbook/b"].text_blobs()
        for blob in lost:
            del store._at(DOCUMENTS).blobs[blob]
        await move(store, g2=second())
        await fill(writer)
        standing = (await store.head(DOCUMENTS)).standings["g2"]
        assert (standing.complete, standing.documents) == (False, 2)
        assert standing.note.startswith("1 documents cannot be read")
        assert "'handbook/b'" in caplog.text
        await writer.write([log.add(upsert("b", 2, "new"))])
        writer._caretaker._backfills["g2"].listed_at = -1000.0
        await fill(writer)
        await check_both(
            store, DOCUMENTS, {"handbook/a": "text a", "handbook/b": "new", "handbook/c": "text c"}
        )

    asyncio.run(run())


def test_a_generation_given_up_is_removed_in_steps_once_no_reader_holds_it():
    async def run() -> None:
        now = [1000.0]
        store, log = MemoryStore(clock=lambda: now[0]), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert(name, 1, f"text {name}")) for name in "abc"])
        await move(store, g2=second())
        await fill(writer)
        await store.announce(
            "reader", b'{"release":"r1","generations":["g2"],"in_use":["g2"],"follows":true}', 10.0
        )
        await move(store, g2=second("abandoned"))
        await writer.tick()
        assert writer.head.live == ("g1",)
        assert any("/g2/" in blob for blob in store._at(DOCUMENTS).blobs)
        await writer.write([log.add(upsert("a", 2, "newer"))])
        now[0] += 11.0
        await move(store, g2=second("abandoned"))
        await writer.tick()
        assert not any("/g2/" in blob for blob in store._at(DOCUMENTS).blobs)
        assert not any(":g2:" in name for name in await store.counters(DOCUMENTS))
        expected = {"handbook/a": "newer", "handbook/b": "text b", "handbook/c": "text c"}
        await check_shard(store, DOCUMENTS, expected, PARAGRAPH)

    asyncio.run(run())


@pytest.mark.parametrize(
    "changed",
    [{"analyzer": "words@1/unicode-0.0.0"}, {"policy_canonical": {"documents": {"parser": "later@9"}}}],
)
def test_a_generation_that_this_build_cannot_write_is_not_adopted_and_stops_nothing(changed, caplog):
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        foreign = replace(contract_of(WINDOW), **changed)
        await move(store, g2=Generation("g2", foreign, "building"))
        await fill(writer)
        await writer.open()
        await writer.write([log.add(upsert("v", 1, "alpha\n"))])
        assert (await store.head(writer.head.shard)).live == ("g1",)
        assert "does not adopt g2" in caplog.text
        await move(store, g2=Generation("g2", foreign, "abandoned"), g3=replace(second(), name="g3"))
        await fill(writer)
        assert writer.head.live == ("g1", "g3")

    asyncio.run(run())


def test_a_record_that_cannot_be_read_keeps_its_generation_incomplete_and_stops_nothing():
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert(key, 1, "alpha\n")) for key in "vw"])
        shard = writer.head.shard
        documents = store._shards[shard].documents
        damaged = min(documents)
        documents[damaged] = b"\0"
        await move(store, g2=second())
        await fill(writer)
        await fill(writer)
        standing = writer.head.standings["g2"]
        assert (standing.complete, standing.documents) == (False, 1)
        assert standing.note.startswith("1 documents cannot be read")
        await writer.write([log.add(upsert("v", 2, "beta\n")), log.add(upsert("w", 2, "beta\n"))])
        writer._caretaker._backfills.clear()
        await fill(writer)
        assert writer.head.standings["g2"].complete

    asyncio.run(run())


def test_a_document_that_cannot_be_cut_keeps_its_generation_incomplete_and_stops_nothing(monkeypatch):
    cut = backfill.cut_document

    def failing(draft, *rest):
        if draft.doc_id == "v":
            raise IndexError
        return cut(draft, *rest)

    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert(key, 1, "alpha\n")) for key in "vw"])
        await move(store, g2=second())
        monkeypatch.setattr(backfill, "cut_document", failing)
        await fill(writer)
        await fill(writer)
        standing = writer.head.standings["g2"]
        assert (standing.complete, standing.documents) == (False, 1)
        assert standing.note.startswith("1 documents cannot be read")

    asyncio.run(run())


def test_a_slice_holds_no_more_text_than_it_may_and_one_document_at_least(monkeypatch):
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert(f"v{n}", 1, "alpha " * 20 + "\n")) for n in range(9)])
        await move(store, g2=second())
        monkeypatch.setattr(backfill, "SLICE_BYTES", 250)
        seq = writer.head.seq
        await fill(writer)
        assert writer.head.standings["g2"].documents == 9
        assert writer.head.seq - seq == 1 + 5 + 1  # adopted; two documents of 121 bytes at a time; complete

    asyncio.run(run())


def test_what_a_backfill_cuts_is_told_beside_the_batches(monkeypatch):
    monkeypatch.setattr(sampling, "ONE_IN", 1)

    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert("v", 1, "One two three. Four five.\n"))])
        await move(store, g2=second())
        writer.take_side_work()
        await fill(writer)
        done = writer.take_side_work()
        assert done.backfilled == {"g2": 1}
        assert sum(done.cut["g2"].tokens) >= 5
        assert done.cut["g2"].whole.total() + done.cut["g2"].split.total() == sampling.SPANS
        assert writer.take_side_work().cut == {}

    asyncio.run(run())
