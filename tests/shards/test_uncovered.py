"""What a document's record says that no chunk holds: ranges, lines and bytes, in every order of arrival."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.documents.record import DocumentRecord, IndexedState
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.generations.bootstrap import bootstrap
from tessera.ingestion import uncovered_ranges
from tessera.policies import ChunkPolicy, load_policy
from tessera.policies.policy import Cut
from tessera.shards.status import read_status
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

LOGS, DOCUMENTS = ShardId("tessera.logs", 0), ShardId("tessera.documents", 0)
PARAGRAPH = load_policy("paragraph")
TEXT = "kept\n\nlöst lost\nlost\n\nkept\n"
WORDS = ("lost", "käpt", "kept", "")


def forget(cut: Cut) -> Cut:
    """The cut without the chunks that say that they are lost."""
    return cut._replace(chunks=[chunk for chunk in cut.chunks if "lost" not in chunk.text])


class Forgetful:
    """A policy that leaves out every paragraph with the word ``lost`` in it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(PARAGRAPH, name)

    def cut(self, *given: Any, **named: Any) -> Cut:
        return forget(PARAGRAPH.cut(*given, **named))


FORGETFUL: ChunkPolicy = Forgetful()  # type: ignore[assignment]


async def write(shard: ShardId, events: list[dict[str, Any]]) -> tuple[MemoryStore, DocumentRecord]:
    store = MemoryStore()
    await bootstrap(store, {DOCUMENTS.topic: 1, LOGS.topic: 1})
    writer = ShardWriter(store, shard, partitions=1, catalog=SourceCatalog())
    await writer.open()
    writer.generations = [replace(each, policy=FORGETFUL) for each in writer.generations]
    for offset, event in enumerate(events):
        key = f"{event['source']}/{event['doc_id']}"
        record = Record(shard.topic, 0, offset, key.encode(), orjson.dumps({"v": 1, **event}))
        await writer.write([record])
    [(key, stored)] = await store.scan_documents(shard)
    return store, DocumentRecord.decode(stored, key)


def model(text: str, is_log: bool) -> tuple[int, int, int]:
    cut = FORGETFUL.cut(text, "s", "text/plain", is_log=is_log)
    found = uncovered_ranges(text, cut.chunks)
    lines = sum(each.end_line - each.start_line + 1 for each in found)
    return len(found), lines, sum(len(text[each.start : each.end].encode()) for each in found)


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_a_log_that_grows_leaves_uncovered_what_its_text_cut_at_once_does(pieces: list[list[str]]) -> None:
    events, line = [], 1
    for words in pieces:
        piece = [*words, "", "kept", ""]
        content = "".join(f"{word}\n" for word in piece)
        events.append(
            {"op": "append", "source": "devex", "doc_id": "r.log", "first_line": line, "content": content}
        )
        line += len(piece)
    _, record = asyncio.run(write(LOGS, events))
    state = record.indexed["g1"]
    text = "".join(event["content"] for event in events)
    assert (state.uncovered, state.uncovered_lines, state.uncovered_bytes) == model(text, is_log=True)


def test_a_source_counts_lines_and_bytes_until_the_document_is_covered_or_deleted() -> None:
    lost = {"op": "upsert", "source": "s", "doc_id": "d", "media_type": "text/plain", "content": TEXT}
    store, _ = asyncio.run(write(DOCUMENTS, [lost]))
    source = asyncio.run(read_status(store)).sources["s"]
    assert source.uncovered == {"g1": 1}
    assert source.uncovered_lines == {"g1": 2}
    assert source.uncovered_bytes == {"g1": len("löst lost\nlost".encode())}
    assert 0 < source.uncovered_ratio("g1") < 1
    for last in ({**lost, "content": "kept\n"}, {"op": "delete", "source": "s", "doc_id": "d"}):
        store, _ = asyncio.run(write(DOCUMENTS, [lost, last]))
        source = asyncio.run(read_status(store)).sources["s"]
        assert (source.uncovered_lines.get("g1", 0), source.uncovered_ratio("g1")) == (0, 0.0)


def test_a_record_written_before_lines_and_bytes_were_counted_is_read_with_none_of_them() -> None:
    record = DocumentRecord(7, "", 7, indexed={"g1": IndexedState(3, 1, 1, None, 0)})
    assert orjson.loads(record.encode())["indexed"]["g1"] == [3, 1, 1, None, 0]
    assert DocumentRecord.decode(record.encode(), "s/d") == record
    counted = replace(record, indexed={"g1": IndexedState(3, 1, 1, None, 0, 2, 0, 40, 0)})
    assert DocumentRecord.decode(counted.encode(), "s/d") == counted
