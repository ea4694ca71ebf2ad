"""Coverage: what no chunk holds, with its lines, and nothing of what the asker may not see."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from tessera.coverage import LINE_CHARACTERS, SHOWN_RANGES, Coverage, read_coverage
from tessera.errors import QueryError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Record
from tessera.generations.bootstrap import bootstrap
from tessera.search import Searcher
from tessera.shards.writer import ShardWriter
from tessera.store.base import ShardId
from tessera.store.memory import MemoryStore

SHARDS = {"handbook": ShardId("tessera.documents", 0), "devex": ShardId("tessera.logs", 0)}
CATALOG = SourceCatalog(
    [
        SourceDeclaration("handbook", "documents", "log", ("*",)),
        SourceDeclaration("devex", "devex", "log", ("*",)),
    ]
)


class Index:
    """A live index in memory, fed through the writers."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.writers: dict[ShardId, ShardWriter] = {}

    async def open(self) -> Index:
        await bootstrap(self.store, {shard.topic: 1 for shard in SHARDS.values()})
        for shard in SHARDS.values():
            self.writers[shard] = ShardWriter(self.store, shard, partitions=1, catalog=CATALOG)
            await self.writers[shard].open()
        return self

    async def write(self, source: str, doc_id: str, **event: Any) -> None:
        shard = SHARDS[source]
        offset = self.writers[shard].head.applied + 1
        value = orjson.dumps({"v": 1, "source": source, "doc_id": doc_id, **event})
        record = Record(shard.topic, 0, offset, f"{source}/{doc_id}".encode(), value, (), 1_700_000_000_000)
        assert not (await self.writers[shard].write([record])).reasons

    async def put(self, doc_id: str, content: bytes, **more: Any) -> None:
        await self.write(
            "handbook",
            doc_id,
            op="upsert",
            media_type="text/markdown",
            content_base64=base64.b64encode(content).decode(),
            **more,
        )

    async def coverage(self, **asked: Any) -> Coverage:
        searcher = Searcher(self.store)
        try:
            return await read_coverage(self.store, searcher, "g1", **asked)
        finally:
            await searcher.close()


def with_index(use: Callable[[Index], Awaitable[None]]) -> None:
    async def scenario() -> None:
        await use(await Index().open())

    asyncio.run(scenario())


def test_what_is_covered_is_counted_and_not_told() -> None:
    async def use(index: Index) -> None:
        await index.put("a.md", b"# One\n\ntext\n")
        await index.put("gone.md", b"\xff")
        await index.write("handbook", "gone.md", op="delete")
        found = await index.coverage()
        assert (found.documents, found.more, found.moved) == ((), 0, 0)
        assert found.to_value()["sources"] == {
            "handbook": {
                "documents": 1,
                "incomplete": 0,
                "uncovered": 0,
                "missing_ranges": 0,
                "parse_failures": 0,
            }
        }

    with_index(use)


def test_bytes_that_are_no_text_are_told_with_their_ranges_and_lines() -> None:
    async def use(index: Index) -> None:
        await index.put("a.md", b"# One\n\ngood\nbad \xff\xfe here\nand \x80\n")
        [document] = (await index.coverage()).documents
        assert document.failure is not None
        assert (document.failure.reason, document.failure.count) == ("not_utf8", 2)
        assert document.failure.ranges == ((16, 18), (28, 29))
        assert [(each.start_line, each.lines) for each in document.failure.places] == [
            (4, ("bad \ufffd\ufffd here",)),
            (5, ("and \ufffd",)),
        ]

    with_index(use)


def test_lines_of_a_log_that_have_not_come_are_told_by_number() -> None:
    async def use(index: Index) -> None:
        await index.write("devex", "run_1.log", op="append", first_line=1, content="one\ntwo\n")
        await index.write("devex", "run_1.log", op="append", first_line=5, content="five\n")
        found = await index.coverage(source="devex")
        [document] = found.documents
        [missing] = document.uncovered
        assert (missing.start_line, missing.end_line, missing.missing, missing.lines) == (3, 4, True, ())
        assert (found.sources["devex"].missing_ranges, document.ranges) == (1, 1)
        await index.write("devex", "run_1.log", op="append", first_line=3, content="three\nfour\n")
        assert (await index.coverage()).documents == ()

    with_index(use)


def test_an_asker_learns_nothing_of_what_it_may_not_see_not_even_numbers() -> None:
    async def use(index: Index) -> None:
        await index.put("open.md", b"\xff open\n")
        await index.put("secret.md", b"\xff secret\n", access=["group:legal"])
        everyone = await index.coverage(principals=frozenset({"*"}))
        assert [each.doc_id for each in everyone.documents] == ["open.md"]
        assert (everyone.sources["handbook"].documents, everyone.sources["handbook"].parse_failures) == (1, 1)
        assert "secret" not in str(everyone.to_value())
        assert (await index.coverage(principals=frozenset({"*"}), limit=0)).more == 1
        assert len((await index.coverage(principals=frozenset({"*", "group:legal"}))).documents) == 2
        assert (await index.coverage(limit=1)).more == 1

    with_index(use)


def test_long_lines_and_many_holes_are_bounded() -> None:
    async def use(index: Index) -> None:
        await index.put("a.md", b"\xff" + b"x" * 1_000_000 + b"\n" + b"\xff\n" * 500)
        [document] = (await index.coverage()).documents
        assert document.failure is not None
        assert len(document.failure.places) == len(document.failure.ranges) == SHOWN_RANGES
        assert document.failure.count == 501
        assert max(len(line) for place in document.failure.places for line in place.lines) == LINE_CHARACTERS

    with_index(use)


@pytest.mark.parametrize("asked", [{"limit": -1}, {"limit": 1001}, {"against": "g1"}, {"against": "g9"}])
def test_what_cannot_be_asked_is_refused(asked: dict[str, Any]) -> None:
    async def use(index: Index) -> None:
        with pytest.raises(QueryError):
            await index.coverage(**asked)

    with_index(use)
