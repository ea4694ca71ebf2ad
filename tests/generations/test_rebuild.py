"""A rebuild from the log: what it would lose is found out before anything is emptied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from dual_index import CATALOG, DOCUMENTS, LOGS, SHARDS
from hypothesis import given, settings
from hypothesis import strategies as st
from installation import Installation, broker_that_knows

from tessera.errors import RefusedError
from tessera.events.change import Record
from tessera.events.digest import record_digest
from tessera.generations.cutover import cutover, plan_cutover
from tessera.generations.rebuild import ShardRebuild, losses, losses_in_words, plan_rebuild, rebuild
from tessera.kafka.probe import LogState, judge
from tessera.kafka.reader import Bounds
from tessera.store.base import NO_OFFSET, ShardId

MARKDOWN = "text/markdown"
SOURCES = {"handbook": DOCUMENTS, "devex": LOGS}


class Topics:
    """Logs as a broker holds them, one partition each; ``starts`` are their first offsets."""

    def __init__(self) -> None:
        self.records: dict[ShardId, list[Record]] = {shard: [] for shard in SHARDS}
        self.starts = dict.fromkeys(SHARDS, 0)

    def add(self, source: str, doc_id: str, **event: Any) -> Record:
        shard = SOURCES[source]
        value = orjson.dumps({"v": 1, "source": source, "doc_id": doc_id, **event})
        offset = len(self.records[shard])
        record = Record(shard.topic, 0, offset, f"{source}/{doc_id}".encode(), value, (), 1_700_000_000_000)
        self.records[shard].append(record)
        return record

    def made_anew(self) -> None:
        """What a broker without its disk has: nothing, from offset 0 on."""
        self.records = {shard: [] for shard in SHARDS}
        self.starts = dict.fromkeys(SHARDS, 0)

    async def probe(
        self, _: str, applied: Mapping[ShardId, tuple[int, str]], **__: object
    ) -> dict[ShardId, LogState]:
        states = {}
        for shard, (offset, digest) in applied.items():
            records, start = self.records[shard], self.starts[shard]
            there = records[offset] if start <= offset < len(records) else None
            found = None if there is None else record_digest(there)
            states[shard] = judge(Bounds(start, len(records)), offset, digest, found)
        return states

    @asynccontextmanager
    async def opened(self, _: str, shards: Collection[ShardId], __: object) -> AsyncIterator[Topics]:
        yield self

    async def batches(self, shard: ShardId) -> AsyncIterator[list[Record]]:
        for record in self.records[shard][self.starts[shard] :]:
            yield [record]


class Rebuilding:
    """An installation whose writers read from :class:`Topics`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics = Topics()
        self.here = Installation()
        self.here.settings = {"broker": "b:1"}
        monkeypatch.setattr("tessera.generations.rebuild.probe_log", self.topics.probe)
        monkeypatch.setattr("tessera.generations.rebuild.open_reader", self.topics.opened)
        monkeypatch.setattr("tessera.settings.Settings.catalog", CATALOG)
        broker_that_knows(monkeypatch, {})

    async def open(self) -> Rebuilding:
        await self.here.open()
        return self

    async def read(self) -> None:
        """What workers do: apply what their shard has not applied yet."""
        for shard, writer in self.here.writers.items():
            await writer.open()
            fresh = self.topics.records[shard][max(writer.head.applied + 1, self.topics.starts[shard]) :]
            if fresh:
                await writer.write(fresh)

    async def put(self, doc_id: str, content: str, revision: int, **more: Any) -> None:
        self.topics.add(
            "handbook",
            doc_id,
            op="upsert",
            revision=revision,
            media_type=MARKDOWN,
            content=content,
            **more,
        )
        await self.read()

    async def delete(self, doc_id: str, revision: int) -> None:
        self.topics.add("handbook", doc_id, op="delete", revision=revision)
        await self.read()

    async def append(self, doc_id: str, first_line: int, content: str) -> None:
        self.topics.add("devex", doc_id, op="append", first_line=first_line, content=content)
        await self.read()

    async def adopt_logs(self) -> None:
        for shard in SHARDS:
            await self.here.store.adopt_log(shard)

    async def plan(self) -> list[ShardRebuild]:
        return await plan_rebuild(self.here.operator())

    async def rebuild(self, **how: Any) -> None:
        await rebuild(self.here.operator(), await self.plan(), confirmed=True, **how)

    async def held(self) -> dict[str, tuple[object, ...]]:
        """What readers see: content, type and access of each live document."""
        seen = {}
        for shard in SHARDS:
            for key, data in await self.here.store.scan_documents(shard):
                record = orjson.loads(data)
                if not record["deleted"]:
                    seen[key] = (record["content_digest"], record["media_type"], tuple(record["access"]))
        return seen


def test_a_log_that_holds_everything_gives_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        it = await Rebuilding(monkeypatch).open()
        await it.put("a.md", "first\n", 1)
        await it.put("b.md", "second\n", 1)
        await it.delete("b.md", 2)
        await it.append("run_1.log", 1, "one\n")
        before = await it.held()
        plan = await it.plan()
        assert plan == [ShardRebuild(DOCUMENTS, 2, 0, 3, 1), ShardRebuild(LOGS, 0, 0, 1, 1)]
        assert plan[0].explanation == "reads 3 records, offsets 0 to 2; it holds 1 documents"
        with pytest.raises(RefusedError, match=r"empties 2 shards with 2 documents.*--yes"):
            await rebuild(it.here.operator(), plan, confirmed=False)
        assert await it.held() == before
        await it.rebuild()
        assert await it.held() == {}
        await it.read()
        assert await it.held() == before

    asyncio.run(scenario())


def test_documents_that_a_log_made_anew_does_not_hold_are_named_and_nothing_is_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        it = await Rebuilding(monkeypatch).open()
        for number in range(7):
            await it.put(f"{number}.md", f"text {number}\n", 1)
        await it.append("run_1.log", 1, "one\n")
        it.topics.made_anew()
        await it.adopt_logs()
        await it.put("3.md", "text of the new log\n", 2)
        before = await it.held()
        plan = await it.plan()
        assert [each.unreachable for each in plan] == [
            tuple(f"handbook/{n}.md" for n in (0, 1, 2, 4, 5, 6)),
            ("devex/run_1.log",),
        ]
        assert losses(plan) == 7
        assert losses_in_words(plan) == (
            "1 of devex, 6 of handbook would be lost, for the log does not hold them: devex/run_1.log, "
            "handbook/0.md, handbook/1.md, handbook/2.md, handbook/4.md, …"
        )
        assert (
            "its log is empty: nothing can be read; it holds 1 documents, and 1 of them"
            in plan[1].explanation
        )
        for lose in (0, 6):
            with pytest.raises(RefusedError, match="--lose 7") as refused:
                await rebuild(it.here.operator(), plan, confirmed=True, lose=lose)
            assert refused.value.reason == "unreachable"
        assert await it.held() == before
        await it.rebuild(lose=7)
        await it.read()
        assert set(await it.held()) == {"handbook/3.md"}

    asyncio.run(scenario())


def test_publishing_again_what_is_held_is_what_makes_the_log_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index takes it for nothing new, so its own records do not tell: the log has to be read."""

    async def scenario() -> None:
        it = await Rebuilding(monkeypatch).open()
        await it.put("a.md", "text\n", 1)
        await it.append("run_1.log", 1, "one\ntwo\n")
        it.topics.made_anew()
        await it.adopt_logs()
        await it.append("run_1.log", 3, "three\n")
        assert losses(await it.plan()) == 2
        await it.put("a.md", "text\n", 1)
        assert losses_in_words(await it.plan()).startswith("1 of devex")
        await it.append("run_1.log", 1, "one\ntwo\nthree\n")
        assert losses(await it.plan()) == 0

    asyncio.run(scenario())


def test_a_log_that_was_replaced_and_not_adopted_holds_nothing_of_what_was_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        it = await Rebuilding(monkeypatch).open()
        await it.put("a.md", "text\n", 1)
        await it.put("b.md", "text\n", 1)
        it.topics.made_anew()
        it.topics.add("handbook", "a.md", op="upsert", revision=9, media_type=MARKDOWN, content="new\n")
        it.topics.add("handbook", "c.md", op="upsert", revision=9, media_type=MARKDOWN, content="new\n")
        assert (await it.plan())[0].unreachable == ("handbook/a.md", "handbook/b.md")

    asyncio.run(scenario())


def test_a_delete_that_is_gone_from_the_log_would_bring_the_document_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        it = await Rebuilding(monkeypatch).open()
        await it.put("a.md", "text\n", 5)
        await it.delete("a.md", 6)
        await it.put("a.md", "an old version, late\n", 3)
        await it.put("b.md", "kept\n", 1)
        it.topics.starts[DOCUMENTS] = 2
        [plan, _] = await it.plan()
        assert (plan.unreachable, plan.returning) == ((), ("handbook/a.md",))
        with pytest.raises(RefusedError, match="1 of handbook were deleted and would come back"):
            await it.rebuild()
        it.topics.add("handbook", "a.md", op="delete", revision=7)
        await it.read()
        await it.rebuild()
        await it.read()
        assert set(await it.held()) == {"handbook/b.md"}

    asyncio.run(scenario())


def test_a_rebuild_is_a_step_that_voids_proofs_of_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        it = await Rebuilding(monkeypatch).open()
        await it.put("a.md", "text\n", 1)
        await it.here.gated("g2")
        assert (await plan_cutover(it.here.operator(), "g2")).allowed
        await it.rebuild()
        registry = await it.here.registry()
        assert (registry.generations["g2"].state, registry.generations["g2"].evidence) == ("building", None)
        for generation in registry.generations.values():
            assert generation.steps[-1].action == "rebuild"
            assert generation.steps[-1].note == "1 documents in 2 shards are read again from the log"
        refused = {
            each.name for each in (await plan_cutover(it.here.operator(), "g2")).checks if not each.passed
        }
        assert refused == {"state", "documents", "evidence"}
        with pytest.raises(RefusedError):
            await cutover(it.here.operator(), "g2")
        await it.read()
        await it.here.operator().record_verified("g2", "g1", "equal")
        assert [c.name for c in (await plan_cutover(it.here.operator(), "g2")).checks if not c.passed] == [
            "evidence"
        ]

    asyncio.run(scenario())


def test_a_rebuild_of_nothing_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        it = Rebuilding(monkeypatch)
        await it.here.open([])
        assert await it.plan() == []
        assert await rebuild(it.here.operator(), [], confirmed=True) == []

    asyncio.run(scenario())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(0, 4), st.sampled_from(["one\n", "two\n"])),
        st.tuples(st.just("delete"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(
            st.just("append"), st.integers(0, 1), st.integers(1, 3), st.sampled_from(["x\n", "y\nz\n"])
        ),
        st.tuples(st.just("anew")),
        st.tuples(st.just("retention"), st.integers(0, 3)),
        st.tuples(st.just("rebuild")),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_what_the_plan_says_is_what_happens(steps: list[tuple[Any, ...]]) -> None:
    """Whatever came before, a rebuild loses and brings back exactly the documents that its plan names."""

    async def scenario(monkeypatch: pytest.MonkeyPatch) -> None:
        it = await Rebuilding(monkeypatch).open()
        for step in [*steps, ("rebuild",)]:
            if step[0] == "rebuild":
                await rebuilt_as_planned(it)
            else:
                await taken(it, step)

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(scenario(monkeypatch))


async def rebuilt_as_planned(it: Rebuilding) -> None:
    before, plan = await it.held(), await it.plan()
    await it.rebuild(lose=losses(plan))
    await it.read()
    after = await it.held()
    assert {key for key in before if after.get(key) != before[key]} == {
        k for p in plan for k in p.unreachable
    }
    assert after.keys() - before.keys() == {k for p in plan for k in p.returning}


async def taken(it: Rebuilding, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", number, revision, content):
            await it.put(f"{number}.md", content, revision)
        case ("delete", number, revision):
            await it.delete(f"{number}.md", revision)
        case ("append", number, first_line, content):
            await it.append(f"run_{number}.log", first_line, content)
        case ("anew",):
            it.topics.made_anew()
            await it.adopt_logs()
        case ("retention", removed):
            for shard, start in it.topics.starts.items():
                head = await it.here.store.head(shard)
                applied = NO_OFFSET if head is None else head.applied
                it.topics.starts[shard] = max(start, min(start + removed, applied + 1))
