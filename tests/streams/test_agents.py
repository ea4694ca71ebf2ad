"""Raw records through the real agents into a store, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import orjson
import pytest

from streams.driver import Driver
from tessera import metrics
from tessera.documents.record import DocumentRecord
from tessera.errors import UnavailableError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Record
from tessera.events.decoding import DAMAGED_HEADER
from tessera.events.digest import record_digest
from tessera.events.topics import DEADLETTER_TOPIC, DOCUMENTS, LOGS, partition_of
from tessera.kafka.probe import LogState
from tessera.shards.deadletters import list_deadletters
from tessera.shards.writer import BatchReport, ShardWriter
from tessera.store.base import Head, ShardId
from tessera.store.memory import MemoryStore

CATALOG = SourceCatalog(
    [SourceDeclaration("handbook", "documents", "event"), SourceDeclaration("devex", "devex")]
)
PARTITIONS = 2


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def driver(store: MemoryStore, **options: Any) -> Driver:
    return Driver(store, catalog=CATALOG, partitions=PARTITIONS, **options)


def shard_of(doc_id: str) -> ShardId:
    return ShardId(DOCUMENTS, partition_of(f"handbook/{doc_id}".encode(), PARTITIONS))


def ids_in(shard: ShardId, count: int) -> list[str]:
    """Document ids that belong to a shard."""
    return [name for number in range(200) if shard_of(name := f"d{number}.md") == shard][:count]


def upsert(doc_id: str, offset: int, revision: int = 1, content: str = "# Title\n\nbody\n") -> Record:
    value = orjson.dumps(
        {
            "v": 1,
            "op": "upsert",
            "source": "handbook",
            "doc_id": doc_id,
            "revision": revision,
            "media_type": "text/markdown",
            "content": content,
        }
    )
    shard = shard_of(doc_id)
    return Record(shard.topic, shard.partition, offset, f"handbook/{doc_id}".encode(), value, (), 1_000)


async def revisions(store: MemoryStore, shard: ShardId) -> dict[str, int]:
    rows = await store.scan_documents(shard)
    return {key: DocumentRecord.decode(data, key).revision for key, data in rows}


async def applied(store: MemoryStore, shard: ShardId) -> int:
    head = await store.head(shard)
    assert head is not None
    return head.applied


SHARD = ShardId(DOCUMENTS, 0)


def test_records_of_both_topics_are_applied_and_their_offsets_advance() -> None:
    async def test() -> None:
        store = MemoryStore()
        key = b"devex/run_R-1"
        log = ShardId(LOGS, partition_of(key, PARTITIONS))
        line = orjson.dumps(
            {
                "v": 1,
                "op": "append",
                "source": "devex",
                "doc_id": "run_R-1",
                "first_line": 1,
                "content": "a\n",
            }
        )
        first, second = ids_in(SHARD, 2)
        async with driver(store) as subject:
            await subject.feed([upsert(first, 0), upsert(second, 1), upsert(first, 2, revision=5)])
            await subject.feed([Record(log.topic, log.partition, 0, key, line)])
        assert await revisions(store, SHARD) == {f"handbook/{first}": 5, f"handbook/{second}": 1}
        assert await applied(store, SHARD) == 2
        assert await applied(store, log) == 0
        assert [key for key, _ in await store.scan_documents(log)] == ["devex/run_R-1"]

    run(test())


def test_after_an_assignment_reading_goes_on_after_the_applied_record() -> None:
    async def test() -> None:
        store = MemoryStore()
        first, second = ids_in(SHARD, 2)
        async with driver(store) as subject:
            await subject.feed([upsert(first, 0), upsert(second, 1)])
            await subject.rebalance()
            assert subject.ownership.position(SHARD) == 2
            await subject.feed([upsert(first, 2, revision=2)])
        assert (await store.counters(SHARD))["records"] == 3
        assert await revisions(store, SHARD) == {f"handbook/{first}": 2, f"handbook/{second}": 1}

    run(test())


@pytest.mark.parametrize(
    "timestamp_ms",
    [
        next(ms for ms in range(1_000, 2_000) if int(ms / 1000 * 1000) != ms),
        1_700_000_000_123_456_789,  # nanoseconds: beyond what a float holds
        2**63 - 1,
        -(2**63),
        -1,
        0,
    ],
)
def test_a_record_is_known_again_by_its_digest_whatever_its_timestamp(timestamp_ms: int) -> None:
    async def test() -> None:
        store = MemoryStore()
        [doc_id] = ids_in(SHARD, 1)
        record = upsert(doc_id, 0)._replace(timestamp_ms=timestamp_ms, headers=(("h", b"v"),))
        async with driver(store) as subject:
            await subject.feed([record])
        head = await store.head(SHARD)
        assert head is not None
        assert head.record_digest == record_digest(record)

    run(test())


def test_an_undecodable_record_becomes_a_dead_letter_and_the_partition_moves_on() -> None:
    async def test() -> None:
        store = MemoryStore()
        [doc_id] = ids_in(SHARD, 1)
        key = f"handbook/{doc_id}".encode()
        async with driver(store) as subject:
            await subject.feed([Record(*SHARD, 0, key, b"\xff not json"), upsert(doc_id, 1)])
            assert await revisions(store, SHARD) == {f"handbook/{doc_id}": 1}
            await subject.upkeep()
            [(topic, produced_key, value, _)] = subject.produced
            assert (topic, produced_key, value) == (DEADLETTER_TOPIC, key, b"\xff not json")
            await subject.upkeep()
            assert len(subject.produced) == 1
        assert await store.outbox(SHARD) == []
        assert len(await store.deadletters(SHARD)) == 1

    run(test())


def test_a_record_out_of_a_damaged_batch_becomes_a_dead_letter_and_the_partition_moves_on() -> None:
    async def test() -> None:
        store = MemoryStore()
        [doc_id] = ids_in(SHARD, 1)
        lost = Record(*SHARD, 0, None, None, ((DAMAGED_HEADER, b"its checksum"),))
        async with driver(store) as subject:
            await subject.feed([lost, upsert(doc_id, 1)])
        [letter] = await list_deadletters(store)
        assert letter.reason == "damaged_batch"
        assert "its checksum" in letter.message
        assert await revisions(store, SHARD) == {f"handbook/{doc_id}": 1}

    run(test())


def test_a_writer_that_was_fenced_takes_the_shard_anew_and_loses_nothing() -> None:
    async def test() -> None:
        store = MemoryStore()
        first, second = ids_in(SHARD, 2)
        async with driver(store) as subject:
            await subject.feed([upsert(first, 0)])
            term = subject.app.term
            await store.claim(SHARD, ["g1"])  # someone else, unknown to the group
            await subject.feed([upsert(second, 1)])
            assert subject.app.term == term + 1
        assert await revisions(store, SHARD) == {f"handbook/{first}": 1, f"handbook/{second}": 1}

    run(test())


def test_a_store_that_lost_its_data_while_idle_is_filled_again_from_the_log() -> None:
    async def test() -> None:
        store = MemoryStore()
        first, second = ids_in(SHARD, 2)
        async with driver(store) as subject:
            await subject.feed([upsert(first, 0), upsert(second, 1)])
            store.__init__()  # type: ignore[misc]  # emptied, as by a server that was replaced
            await subject.upkeep()
        assert await revisions(store, SHARD) == {f"handbook/{first}": 1, f"handbook/{second}": 1}

    run(test())


class FaultyWriter(ShardWriter):
    """Raises what it is given, one error per call, before it works."""

    errors: list[Exception]

    async def write(self, records: Sequence[Record]) -> BatchReport:
        if self.errors:
            raise self.errors.pop(0)
        return await super().write(records)


def faulty(store: MemoryStore, errors: list[Exception]) -> Driver:
    def make(shard: ShardId) -> FaultyWriter:
        writer = FaultyWriter(store, shard, partitions=PARTITIONS, catalog=CATALOG)
        writer.errors = errors
        return writer

    return driver(store, make_writer=make)


def test_a_server_that_is_away_is_waited_for() -> None:
    async def test() -> None:
        store = MemoryStore()
        [doc_id] = ids_in(SHARD, 1)
        async with faulty(store, [UnavailableError("away"), UnavailableError("away")]) as subject:
            await subject.feed([upsert(doc_id, 0)])
        assert await revisions(store, SHARD) == {f"handbook/{doc_id}": 1}

    run(test())


def test_an_unknown_error_ends_the_process_and_commits_nothing() -> None:
    async def test() -> None:
        store = MemoryStore()
        [doc_id] = ids_in(SHARD, 1)
        with pytest.raises(ZeroDivisionError):
            async with faulty(store, [ZeroDivisionError()]) as subject:
                await subject.feed([upsert(doc_id, 0)])
        assert await applied(store, SHARD) == -1

    run(test())


def test_waiting_for_a_server_ends_with_the_assignment() -> None:
    async def test() -> None:
        store = MemoryStore()
        errors: list[Exception] = [UnavailableError("away")] * 10_000
        [doc_id] = ids_in(SHARD, 1)
        async with faulty(store, errors) as subject:
            feeding = asyncio.ensure_future(subject.feed([upsert(doc_id, 0)]))
            while len(errors) == 10_000:  # noqa: ASYNC110 - a few passes of the loop
                await asyncio.sleep(0)
            left = len(errors)
            errors.clear()
            await subject.app.rejoin()
            await feeding
            assert left > 9_000
        assert await revisions(store, SHARD) == {f"handbook/{doc_id}": 1}

    run(test())


def test_an_event_of_an_older_generation_of_the_group_is_dropped() -> None:
    async def test() -> None:
        store = MemoryStore()
        [doc_id] = ids_in(SHARD, 1)
        async with driver(store) as subject:
            subject.app.consumer_generation_id += 1
            subject.deliver(upsert(doc_id, 0), generation=subject.app.consumer_generation_id - 1)
            await subject.settle()
            assert await applied(store, SHARD) == -1
            await subject.feed([upsert(doc_id, 0)])
        assert await applied(store, SHARD) == 0

    run(test())


def test_a_record_lost_on_the_way_here_is_read_again() -> None:
    async def test() -> None:
        store = MemoryStore()
        first, second, third = ids_in(SHARD, 3)
        async with driver(store) as subject:
            subject.logs[SHARD].append(upsert(first, 0))  # in the log, never delivered
            await subject.feed([upsert(second, 1), upsert(third, 2)])
        assert len(await revisions(store, SHARD)) == 3
        assert await applied(store, SHARD) == 2

    run(test())


def test_a_hole_in_the_log_is_accepted_counted_and_loses_nothing() -> None:
    async def test() -> None:
        store = MemoryStore()
        first, second, third = ids_in(SHARD, 3)
        gaps = metrics.LOG_GAPS.labels(*SHARD)._value.get()
        async with driver(store) as subject:
            await subject.feed([upsert(first, 0), upsert(second, 3), upsert(third, 4)])
        assert len(await revisions(store, SHARD)) == 3
        assert await applied(store, SHARD) == 4
        assert metrics.LOG_GAPS.labels(*SHARD)._value.get() == gaps + 1

    run(test())


def test_a_foreign_log_is_refused_until_it_is_adopted_while_other_shards_go_on() -> None:
    other = ShardId(DOCUMENTS, 1)

    async def check(heads: Mapping[ShardId, Head]) -> Mapping[ShardId, LogState]:
        return {
            shard: LogState("foreign", 0, 2, None, "another record is there")
            if shard == SHARD and head.applied >= 0
            else LogState("continues", 0, head.applied + 1, None, "")
            for shard, head in heads.items()
        }

    async def test() -> None:
        store = MemoryStore()
        first, second = ids_in(SHARD, 2)
        [elsewhere] = ids_in(other, 1)
        async with driver(store, check_logs=check) as subject:
            await subject.feed([upsert(first, 0)])
            subject.logs[SHARD] = [upsert(second, 0), upsert(second, 1, revision=2)]
            await subject.rebalance()
            await subject.feed([upsert(second, 2, revision=3), upsert(elsewhere, 0)])
            assert await revisions(store, SHARD) == {f"handbook/{first}": 1}
            assert await revisions(store, other) == {f"handbook/{elsewhere}": 1}
            assert metrics.SHARD_REFUSED.labels(*SHARD)._value.get() == 1
            await subject.upkeep()
            assert await applied(store, SHARD) == 0

            await store.adopt_log(SHARD)
            await subject.upkeep()
            assert metrics.SHARD_REFUSED.labels(*SHARD)._value.get() == 0
        assert await revisions(store, SHARD) == {f"handbook/{first}": 1, f"handbook/{second}": 3}

    run(test())


def test_a_gap_in_the_log_is_counted_and_reading_goes_on_where_the_log_begins() -> None:
    async def check(heads: Mapping[ShardId, Head]) -> Mapping[ShardId, LogState]:
        return {shard: LogState("gap", 5, 6, None, "") for shard in heads}

    async def test() -> None:
        store = MemoryStore()
        [doc_id] = ids_in(SHARD, 1)
        gaps = metrics.LOG_GAPS.labels(*SHARD)._value.get()
        async with driver(store, check_logs=check) as subject:
            assert subject.ownership.position(SHARD) == 5
            await subject.feed([upsert(doc_id, 5)])
        assert await applied(store, SHARD) == 5
        assert metrics.LOG_GAPS.labels(*SHARD)._value.get() == gaps + 1

    run(test())


SECRET = "mellifluous"


def test_no_log_line_holds_what_a_record_holds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of what cannot be decoded, nor of what is refused or fails in the middle."""
    caplog.set_level("DEBUG")

    def cut(*_: object) -> None:
        raise ValueError(f"cannot cut {SECRET}")

    monkeypatch.setattr("tessera.shards.building.cut_document", cut)

    async def scenario() -> None:
        store = MemoryStore()
        doc_id, *_ = ids_in(SHARD, 1)
        values = [
            f'{{"v": 1, "op": "upsert", "content": "{SECRET}"'.encode(),
            orjson.dumps({"v": 1, "op": SECRET, "source": "handbook", "doc_id": doc_id}),
            orjson.dumps({"v": 1, "op": "upsert", "source": SECRET, "doc_id": SECRET, "content": SECRET}),
        ]
        key = f"handbook/{doc_id}".encode()
        poison = [Record(DOCUMENTS, 0, offset, key, value, (), 1_000) for offset, value in enumerate(values)]
        async with driver(store) as running:
            await running.feed([*poison, upsert(doc_id, len(values), content=f"# T\n\n{SECRET}\n")])
        assert len(await list_deadletters(store)) == 4
        assert [record.message for record in caplog.records if "became dead letters" in record.message]

    run(scenario())
    assert not [record for record in caplog.records if SECRET in str(record.__dict__)]
