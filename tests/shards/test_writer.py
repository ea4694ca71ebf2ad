from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reading import check_shard, newest_entry, read_chunks, read_records, read_text

from tessera.errors import CorruptionError, FencedError, SequenceError, StagingError, UnavailableError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Record
from tessera.events.parts import split_record
from tessera.generations.bootstrap import bootstrap
from tessera.limits import Limits
from tessera.policies import load_policy
from tessera.shards.deadletters import find_deadletter, list_deadletters, replay_deadletter
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

DOCUMENTS = ShardId("tessera.documents", 0)
LOGS = ShardId("tessera.logs", 0)
CATALOG = SourceCatalog(
    [
        SourceDeclaration("handbook", "documents", "event", ("*",)),
        SourceDeclaration("devex", "devex", "log", ("*",)),
        SourceDeclaration("github", "github", "log", ("*",)),
    ]
)
PARAGRAPH = load_policy("paragraph")


class Log:
    """Numbers events as one partition's log does."""

    def __init__(self, shard: ShardId) -> None:
        self.shard, self.records = shard, []

    def add(self, value: dict | bytes | None, key: str | None = None, headers=()) -> Record:
        if isinstance(value, dict):
            key = key or f"{value['source']}/{value['doc_id']}"
            value = json.dumps(value).encode()
        record = Record(
            self.shard.topic,
            0,
            len(self.records),
            None if key is None else key.encode(),
            value,
            tuple(headers),
            1_700_000_000_000 + len(self.records),
        )
        self.records.append(record)
        return record


async def new_writer(store: MemoryStore, shard: ShardId, limits: Limits | None = None) -> ShardWriter:
    await bootstrap(store, {DOCUMENTS.topic: 1, LOGS.topic: 1})
    writer = ShardWriter(store, shard, partitions=1, catalog=CATALOG, limits=limits)
    await writer.open()
    return writer


def upsert(doc_id: str, revision: int, content: str, **extra) -> dict:
    event = {"v": 1, "op": "upsert", "source": "handbook", "doc_id": doc_id, "revision": revision}
    return {**event, "media_type": "text/markdown", "content": content, **extra}


def delete(doc_id: str, revision: int) -> dict:
    return {"v": 1, "op": "delete", "source": "handbook", "doc_id": doc_id, "revision": revision}


def append(doc_id: str, first_line: int, content: str, source: str = "devex") -> dict:
    event = {"v": 1, "op": "append", "source": source, "doc_id": doc_id}
    return {**event, "first_line": first_line, "content": content}


def run_records(
    shard: ShardId, records: Sequence[Record], cuts: Sequence[int] = (), limits: Limits | None = None
) -> MemoryStore:
    """Write the records in batches that end at ``cuts`` and return the store."""

    async def run() -> MemoryStore:
        store = MemoryStore()
        writer = await new_writer(store, shard, limits)
        borders = [0, *sorted(set(cuts)), len(records)]
        for start, end in itertools.pairwise(borders):
            if start < end:
                await writer.write(records[start:end])
                await writer.tick()
        return store

    return asyncio.run(run())


def reasons(store: MemoryStore) -> list[str]:
    return [letter.reason for letter in asyncio.run(list_deadletters(store))]


texts = st.text(alphabet="ab#\n é\U0001f600", max_size=40)
changes = st.one_of(
    st.builds(upsert, st.sampled_from("xyz"), st.integers(0, 6), texts),
    st.builds(delete, st.sampled_from("xyz"), st.integers(0, 6)),
)


@given(events=st.lists(changes, max_size=14), cuts=st.lists(st.integers(0, 14)), seed=st.randoms())
@settings(max_examples=120, deadline=None)
def test_the_greatest_revision_wins_whatever_the_order_of_arrival(events, cuts, seed):
    from tessera.documents.digests import document_digest
    from tessera.documents.record import order_digest

    winners: dict[str, tuple] = {}
    for event in events:
        deleted = event["op"] == "delete"
        digest = "" if deleted else document_digest(event["content"])
        rank = (event["revision"], deleted, "" if deleted else order_digest(digest, "text/markdown", ("*",)))
        winners[event["doc_id"]] = max(
            winners.get(event["doc_id"], ((-1,), None)), (rank, event.get("content"))
        )
    expected = {f"handbook/{d}": content for d, (rank, content) in winners.items() if content is not None}
    shuffled = list(events)
    seed.shuffle(shuffled)
    for order in (events, shuffled):
        log = Log(DOCUMENTS)
        for event in order:
            log.add(event)
        store = run_records(DOCUMENTS, log.records, cuts)
        asyncio.run(check_shard(store, DOCUMENTS, expected, PARAGRAPH))


LINES = st.lists(
    st.sampled_from(
        ["", "# head", "## sub", "text é", "more text", "2026-01-02T03:04:05.1234567Z ##[group]g",
         "2026-01-02T03:04:05.1234567Z ##[endgroup]", "2026-01-02T03:04:05.1234567Z x", "  cont",
         "##[error]e"]
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


@given(
    lines=LINES,
    splits=st.lists(st.integers(0, 30), max_size=8),
    batches=st.lists(st.integers(0, 12)),
    source=st.sampled_from(["devex", "github"]),
)
@settings(max_examples=150, deadline=None)
def test_a_log_that_arrives_in_appends_equals_the_log_cut_at_once(lines, splits, batches, source):
    borders = sorted({0, len(lines), *(s for s in splits if s < len(lines))})
    log = Log(LOGS)
    for start, end in itertools.pairwise(borders):
        log.add(append("r.log", start + 1, "".join(f"{line}\n" for line in lines[start:end]), source))
    store = run_records(LOGS, log.records, batches)
    assert not reasons(store)
    text = "".join(f"{line}\n" for line in lines)
    asyncio.run(check_shard(store, LOGS, {f"{source}/r.log": text}, PARAGRAPH))


@given(
    lines=LINES,
    pieces=st.lists(st.tuples(st.integers(0, 29), st.integers(1, 10)), min_size=1, max_size=8),
    batches=st.lists(st.integers(0, 12)),
)
@settings(max_examples=150, deadline=None)
def test_appends_in_any_order_and_overlap_leave_gaps_that_fill(lines, pieces, batches):
    held: list[str | None] = []
    log = Log(LOGS)
    for start, count in pieces:
        piece = lines[start : start + count]
        if not piece:
            continue
        log.add(append("r.log", start + 1, "".join(f"{line}\n" for line in piece)))
        held += [None] * (start + len(piece) - len(held))
        held[start : start + len(piece)] = piece
    store = run_records(LOGS, log.records, batches)
    assert not reasons(store)
    if not held:
        return
    [record] = asyncio.run(read_records(store, LOGS)).values()
    missing = [number for number, line in enumerate(held, 1) if line is None]
    assert [n for first, last in record.gaps for n in range(first, last + 1)] == missing
    text = "".join(f"{line or ''}\n" for line in held)
    asyncio.run(check_shard(store, LOGS, {"devex/r.log": text}, PARAGRAPH))
    covered = {
        n
        for chunk in asyncio.run(read_chunks(store, LOGS)).get("devex/r.log", [])
        for n in range(chunk["start_line"], chunk["end_line"] + 1)
    }
    assert not covered & set(missing)
    assert {n for n, line in enumerate(held, 1) if line} <= covered
    assert record.indexed["g1"].uncovered == len(record.gaps)
    assert (record.indexed["g1"].uncovered_lines, record.indexed["g1"].uncovered_bytes) == (len(missing), 0)


@given(
    lines=LINES,
    blank=st.sampled_from(["\n", "\n \n"]),
    gap=st.integers(0, 2),
    source=st.sampled_from(["devex", "github"]),
)
@settings(max_examples=60, deadline=None)
def test_the_newest_piece_of_a_log_carries_its_size_and_digest_even_after_blank_lines(
    lines, blank, gap, source
):
    log = Log(LOGS)
    log.add(append("r.log", 1, "".join(f"{line}\n" for line in lines), source))
    line = len(lines) + 1 + gap
    for _ in range(3):
        log.add(append("r.log", line, blank, source))
        line += blank.count("\n")
    store = run_records(LOGS, log.records, range(4))
    [record] = asyncio.run(read_records(store, LOGS)).values()
    newest = asyncio.run(newest_entry(store, LOGS, f"{source}/r.log"))
    if newest is not None:
        assert (newest.size_bytes, newest.content_digest) == (record.size_bytes, record.content_digest)
    assert record.indexed["g1"].uncovered == len(record.gaps)


def test_a_line_held_with_other_content_is_a_dead_letter_and_changes_nothing():
    log = Log(LOGS)
    log.add(append("r.log", 1, "a\nb\n"))
    log.add(append("r.log", 2, "other\nc\n"))
    log.add(append("r.log", 2, "b\nc\n"))
    store = run_records(LOGS, log.records)
    assert reasons(store) == ["append_conflict"]
    asyncio.run(check_shard(store, LOGS, {"devex/r.log": "a\nb\nc\n"}, PARAGRAPH))


def test_after_a_delete_only_line_one_begins_a_log_anew():
    log = Log(LOGS)
    log.add(append("r.log", 1, "a\n"))
    log.add({"v": 1, "op": "delete", "source": "devex", "doc_id": "r.log"})
    log.add(append("r.log", 2, "b\n"))
    log.add(append("r.log", 1, "new\n"))
    store = run_records(LOGS, log.records, [1, 2, 3])
    assert reasons(store) == ["append_after_delete"]
    asyncio.run(check_shard(store, LOGS, {"devex/r.log": "new\n"}, PARAGRAPH))


def test_a_gap_beyond_the_maximum_size_is_a_dead_letter():
    log = Log(LOGS)
    log.add(append("r.log", 1, "a\n"))
    log.add(append("r.log", 5000, "far\n"))
    log.add(append("r.log", 2, "b\n"))
    store = run_records(LOGS, log.records, limits=Limits(max_document_bytes=1000))
    assert reasons(store) == ["gap_too_large"]
    asyncio.run(check_shard(store, LOGS, {"devex/r.log": "a\nb\n"}, PARAGRAPH))


def test_an_append_keeps_the_revision_that_began_the_log_and_filling_a_gap_begins_a_new_one():
    log = Log(LOGS)
    log.add(append("other.log", 1, "x\n"))
    log.add(append("r.log", 1, "a\n"))
    log.add(append("r.log", 3, "c\n"))
    store = run_records(LOGS, log.records, [1, 2])
    assert asyncio.run(read_records(store, LOGS))["devex/r.log"].revision == 1
    log.add(append("r.log", 2, "b\n"))
    store = run_records(LOGS, log.records, [1, 2, 3])
    record = asyncio.run(read_records(store, LOGS))["devex/r.log"]
    assert (record.revision, record.gaps) == (3, ())


def test_a_null_value_deletes_whatever_the_revision_and_leaves_it_as_the_floor():
    log = Log(DOCUMENTS)
    log.add(upsert("a", 9, "text"))
    log.add(None, "handbook/a")
    log.add(upsert("a", 9, "again"))
    store = run_records(DOCUMENTS, log.records, [1, 2])
    asyncio.run(check_shard(store, DOCUMENTS, {}, PARAGRAPH))
    log.add(upsert("a", 10, "newer"))
    store = run_records(DOCUMENTS, log.records, [1, 2])
    asyncio.run(check_shard(store, DOCUMENTS, {"handbook/a": "newer"}, PARAGRAPH))


def test_poison_is_kept_with_reason_and_bytes_and_the_rest_is_applied():
    log = Log(DOCUMENTS)
    log.add(b"{nonsense", "handbook/bad")
    log.add(upsert("a", 1, "text"))
    log.add(append("a", 1, "x\n", "handbook"))
    log.add(upsert("b", 1, "text"), key="handbook/other")
    log.add({"v": 1, "op": "delete", "source": "handbook", "doc_id": "a"})
    log.add(append("r", 1, "x\n"))
    store = run_records(DOCUMENTS, log.records)
    wanted = ["invalid_json", "append_to_documents", "key_mismatch", "revision_missing", "wrong_topic"]
    assert reasons(store) == wanted
    asyncio.run(check_shard(store, DOCUMENTS, {"handbook/a": "text"}, PARAGRAPH))


def test_dead_letters_are_delivered_once_the_broker_has_them_and_stay_listed():
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(b"{nonsense", "handbook/bad")])
        produced = []

        async def refuse(*record) -> None:
            raise UnavailableError("the broker is away")

        async def produce(*record) -> None:
            produced.append(record)

        with pytest.raises(UnavailableError):
            await writer.deliver(refuse)
        assert await writer.deliver(produce) == 1
        assert await writer.deliver(produce) == 0
        [(topic, key, value, headers)] = produced
        assert (topic, key, value) == ("tessera.deadletter", b"handbook/bad", b"{nonsense")
        assert dict(headers)["tessera-reason"] == b"invalid_json"
        assert len(await list_deadletters(store)) == 1

    asyncio.run(run())


def test_a_replayed_dead_letter_is_refused_where_a_later_change_was_applied():
    async def run() -> None:
        store, log = MemoryStore(), Log(LOGS)
        writer = await new_writer(store, LOGS)
        await writer.write([log.add(append("r.log", 1, "a\n")), log.add(append("r.log", 1, "other\n"))])
        [letter] = await list_deadletters(store)
        await writer.write([log.add(append("r.log", 2, "b\n"))])
        replayed = []

        async def republish(topic, key, value, headers) -> None:
            replayed.append(log.add(value, key.decode(), headers))

        await replay_deadletter(store, republish, letter.id)
        assert not await list_deadletters(store)
        await writer.write(replayed)
        assert [again.reason for again in await list_deadletters(store)] == ["replay_superseded"]

    asyncio.run(run())


def test_a_large_event_arrives_in_parts_across_batches_and_restarts():
    content = "".join(f"line {n} é\n\n" for n in range(3000))
    value = json.dumps(upsert("big", 3, content)).encode()
    log = Log(DOCUMENTS)
    for headers, payload in split_record(value, 9000):
        log.add(payload, "handbook/big", headers)
        log.add(upsert("small", len(log.records), "x"))
    for cuts in ((), range(len(log.records))):
        store = run_records(DOCUMENTS, log.records, cuts)
        assert not reasons(store)
        assert not asyncio.run(store.parts(DOCUMENTS, ["handbook/big"]))[0]
        expected = {"handbook/big": content, "handbook/small": "x"}
        asyncio.run(check_shard(store, DOCUMENTS, expected, PARAGRAPH))


def test_unfinished_events_over_the_bound_become_dead_letters():
    log = Log(DOCUMENTS)
    for number in range(6):
        [first, *_] = split_record(json.dumps(upsert("big", number, "x" * 5000)).encode(), 1000)
        log.add(first[1], "handbook/big", first[0])
    store = run_records(DOCUMENTS, log.records, range(6))
    assert reasons(store) == ["incomplete_document"] * 2


def test_a_log_of_many_blocks_grows_block_by_block():
    lines = [f"{n} {'é' * (n % 50)} some words here\n" + ("\n" if n % 7 == 0 else "") for n in range(6000)]
    log, line = Log(LOGS), 1
    for start in range(0, len(lines), 500):
        piece = "".join(lines[start : start + 500])
        log.add(append("r.log", line, piece))
        line += piece.count("\n")
    store = run_records(LOGS, log.records, range(len(log.records)))
    text = "".join(lines)
    assert len(text.encode()) > 4 * 65536
    asyncio.run(check_shard(store, LOGS, {"devex/r.log": text}, PARAGRAPH))
    from tessera.documents.digests import log_digest

    assert asyncio.run(read_records(store, LOGS))["devex/r.log"].content_digest == log_digest(text)


def test_records_applied_before_are_dropped_and_counted():
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        records = [log.add(upsert("a", n, f"text {n}")) for n in range(4)]
        await writer.write(records[:3])
        report = await writer.write(records[1:])
        assert (report.duplicates, report.changes) == (2, 1)
        report = await writer.write(records)
        assert report.duplicates == 4
        assert (await store.counters(DOCUMENTS))["duplicates"] == 6

    asyncio.run(run())


def test_a_writer_whose_fence_was_taken_is_refused_and_writes_nothing():
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        old = await new_writer(store, DOCUMENTS)
        new = await new_writer(store, DOCUMENTS)
        with pytest.raises(FencedError):
            await old.write([log.add(upsert("a", 1, "old"))])
        with pytest.raises((FencedError, SequenceError)):
            await old.tick()
        await new.write(log.records)
        await check_shard(store, DOCUMENTS, {"handbook/a": "old"}, PARAGRAPH)

    asyncio.run(run())


class LosesAnswers(MemoryStore):
    """Applies a commit, or not, and loses the answer."""

    lose, apply_it = False, True

    async def commit(self, commit):
        if not self.lose:
            return await super().commit(commit)
        self.lose = False
        if self.apply_it:
            await super().commit(commit)
        raise UnavailableError("the answer was lost")


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_whose_answer_was_lost_is_applied_once(applied):
    async def run() -> None:
        store, log = LosesAnswers(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert("a", 1, "one")), log.add(upsert("b", 1, "one"))])
        batch = [log.add(upsert("a", 2, "two")), log.add(delete("b", 2))]
        store.lose, store.apply_it = True, applied
        with pytest.raises(UnavailableError):
            await writer.write(batch)
        await writer.write(batch)
        await writer.write([log.add(upsert("c", 1, "three"))])
        await check_shard(store, DOCUMENTS, {"handbook/a": "two", "handbook/c": "three"}, PARAGRAPH)
        assert (await store.counters(DOCUMENTS))["documents:handbook"] == 2

    asyncio.run(run())


class LosesBlobs(MemoryStore):
    """Forgets staged blobs before the commit, a number of times."""

    times = 0

    async def commit(self, commit):
        if self.times > 0:
            self.times -= 1
            raise StagingError("gone")
        return await super().commit(commit)


def test_blobs_that_expired_before_the_commit_are_staged_again():
    async def run() -> None:
        store, log = LosesBlobs(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        store.times = 2
        await writer.write([log.add(upsert("a", 1, "one"))])
        await check_shard(store, DOCUMENTS, {"handbook/a": "one"}, PARAGRAPH)
        store.times = 3
        with pytest.raises(StagingError):
            await writer.write([log.add(upsert("a", 2, "two"))])

    asyncio.run(run())


def test_a_record_that_alone_breaks_pure_work_becomes_a_dead_letter(monkeypatch):
    from tessera.shards import building

    real = building.cut_document

    def breaks_on_bomb(draft, *rest):
        if "bomb" in draft.doc_id:
            raise RecursionError("too deep")
        return real(draft, *rest)

    monkeypatch.setattr(building, "cut_document", breaks_on_bomb)
    log = Log(DOCUMENTS)
    for name in ("a", "bomb", "b"):
        log.add(upsert(name, 1, name))
    store = run_records(DOCUMENTS, log.records)
    assert reasons(store) == ["processing_failed"]
    asyncio.run(check_shard(store, DOCUMENTS, {"handbook/a": "a", "handbook/b": "b"}, PARAGRAPH))


def test_an_adopted_log_begins_a_new_epoch_and_logs_go_on_growing():
    async def run() -> None:
        store, log = MemoryStore(), Log(LOGS)
        writer = await new_writer(store, LOGS)
        await writer.write([log.add(append("r.log", 1, "a\n")), log.add(append("r.log", 2, "b\n"))])
        await store.adopt_log(LOGS)
        with pytest.raises(FencedError):
            await writer.write([log.add(append("r.log", 3, "zombie\n"))])
        writer = await new_writer(store, LOGS)
        anew = Log(LOGS)
        await writer.write([anew.add(append("r.log", 3, "c\n"))])
        await writer.write([anew.add(append("r.log", 4, "d\n"))])
        await check_shard(store, LOGS, {"devex/r.log": "a\nb\nc\nd\n"}, PARAGRAPH)
        record = (await read_records(store, LOGS))["devex/r.log"]
        assert (record.revision, record.log_revision) == (0, 2**40 + 1)

    asyncio.run(run())


def test_replaced_texts_stay_for_the_grace_period_and_revoked_ones_go_at_once():
    async def run() -> None:
        now = [0.0]
        store, log = MemoryStore(clock=lambda: now[0]), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(upsert("a", 1, "one"))])
        first = (await read_records(store, DOCUMENTS))["handbook/a"]
        await writer.write([log.add(upsert("a", 2, "two"))])
        assert await read_text(store, DOCUMENTS, first) == "one"
        second = (await read_records(store, DOCUMENTS))["handbook/a"]
        await writer.write([log.add(upsert("a", 3, "two", access=["group:legal"]))])
        assert await store.blobs(DOCUMENTS, second.text_blobs()) == [None]
        third = (await read_records(store, DOCUMENTS))["handbook/a"]
        await writer.write([log.add(delete("a", 4))])
        assert await store.blobs(DOCUMENTS, third.text_blobs()) == [None]
        now[0] = 3600.0
        assert await store.blobs(DOCUMENTS, first.text_blobs()) == [None]

    asyncio.run(run())


@pytest.mark.parametrize("content", ["", "\n \t\n", "\x00", "a\x00b", "x" * 2_000_000])
def test_documents_without_content_and_odd_ones_are_indexed(content):
    log = Log(DOCUMENTS)
    log.add(upsert("a", 1, content))
    store = run_records(DOCUMENTS, log.records)
    assert not reasons(store)
    asyncio.run(check_shard(store, DOCUMENTS, {"handbook/a": content}, PARAGRAPH))


def replay_header(log_revision: int) -> tuple[tuple[str, bytes], ...]:
    return (("tessera-replay", json.dumps({"log_revision": log_revision, "offset": 0}).encode()),)


@pytest.mark.parametrize("cuts", [range(9), (), (4,), (5,), (6,)])
@pytest.mark.parametrize("last", [(2, "second\nthird\n"), (1, "first\n")])
def test_a_refused_change_between_appends_does_not_let_the_next_work_on_half_a_text(cuts, last):
    log = Log(LOGS)
    log.add(append("r.log", 1, "first\n"))
    log.add(append("r.log", 1, "conflict\n"))
    log.add(append("r.log", 4, ("x" * 99 + "\n") * 2000))
    log.add(append("r.log", 2004, "next\n"))
    log.add({"v": 1, "op": "delete", "source": "devex", "doc_id": "r.log"}, headers=replay_header(1))
    log.add(append("r.log", *last))
    store = run_records(LOGS, log.records, cuts)
    assert sorted(reasons(store)) == ["append_conflict", "replay_superseded"]
    between = "second\nthird\n" if last[0] == 2 else "\n\n"
    text = f"first\n{between}{('x' * 99 + chr(10)) * 2000}next\n"
    asyncio.run(check_shard(store, LOGS, {"devex/r.log": text}, PARAGRAPH))


@pytest.mark.parametrize("cuts", [range(4), ()])
def test_an_append_without_lines_changes_nothing(cuts):
    log = Log(LOGS)
    log.add(append("r.log", 1, ""))
    log.add(append("r.log", 1, "a\n"))
    store = run_records(LOGS, log.records, cuts)
    assert asyncio.run(read_records(store, LOGS))["devex/r.log"].revision == 1
    log.add({"v": 1, "op": "delete", "source": "devex", "doc_id": "r.log"})
    log.add(append("r.log", 1, ""))
    log.add(append("r.log", 7, "b\n"))
    store = run_records(LOGS, log.records, cuts)
    assert reasons(store) == ["append_after_delete"]
    asyncio.run(check_shard(store, LOGS, {}, PARAGRAPH))


def test_a_dead_letter_whose_bytes_are_gone_is_never_replayed_as_a_null_value():
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        await writer.write([log.add(b"{nonsense", "handbook/bad")])
        [letter] = await list_deadletters(store)
        del store._at(DOCUMENTS).blobs[f"deadletter/{letter.id}"]

        async def republish(*record) -> None:
            raise AssertionError("published")

        with pytest.raises(CorruptionError, match="are gone"):
            await replay_deadletter(store, republish, letter.id)
        produced = []

        async def produce(*record) -> None:
            produced.append(record)

        assert await writer.deliver(produce) == 1
        assert ("tessera-lost", b"the value") in produced[0][3]

    asyncio.run(run())


def test_a_lost_part_gives_its_event_up_and_the_partition_goes_on():
    async def run() -> None:
        store, log = MemoryStore(), Log(DOCUMENTS)
        writer = await new_writer(store, DOCUMENTS)
        pieces = split_record(json.dumps(upsert("big", 1, "x" * 5000)).encode(), 1000)
        parts = [log.add(payload, "handbook/big", headers) for headers, payload in pieces]
        await writer.write(parts[:2])
        blob = next(name for name in store._at(DOCUMENTS).blobs if name.startswith("part/"))
        del store._at(DOCUMENTS).blobs[blob]
        await writer.write([*parts[2:], log.add(upsert("a", 1, "text"))])
        assert [letter.reason for letter in await list_deadletters(store)] == ["incomplete_document"]
        await writer.write([log.add(payload, "handbook/big", headers) for headers, payload in pieces])
        await check_shard(store, DOCUMENTS, {"handbook/a": "text", "handbook/big": "x" * 5000}, PARAGRAPH)

    asyncio.run(run())


def test_a_damaged_record_is_healed_by_whole_new_content_and_refuses_appends():
    async def run() -> None:
        store, log = MemoryStore(), Log(LOGS)
        writer = await new_writer(store, LOGS)
        await writer.write([log.add(append(name, 1, f"{name} old\n")) for name in "abc"])
        for name in "abc":
            store._at(LOGS).documents[f"devex/{name}"] = b"rubbish"
        whole = {"v": 1, "op": "upsert", "source": "devex", "doc_id": "a", "media_type": "text/x-run-log"}
        await writer.write(
            [
                log.add({**whole, "content": "a new\n"}),
                log.add(append("a", 2, "a more\n")),
                log.add(append("b", 2, "b more\n")),
                log.add(None, "devex/c"),
            ]
        )
        assert [letter.reason for letter in await list_deadletters(store)] == ["held_state_damaged"]
        del store._at(LOGS).documents["devex/b"]
        await writer.write([log.add(append("b", 1, "b anew\n")), log.add(append("d", 1, "d\n"))])
        chunks = await read_chunks(store, LOGS)
        assert len(chunks["devex/a"]) == 1
        assert "devex/c" not in chunks

    asyncio.run(run())


def test_what_a_shard_counts_is_right_again_once_a_damaged_record_is_replaced():
    """Taking the damaged one's part away is not possible: everything is counted anew."""

    async def run() -> None:
        sound, damaged, log = MemoryStore(), MemoryStore(), Log(DOCUMENTS)
        writers = [await new_writer(store, DOCUMENTS) for store in (sound, damaged)]
        first = [log.add(upsert(name, 1, f"{name} old\n\n{name} more")) for name in "abcd"]
        second = [log.add(upsert("a", 2, "a new")), log.add(None, "handbook/b")]
        third = [log.add(upsert("c", 2, "c new"))]
        for writer in writers:
            await writer.write(first)
        for name in "abc":
            damaged._at(DOCUMENTS).documents[f"handbook/{name}"] = b"rubbish"
        for batch in (second, third):
            for writer in writers:
                await writer.write(batch)
        assert writers[1].head.standings == writers[0].head.standings
        counters = [await store.counters(DOCUMENTS) for store in (sound, damaged)]
        assert counters[1] == counters[0]

    asyncio.run(run())


@pytest.mark.parametrize("cuts", [(), range(9)])
def test_a_large_event_that_is_refused_keeps_all_its_bytes(cuts):
    log = Log(LOGS)
    log.add(append("r.log", 1, "a\n"))
    value = json.dumps(append("r.log", 1, "other\n" * 900)).encode()
    for headers, payload in split_record(value, 1000):
        log.add(payload, "devex/r.log", headers)
    store = run_records(LOGS, log.records, cuts)
    [letter] = asyncio.run(list_deadletters(store))
    assert (letter.reason, letter.headers) == ("append_conflict", ())
    _, kept = asyncio.run(find_deadletter(store, letter.id))
    assert kept == value


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2), range(9)])
def test_an_event_sent_again_in_other_parts_is_applied_whatever_the_batches(cuts):
    value = json.dumps(upsert("big", 1, "x" * 1500)).encode()
    log = Log(DOCUMENTS)
    first, second = split_record(value, 1000), split_record(value, 1200)
    for headers, payload in [first[0], second[0], second[1]]:
        log.add(payload, "handbook/big", headers)
    store = run_records(DOCUMENTS, log.records, cuts)
    assert not reasons(store)
    asyncio.run(check_shard(store, DOCUMENTS, {"handbook/big": "x" * 1500}, PARAGRAPH))
    assert asyncio.run(store.parts(DOCUMENTS, ["handbook/big"])) == [None]


def test_a_replay_cannot_claim_a_revision_that_its_log_has_not_reached():
    log = Log(LOGS)
    log.add(append("r.log", 1, "a\n"), headers=replay_header(2**50))
    store = run_records(LOGS, log.records)
    assert reasons(store) == ["invalid_replay"]


def test_a_log_published_as_plain_text_counts_its_lines_by_lf():
    log = Log(LOGS)
    content = "10%\r20%\r\r30%"
    event = {"v": 1, "op": "upsert", "source": "devex", "doc_id": "r", "media_type": "text/plain"}
    log.add({**event, "content": content})
    store = run_records(LOGS, log.records)
    [chunk] = asyncio.run(read_chunks(store, LOGS))["devex/r"]
    assert (chunk["start_line"], chunk["end_line"]) == (1, 1)


def test_a_zombie_that_plans_on_documents_another_writer_moved_is_refused_not_broken():
    async def run() -> None:
        store, log = MemoryStore(), Log(LOGS)
        zombie = await new_writer(store, LOGS)
        await zombie.write([log.add(append("r.log", 1, "a\n"))])
        owner = await new_writer(store, LOGS)
        late = log.add(append("r.log", 2, "b\n"))
        await owner.write([late])
        with pytest.raises((FencedError, SequenceError)):
            await zombie.write([late])
        await check_shard(store, LOGS, {"devex/r.log": "a\nb\n"}, PARAGRAPH)

    asyncio.run(run())
