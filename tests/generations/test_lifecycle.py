"""Random histories of changes, crashes, operators and readers, on both stores, against an obvious model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from dual_index import CATALOG, DOCUMENTS, LOGS, SHARDS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from installation import NAMESPACE, Installation, policy
from lifecycle_model import (
    Backend,
    Crash,
    Failpoints,
    InMemory,
    Live,
    chunks_of,
    fingerprint_of,
    in_redis,
    of_shard,
    ranked,
    records_of,
    shown,
)
from servers import RedisServer

from tessera.errors import QueryError, RefusedError, SequenceError, StaleSnapshotError
from tessera.events.change import Record
from tessera.generations import contraction
from tessera.generations.cases import Case, CaseSet, evidence_digest
from tessera.generations.control import ControlLog
from tessera.generations.cutover import AskedWaiver, cutover, rollback
from tessera.generations.proofs import compare_candidate, verify_candidate
from tessera.generations.registry import WRITTEN, Registry
from tessera.generations.verify import verify
from tessera.policies import load_policy
from tessera.search import Answer, PinnedGeneration, Searcher
from tessera.shards.backfill import Backfill
from tessera.shards.writer import ShardWriter
from tessera.store.base import Head, ShardId
from tessera.store.memory import MemoryStore

QUERY = "alpha beta"
EVERY = 100
DOC_IDS = ("a.md", "b/ü.md", "c.txt", "d.md")
LOG_IDS = ("run_1.log", "run_2.log")
EXAMPLES = {"memory": 25, "redis": 12}
"""Histories by kind of store; each takes about a second of one core."""

STEP_S = 1.0
"""What a step takes on the searcher's clock: leases are announced anew, and names asked for are forgotten."""

WORKER_CRASHES = (
    "batch.built", "batch.staged", "batch.committed", "generation.adopted", "backfill.staged",
    "backfill.committed", "backfill.completed", "contract.stepped",
)  # fmt: skip
MODULES_WITH_FAILPOINTS = (
    "tessera.shards.writer",
    "tessera.shards.caretaker",
    "tessera.generations.control",
    "tessera.generations.contraction",
)

ALLOWED = {
    "pause": {"building"},
    "resume": {"building"},
    "verify": {"building", "ready", "gated", "retired"},
    "compare": {"ready", "gated", "retired"},
    "cutover": {"ready", "gated"},
    "hold": WRITTEN,
    "release-hold": {*WRITTEN, "contracting", "contracted", "abandoned"},
    "abandon": {"building", "ready", "gated", "abandoned"},
    "contract": {"retired", "contracting", "contracted"},
}
"""From which states a command may succeed at all."""

words = st.sampled_from(("alpha", "beta", "gamma", "naïve", "δέλτα"))
paragraphs = st.lists(
    st.lists(words, min_size=1, max_size=9).map(" ".join) | st.just(" "), min_size=1, max_size=4
)
numbers = st.integers(0, 7)
MOSTLY = 6
worker_crashes = st.sampled_from(("",) * len(WORKER_CRASHES) + WORKER_CRASHES)
operator_crashes = st.sampled_from(("", "", "", "control.published", "control.put"))


@dataclass
class Pinned:
    """A comparison that goes on over several steps, and what it must go on finding."""

    held: AbstractAsyncContextManager[dict[str, PinnedGeneration]]
    views: dict[str, PinnedGeneration]
    documents: dict[str, Live]
    expected: dict[str, list[Any]]


class Lives(RuleBasedStateMachine):
    """One installation: two shards with a writer each, operators, and a searcher."""

    open_backend: Callable[[], Backend]
    failpoints: Failpoints
    slices: list[int]
    ends: dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.backend = self.run(self._connected())
        self.here = Installation(self.backend.store, settings={"max_building": 2, "cutover_wait_s": 0.15})
        self.log: dict[ShardId, list[Record]] = {shard: [] for shard in SHARDS}
        self.live: dict[str, Live] = {}
        self.revision = 0
        self.policies = {"g1": load_policy("paragraph")}
        self.versions: dict[int, tuple[bytes, bytes]] = {}
        self.gone: set[str] = set()
        self.pins: Pinned | None = None
        self.clock = 0.0
        self.ends.clear()
        self.run(self.here.open())
        self.searcher = Searcher(self.backend.store, reader="s1", clock=lambda: self.clock)

    def run(self, step: Awaitable[Any]) -> Any:
        return self.runner.run(step)  # type: ignore[arg-type]

    async def _connected(self) -> Backend:
        return self.open_backend()

    @initialize(
        texts=st.lists(paragraphs, min_size=1, max_size=3),
        stage=st.sampled_from(("building", "kept long enough", "cut over", "gated")),
    )
    def begin(self, texts: list[list[str]], stage: str) -> None:
        """Begin at once where most commands can succeed: few random ways lead there."""
        for number, text in enumerate([["alpha"], *texts]):
            self.upsert(number, text, "")
            self.append(number, text, "")
        self.create(6, "")
        if stage == "building":
            self.tick_all()
        else:
            self.qualify(0)
        if stage.startswith(("cut", "kept")):
            self.follow()
            self.cut_over(0, 60, None, "")
            assert self._served() == "g2"
        if stage.startswith("kept"):
            self.let_retention_pass()

    # Changes.

    @rule(number=numbers, text=paragraphs, crash=worker_crashes)
    def upsert(self, number: int, text: list[str], crash: str) -> None:
        self._put(DOC_IDS[number % len(DOC_IDS)], "\n\n".join(text) + "\n", crash)

    @rule(number=numbers, keep=st.integers(0, 2), crash=worker_crashes)
    def shrink(self, number: int, keep: int, crash: str) -> None:
        held = self.live.get(f"handbook/{DOC_IDS[number % len(DOC_IDS)]}")
        if held is not None:
            self._put(held.doc_id, "\n\n".join(held.text.split("\n\n")[:keep]) + "\n", crash)

    @rule(number=numbers, null=st.booleans(), crash=worker_crashes)
    def delete(self, number: int, null: bool, crash: str) -> None:
        self.revision += 1
        event = {
            "op": "delete",
            "source": "handbook",
            "doc_id": DOC_IDS[number % len(DOC_IDS)],
            "revision": self.revision,
        }
        self.live.pop(f"handbook/{event['doc_id']}", None)
        self._publish(DOCUMENTS, event["doc_id"], None if null else event, crash)

    @rule(number=numbers, behind=st.integers(1, 3))
    def publish_something_old(self, number: int, behind: int) -> None:
        """A revision that was overtaken changes nothing, whether its document lives or was deleted."""
        doc_id = DOC_IDS[number % len(DOC_IDS)]
        if any(
            record.key == f"handbook/{doc_id}".encode() and record.value for record in self.log[DOCUMENTS]
        ):
            event = {"op": "upsert", "source": "handbook", "doc_id": doc_id, "revision": 0}
            event |= {"media_type": "text/plain", "content": "alpha from the past\n" * behind}
            self._publish(DOCUMENTS, doc_id, event, "")

    @rule(number=numbers, lines=paragraphs, crash=worker_crashes)
    def append(self, number: int, lines: list[str], crash: str) -> None:
        doc_id = LOG_IDS[number % 2]
        held = self.live.get(f"devex/{doc_id}")
        if held is None:
            held = Live("devex", doc_id, "", len(self.log[LOGS]), "text/x-run-log")
        event = {"op": "append", "source": "devex", "doc_id": doc_id, "first_line": held.text.count("\n") + 1}
        content = "\n".join(lines) + "\n"
        self.live[held.key] = replace(held, text=held.text + content)
        self._publish(LOGS, doc_id, {**event, "content": content}, crash)

    @rule(number=numbers)
    def delete_a_log(self, number: int) -> None:
        self.live.pop(f"devex/{LOG_IDS[number % 2]}", None)
        self._publish(LOGS, LOG_IDS[number % 2], None, "")

    def _put(self, doc_id: str, text: str, crash: str) -> None:
        self.revision += 1
        media_type = "text/markdown" if doc_id.endswith(".md") else "text/plain"
        event = {"op": "upsert", "source": "handbook", "doc_id": doc_id, "revision": self.revision}
        self.live[f"handbook/{doc_id}"] = Live("handbook", doc_id, text, self.revision, media_type)
        self._publish(DOCUMENTS, doc_id, {**event, "media_type": media_type, "content": text}, crash)

    def _publish(self, shard: ShardId, doc_id: str, event: dict[str, Any] | None, crash: str) -> None:
        log = self.log[shard]
        source = "devex" if shard == LOGS else "handbook"
        value = None if event is None else json.dumps({"v": 1, **event}).encode()
        log.append(Record(shard.topic, 0, len(log), f"{source}/{doc_id}".encode(), value, (), 1))
        self.ends[str(shard)] = len(log)
        self.run(self._with_writer(shard, self._read_log, crash))

    async def _read_log(self, writer: ShardWriter) -> None:
        report = await writer.write(self.log[writer.head.shard][writer.head.applied + 1 :])
        assert not report.reasons

    # Workers.

    @rule(shard=st.sampled_from(SHARDS), crash=worker_crashes)
    def tick(self, shard: ShardId, crash: str) -> None:
        self.run(self._with_writer(shard, ShardWriter.tick, crash))

    @rule(shard=st.sampled_from(SHARDS), slices=st.integers(1, 3), crash=worker_crashes)
    def backfill(self, shard: ShardId, slices: int, crash: str) -> None:
        self.run(self._with_writer(shard, lambda writer: self._fill(writer, slices), crash))

    @rule(number=numbers, text=paragraphs | st.none())
    def change_amid_a_backfill(self, number: int, text: list[str] | None) -> None:
        """What the backfill has listed changes, or goes, before its turn comes."""
        self.backfill(DOCUMENTS, 0, "")
        waiting = self.run(self._waiting_for_backfill())
        if waiting:
            number = DOC_IDS.index(waiting[number % len(waiting)])
        if text is None:
            self.delete(number, False, "")
        else:
            self.upsert(number, text, "")
        self.backfill(DOCUMENTS, len(DOC_IDS), "")

    async def _waiting_for_backfill(self) -> list[str]:
        [head] = await self.backend.store.heads([DOCUMENTS])
        records = await records_of(self.backend.store, DOCUMENTS)
        return [
            key.partition("/")[2]
            for key, record in records.items()
            if head is not None and not record.indexed.keys() >= set(head.live)
        ]

    @rule(shard=st.sampled_from(SHARDS))
    def take_over(self, shard: ShardId) -> None:
        """Another worker claims the shard; the one before it may be alive, and is refused."""
        former = self.here.writers[shard]
        self.run(self._claim(shard))
        with pytest.raises(SequenceError):
            self.run(former.tick())

    @rule()
    def come_to_rest(self) -> None:
        """Left alone, workers finish: what is not paused becomes complete, and it verifies."""
        self.run(self._rest())

    async def _rest(self) -> None:
        registry = await self.here.operator().registry()
        for shard in SHARDS:
            for _ in range(2):
                await self._with_writer(shard, ShardWriter.tick, "")
                await self._with_writer(shard, lambda writer: self._fill(writer, EVERY), "")
        for head in await self._heads():
            assert set(head.live) == set(registry.written)
            for name, standing in head.standings.items():
                assert standing.complete or registry.generations[name].paused
        for name in registry.written:
            if not registry.generations[name].paused and name != registry.serving.name:
                found = await verify(self.backend.store, SHARDS, name, registry.serving.name, sample=3)
                assert found.passed, found.reasons

    async def _fill(self, writer: ShardWriter, slices: int) -> None:
        self.slices[:] = [slices]
        await writer.backfill(0, 5.0)

    async def _with_writer(
        self, shard: ShardId, work: Callable[[ShardWriter], Awaitable[object]], crash: str
    ) -> None:
        """Do the work; after a crash, or where the shard is not as it was left, another worker does it."""
        try:
            with self.failpoints.crashing(crash):
                await work(self.here.writers[shard])
        except (Crash, SequenceError):
            await self._claim(shard)
            await work(self.here.writers[shard])

    async def _claim(self, shard: ShardId) -> None:
        """As a worker does: reapply the control log, claim the shard, read from the applied offset on."""
        await ControlLog(self.here.log, NAMESPACE).reapply(self.backend.store)
        writer = ShardWriter(self.backend.store, shard, partitions=1, catalog=CATALOG)
        self.here.writers[shard] = writer
        await writer.open()
        await self._read_log(writer)

    # Operators.

    @rule(size=st.integers(3, 7), crash=operator_crashes)
    def create(self, size: int, crash: str) -> None:
        async def create() -> None:
            made = await self.here.operator().create(policy(size))
            assert made.name not in self.policies

        before = self._registry()
        self._command("create", "", create, crash)
        for name in self._registry().generations.keys() - before.generations.keys():
            self.policies[name] = policy(size)

    @rule(
        number=numbers,
        action=st.sampled_from(("pause", "resume", "hold", "release-hold")),
        crash=operator_crashes,
    )
    def steer(self, number: int, action: str, crash: str) -> None:
        operator = self.here.operator()
        steps = {
            "pause": operator.pause,
            "resume": operator.resume,
            "hold": lambda name: operator.hold(name, "kept"),
            "release-hold": operator.release_hold,
        }
        name = self._some(number, action)
        self._command(action, name, lambda: steps[action](name), crash)

    @rule(number=numbers, crash=operator_crashes)
    def verify(self, number: int, crash: str) -> None:
        name = self._some(number, "verify")
        whole = self.run(self._is_whole(name))

        async def verify() -> None:
            report = await verify_candidate(self.here.operator(), name, sample=3)
            assert report.passed == whole, report.reasons

        self._command("verify", name, verify, crash)

    @rule(
        number=numbers, passing=st.booleans(), expires_s=st.sampled_from((50, 5000)), crash=operator_crashes
    )
    def compare(self, number: int, passing: bool, expires_s: int, crash: str) -> None:
        name, baseline = self._some(number, "compare"), self._served()
        cases = self._cases(passing)

        async def compare() -> None:
            searcher = Searcher(self.backend.store)
            try:
                evidence, _ = await compare_candidate(
                    self.here.operator(), searcher, baseline, name, cases, expires_s=expires_s
                )
            except QueryError:
                written = (await self.here.registry()).written
                assert name not in written or not await self._is_whole(name)
                raise
            else:
                assert evidence.passed == (passing and len(cases.cases) > 1)
            finally:
                await searcher.close()

        if name != baseline:
            self._command("compare", name, compare, crash)

    def _cases(self, passing: bool) -> CaseSet:
        """Cases on each document that has a chunk, and one that is stale."""
        cases = [
            Case(each.key, "alpha", each.source, each.doc_id, 0, 1, evidence_digest(each.text[0]))
            for each in self.live.values()
            if each.text.strip()
        ]
        gone = Case("gone", "alpha", "handbook", "never.md", 0, 1, evidence_digest("a"))
        return CaseSet((*cases, gone), {"max_stale_share": 1.0 if passing else 0.0})

    @rule(number=numbers)
    def qualify(self, number: int) -> None:
        """All that a cutover asks for, for one generation."""
        name = self._some(number, "pause")
        if self._registry().generations[name].paused:
            self.run(self.here.operator().resume(name))
        self.come_to_rest()
        self.verify(number, "")
        self.compare(number, True, 5000, "")

    @rule(
        number=numbers,
        retention_s=st.sampled_from((0, 60)),
        why=st.sampled_from((None, None, "evidence: trusted", "shards: never")),
        crash=operator_crashes,
    )
    def cut_over(self, number: int, retention_s: int, why: str | None, crash: str) -> None:
        name = self._some(number, "cutover")
        waiver = AskedWaiver(why, 100) if why is not None else None
        candidate = self._registry().generations[name]
        proven = candidate.evidence is not None and candidate.evidence.passed
        proven = proven and candidate.evidence.expires_at_ms > self.here.now * 1000
        waived = candidate.waiver is not None and candidate.waiver.check == "evidence"

        async def move() -> None:
            await cutover(self.here.operator(), name, waiver, retention_s)
            assert proven or waived or why == "evidence: trusted"
            assert await self._is_whole(name)
            assert (await self.here.registry()).release.generation == name

        self._command("cutover", name, move, crash, may_waive=waiver is not None)

    @rule(crash=operator_crashes)
    def roll_back(self, crash: str) -> None:
        async def move() -> None:
            previous = (await self.here.operator().registry()).previous
            await rollback(self.here.operator())
            assert (await self.here.registry()).release == previous

        self._command("rollback", "", move, crash)

    @rule(number=numbers, wait=st.booleans(), crash=operator_crashes | st.just("contract.stepped"))
    def abandon(self, number: int, wait: bool, crash: str) -> None:
        self._remove("abandon", contraction.abandon, number, wait, crash)

    @rule(number=numbers, wait=st.booleans(), crash=operator_crashes | st.just("contract.stepped"))
    def contract(self, number: int, wait: bool, crash: str) -> None:
        self._remove("contract", contraction.contract, number, wait, crash)

    def _remove(
        self,
        action: str,
        step: Callable[..., Awaitable[contraction.Removal]],
        number: int,
        wait: bool,
        crash: str,
    ) -> None:
        """Begin a removal; ``wait`` for workers and searcher, and finish it."""
        name = self._some(number, action)
        generation = self._registry().generations[name]

        async def remove() -> None:
            removal = await step(self.here.operator(), name, wait_s=0)
            assert not generation.hold or generation.state not in WRITTEN
            assert not (removal.done and self.pins is not None and name in self.pins.views)
            if removal.done:
                self.gone.add(name)

        self._command(action, name, remove, crash)
        if wait:
            self.follow()
            self.come_to_rest()
            self._command(action, name, remove, "")

    @rule(number=numbers, read=st.booleans())
    def migrate(self, number: int, read: bool) -> None:
        """All of it at once, where nothing stands in the way; ``read``: while somebody reads both."""
        self.qualify(number)
        if read:
            self.run(self._unpin())
            self.pin(number)
        self.follow()
        self.cut_over(number, 60, None, "")
        self.let_retention_pass()
        self.contract(0, True, "")

    @rule()
    def let_retention_pass(self) -> None:
        self.here.now += 61

    @rule(followed=st.booleans())
    def lose_the_last_version_of_the_registry(self, followed: bool) -> None:
        """``followed``: the workers had seen it, and go on working."""
        if followed:
            self.tick_all()
        version, _ = self.run(self.backend.store.control())
        if version - 1 in self.versions:
            self.backend.put_back(version - 1, *self.versions[version - 1])
        if followed:
            self.tick_all()

    def tick_all(self) -> None:
        for shard in SHARDS:
            self.tick(shard, "")

    def _command(
        self,
        action: str,
        name: str,
        command: Callable[[], Awaitable[object]],
        crash: str,
        *,
        may_waive: bool = False,
    ) -> None:
        """Give the command: what is refused changes nothing, what is done was allowed."""
        before = self._registry()
        try:
            with self.failpoints.crashing(crash):
                self.run(command())
        except Crash:
            return
        except (RefusedError, QueryError):
            assert may_waive or self.run(self.here.registry()) == before
        else:
            if name:
                assert before.generations[name].state in ALLOWED[action]

    def _registry(self) -> Registry:
        """The registry as the next operator will find it."""
        registry: Registry = self.run(self.here.operator().registry())
        return registry

    def _some(self, number: int, action: str = "") -> str:
        """A generation, mostly one that the action may succeed for."""
        generations = self._registry().generations
        names = sorted(generations)
        fitting = [name for name in names if generations[name].state in ALLOWED.get(action, ())]
        chosen = fitting if fitting and number < MOSTLY else names
        return chosen[number % len(chosen)]

    # Readers.

    @rule()
    def follow(self) -> None:
        self.run(self.searcher.preload())

    @rule(number=numbers)
    def search_by_name(self, number: int) -> None:
        name = self._some(number)
        try:
            answer = self.run(self.searcher.search(QUERY, EVERY, generation=name))
        except QueryError:
            # Another than the served one answers only whole; workers may not have followed the registry yet.
            assert name != self._served()
            assert not (name in self._written() and self.run(self._is_whole(name)))
        else:
            self._require_answer(answer, name)

    @precondition(lambda self: self.pins is None)
    @rule(number=numbers)
    def pin(self, number: int) -> None:
        self.run(self._pin(sorted({self._served(), self._some(number)})))

    async def _pin(self, names: list[str]) -> None:
        held = self.searcher.pinned(names)
        try:
            views = await held.__aenter__()
        except QueryError:
            return
        expected = {name: ranked(self.live.values(), self.policies[name], QUERY) for name in names}
        self.pins = Pinned(held, views, dict(self.live), expected)

    @precondition(lambda self: self.pins is not None)
    @rule()
    def unpin(self) -> None:
        self.run(self._unpin())

    async def _unpin(self) -> None:
        pins, self.pins = self.pins, None
        if pins is not None:
            await pins.held.__aexit__(None, None, None)

    # What must hold after every step.

    @invariant()
    def time_passes_and_the_lease_is_kept(self) -> None:
        self.clock += STEP_S
        version, registry = self.run(self.backend.store.control())
        self.versions[version] = (registry, self.run(self.backend.store.release()))
        self.run(self.searcher._follower.announce())

    @invariant()
    def one_generation_serves_and_answers_as_if_it_was_built_from_nothing(self) -> None:
        registry = self.run(self.here.registry())
        serving = [each.name for each in registry.generations.values() if each.state == "serving"]
        assert serving == [registry.release.generation]
        assert self.run(self.backend.store.release()) == registry.release.to_json()
        answer = self.run(self.searcher.search(QUERY, EVERY))
        assert answer.release == registry.release.release
        self._require_answer(answer, serving[0])

    @invariant()
    def shards_hold_just_the_live_documents_and_say_so(self) -> None:
        self.run(self._check_shards())

    async def _check_shards(self) -> None:
        for head in await self._heads():
            documents = of_shard(self.live, head.shard)
            records = await records_of(self.backend.store, head.shard)
            assert records.keys() == documents.keys()
            for name, standing in head.standings.items():
                marked = {key: documents[key] for key, record in records.items() if name in record.indexed}
                cut = {key: each.spans(self.policies[name]) for key, each in marked.items()}
                chunks = await chunks_of(self.backend.store, head.shard, name)
                assert chunks == {key: spans for key, spans in cut.items() if spans}
                assert (standing.documents, standing.fingerprint) == fingerprint_of(marked.values())
                assert not standing.complete or marked == documents

    @invariant()
    def nothing_is_left_of_what_was_removed(self) -> None:
        for name in self.gone:
            for shard in SHARDS:
                assert not self.backend.left(shard, name)

    @invariant()
    def a_pinned_reader_finds_what_it_found_or_is_told_to_ask_again(self) -> None:
        if self.pins is None:
            return
        for name, view in self.pins.views.items():
            try:
                answer = self.run(view.search(QUERY, EVERY))
            except StaleSnapshotError:
                assert self.pins.documents != self.live
            else:
                assert shown(answer) == self.pins.expected[name]

    def _require_answer(self, answer: Answer, name: str) -> None:
        assert answer.generation == name
        assert {hit.policy for hit in answer.hits} <= {self.policies[name].id}
        assert answer.as_of == {str(shard): len(log) - 1 for shard, log in self.log.items()}
        assert shown(answer) == ranked(self.live.values(), self.policies[name], QUERY)

    async def _heads(self) -> list[Head]:
        heads = await self.backend.store.heads(SHARDS)
        return [head for head in heads if head is not None]

    async def _is_whole(self, name: str) -> bool:
        heads = await self._heads()
        return all(name in head.standings and head.standings[name].complete for head in heads)

    def _served(self) -> str:
        return str(self.run(self.here.registry()).release.generation)

    def _written(self) -> tuple[str, ...]:
        return tuple(self.run(self.here.registry()).written)

    def teardown(self) -> None:
        self.run(self._close())
        self.runner.close()

    async def _close(self) -> None:
        await self._unpin()
        await self.searcher.close()
        await self.backend.store.close()


@pytest.fixture(params=EXAMPLES)
def open_backend(request: pytest.FixtureRequest) -> Callable[[], Backend]:
    """Opens an empty store of each kind."""
    if request.param == "memory":
        return lambda: InMemory(MemoryStore())
    server: RedisServer = request.getfixturevalue("redis_server_running")
    return lambda: in_redis(server)


def test_whatever_happens_readers_see_one_whole_generation(
    open_backend: Callable[[], Backend], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    failpoints, slices, ends = Failpoints(), [0], {}

    async def high_watermarks(_: str, shards: list[ShardId], **_security: object) -> dict[ShardId, int]:
        return {shard: ends.get(str(shard), 0) for shard in shards}

    def take(fill: Backfill, _rate: float | None) -> list[str]:
        """A document a slice, for as many slices as the step allows."""
        slices[0] -= 1
        return [fill.keys.pop()] if fill.keys and slices[0] >= 0 else []

    monkeypatch.setattr("tessera.generations.operations.high_watermarks", high_watermarks)
    monkeypatch.setattr(Backfill, "take", take)
    for module in MODULES_WITH_FAILPOINTS:
        monkeypatch.setattr(f"{module}.failpoint", failpoints)
    machine = type(
        "Lives",
        (Lives,),
        {
            "open_backend": staticmethod(open_backend),
            "failpoints": failpoints,
            "slices": slices,
            "ends": ends,
        },
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES[request.node.callspec.params["open_backend"]],
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
