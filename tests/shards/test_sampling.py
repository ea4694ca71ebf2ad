from __future__ import annotations

import asyncio

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS
from tessera.generations.bootstrap import bootstrap
from tessera.ingestion import Resume, sentence_spans
from tessera.policies import ChunkPolicy, TextPolicy
from tessera.shards import sampling
from tessera.shards.cutting import entries
from tessera.shards.sampling import SPANS, WINDOW_BYTES, count_whole, sample_spans
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

TEXT = st.lists(
    st.sampled_from(
        ["One two. ", "É ü!", "\n\n", "# Head\n", "终わり。", "🙂 three four five.", "\r\n", "w " * 700]
    ),
    max_size=20,
).map("".join)
POLICY = ChunkPolicy("p", TextPolicy("window", 4, 1))


@settings(max_examples=200, deadline=None)
@given(text=TEXT, key=st.sampled_from(["a/b", "c/d"]), is_log=st.booleans())
def test_spans_are_runs_of_whole_sentences_and_the_same_each_time(text: str, key: str, is_log: bool) -> None:
    data = text.encode()
    spans = sample_spans(key, "sha256:0000", data, is_log=is_log)
    assert spans == sample_spans(key, "sha256:0000", data, is_log=is_log)
    assert len(spans) <= SPANS
    for start, end in spans:
        assert 0 <= start < end <= len(data)
        assert end - start <= WINDOW_BYTES
        assert data[start:end].decode().strip()
    if len(data) < WINDOW_BYTES // 2:
        sentences = sentence_spans(text, lines=is_log)
        starts = {len(text[:start].encode()) for start, _ in sentences}
        ends = {len(text[:end].encode()) for _, end in sentences}
        assert all(start in starts and end in ends for start, end in spans)
        assert bool(sentences) >= bool(spans)


@settings(max_examples=100, deadline=None)
@given(text=TEXT)
def test_whole_and_split_are_those_of_the_characters(text: str) -> None:
    chunks = list(entries(POLICY.chunk(text, "d"), text, Resume.begin(), 0))
    spans = sample_spans("a/b", "sha256:0000", text.encode(), is_log=False)
    whole, split = count_whole(spans, chunks, 0)
    inside = [
        (start, end)
        for start, end in spans
        if chunks and chunks[0].start_byte <= start and end <= chunks[-1].end_byte
    ]
    held = [
        any({*range(start, end)} <= {*range(each.start_byte, each.end_byte)} for each in chunks)
        for start, end in inside
    ]
    assert (whole, split) == (sum(held), len(held) - sum(held))


def test_a_text_may_begin_within_a_character() -> None:
    data = "éé One. Two. Three.\n".encode()[1:]
    for number in range(50):
        for start, end in sample_spans("a/b", f"sha256:{number:04x}", data, is_log=True):
            assert data[start:end].decode().strip()


def test_other_content_is_asked_for_other_spans() -> None:
    data = " ".join(f"Sentence number {number}." for number in range(1000)).encode()
    asked = {tuple(sample_spans("a/b", f"sha256:{number:04x}", data, is_log=False)) for number in range(800)}
    assert 50 < len(asked) < 200, "one text in eight"


def test_a_batch_reports_the_samples_of_its_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "ONE_IN", 1)

    async def scenario() -> None:
        store = MemoryStore()
        await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, 1))
        writer = ShardWriter(store, ShardId(DOCUMENTS, 0), partitions=1, catalog=SourceCatalog())
        await writer.open()
        event = {"v": 1, "op": "upsert", "source": "a", "doc_id": "b", "media_type": "text/plain"}
        event |= {"access": ["*"], "content": "One two three. Four five six."}
        report = await writer.write([Record(DOCUMENTS, 0, 0, b"a/b", orjson.dumps(event))])
        assert (report.cut["g1"].whole, report.cut["g1"].split) == ({"a": SPANS}, {"a": 0})

    asyncio.run(scenario())


def test_what_was_not_cut_is_not_counted() -> None:
    text = "one two three\nfour five six\n"
    chunks = list(entries(POLICY.chunk(text, "d"), text, Resume.begin(), 1000))
    assert count_whole([(0, 3)], chunks, 1000) == (1, 0)
    assert count_whole([(0, 20)], chunks, 1000) == (0, 1)
    assert count_whole([(0, 3)], chunks, 0) == (0, 0)
    assert count_whole([(0, 3)], [], 0) == (0, 0)
