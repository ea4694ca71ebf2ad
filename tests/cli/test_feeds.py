from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from tessera.cli import feeds as feeds_module
from tessera.cli.feeds import Feed, FeedReport, Published, skipped_files, unpublished
from tessera.cli.up.freshness import FreshnessWatch
from tessera.cli.up.screen import summary
from tessera.errors import EventError, UnavailableError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Change, Delete, Record
from tessera.events.encoding import encode_event
from tessera.events.topics import DOCUMENTS, LOGS
from tessera.generations.bootstrap import bootstrap
from tessera.kafka.publisher import Position
from tessera.shards.writer import ShardWriter
from tessera.sources.folder import FolderSource
from tessera.store.base import Commit, ShardId
from tessera.store.memory import MemoryStore

NOTES = SourceDeclaration("notes", "documents", "event", ("*",))
SHARD = ShardId(DOCUMENTS, 0)


class FakePublisher:
    """Numbers what it takes; refuses documents named ``bad``; is down for the first ``failures`` calls."""

    def __init__(self, failures: int = 0) -> None:
        self.sent: list[str] = []
        self.failures = failures

    async def publish_many(self, changes: Sequence[Change]) -> list[Position]:
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the broker is away")
        if any("bad" in change.doc_id for change in changes):
            raise EventError("invalid_doc_id", "this document is refused", "doc_id")
        first = len(self.sent)
        self.sent += [change.doc_id for change in changes]
        return [Position(DOCUMENTS, 0, first + index) for index in range(len(changes))]


def feed(folder: Path, publisher: FakePublisher, seen: list[Published] | None = None) -> Feed:
    store = MemoryStore()
    on_published = seen.extend if seen is not None else lambda _: None
    return Feed(folder, NOTES, store, publisher, 1_000_000, on_published)  # type: ignore[arg-type]


def files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text(f"{name}\n")
    return folder


def test_a_file_at_fault_does_not_hold_back_those_beside_it(tmp_path: Path) -> None:
    publisher = FakePublisher()
    seen: list[Published] = []
    one = feed(files(tmp_path, "a.md", "bad.md", "c.md"), publisher, seen)
    asyncio.run(one.once())
    assert sorted(publisher.sent) == ["a.md", "c.md"]
    assert [(each.change.doc_id, each.position.offset) for each in seen] == [("a.md", 0), ("c.md", 1)]
    assert unpublished([one.report]) == ["notes: bad.md: this document is refused"]


def test_a_feed_waits_out_a_broker_that_is_away_and_then_follows_the_folder(tmp_path: Path) -> None:
    publisher = FakePublisher(failures=1)
    one = feed(files(tmp_path, "a.md"), publisher)
    troubles: list[str] = []

    async def follow() -> None:
        async for report in one.forever():
            troubles.append(report.trouble)
            if publisher.sent == ["a.md"]:
                files(tmp_path, "b.md")
            if "b.md" in publisher.sent:
                return

    asyncio.run(asyncio.wait_for(follow(), 30))
    assert troubles[0] == "the broker is away"
    assert troubles[-1] == ""
    assert publisher.sent == ["a.md", "b.md"]
    assert one.compared.is_set()


def published(offset: int, sent_at: float) -> Published:
    return Published(Delete("notes", f"{offset}.md", 1), Position(DOCUMENTS, 0, offset), sent_at)


def test_freshness_ends_when_the_shard_has_applied_the_change(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []

    async def run() -> None:
        store = MemoryStore()
        head = await store.claim(SHARD, [])
        watch = FreshnessWatch(lambda each, seconds: told.append((each.position.offset, seconds)))
        following = asyncio.create_task(watch.follow(store))
        now = time.monotonic()
        watch.sent([published(0, now - 5), published(1, now - 3)])
        head = await store.commit(Commit(SHARD, head.fence, head.seq, applied=0, record_digest="0" * 64))
        async with asyncio.timeout(10):
            while not told:  # noqa: ASYNC110 - what is tested polls, too
                await asyncio.sleep(0.01)
        assert watch.waiting == 1
        await store.commit(Commit(SHARD, head.fence, head.seq, applied=1, record_digest="0" * 64))
        await asyncio.wait_for(watch.all_searchable(), 10)
        following.cancel()
        assert watch.waiting == 0
        assert watch.quantile(0.0) == min(watch.seconds)
        assert watch.quantile(1.0) == max(watch.seconds)

    asyncio.run(run())
    assert [offset for offset, _ in told] == [0, 1]
    assert told[0][1] >= 5
    assert 3 <= told[1][1] < told[0][1]


def test_the_screen_shows_processes_sources_lag_and_dead_letters() -> None:
    source = {"documents": 2, "chunks": 3, "uncovered": 1, "parse_failures": 0}
    totals = {"documents": 2, "chunks": 3, "lag": None, "dead_letters": 4}
    state = {
        "http": "http://127.0.0.1:8765",
        "broker": "b:1",
        "redis": "redis://r/0",
        "processes": {"service": "running", "worker": "restarting"},
        "overview": {"sources": {"notes\x1b[31m": source}, "totals": totals},
        "problems": {"notes\x1b[31m": 5},
        "freshness_p50": 0.25,
        "freshness_p95": None,
    }
    written = io.StringIO()
    out = Console(width=120, file=written)
    for part in summary(state):
        out.print(part)
    shown = written.getvalue()
    for words in (
        "http://127.0.0.1:8765",
        "worker restarting",
        "lag unknown",
        "4 dead letters",
        "0.25 s median",
    ):
        assert words in shown
    assert "\x1b[31m" not in shown
    assert "notes\\x1b[31m" in shown
    assert list(summary(state | {"overview": {}}))


def test_a_feed_tells_what_it_skips_and_forgets_problems_that_are_over(tmp_path: Path) -> None:
    one = feed(files(tmp_path, "a.md", "b.pdf", "c.png"), FakePublisher())
    os.mkfifo(tmp_path / "d.md")

    async def follow() -> list[dict[str, str]]:
        problems = []
        async for report in one.forever():
            problems.append(dict(report.problems))
            if not report.problems:
                return problems
            (tmp_path / "d.md").unlink()
        return problems

    assert asyncio.run(asyncio.wait_for(follow(), 30)) == [{"d.md": "not a regular file"}, {}]
    told = "notes: 2 files were skipped: a source of kind documents reads .md, .markdown, .txt"
    assert skipped_files(one.report, "documents") == told
    assert skipped_files(FeedReport("notes"), "documents") == ""


class Index(FakePublisher):
    """A publisher whose changes are applied at once, but for those of ``refused`` documents."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.refused: set[str] = set()
        self._writer: ShardWriter | None = None

    async def publish_many(self, changes: Sequence[Change]) -> list[Position]:
        if self._writer is None:
            await bootstrap(self.store, {DOCUMENTS: 1, LOGS: 1})
            self._writer = ShardWriter(self.store, SHARD, partitions=1, catalog=SourceCatalog([NOTES]))
            await self._writer.open()
        positions = await super().publish_many(changes)
        for change, position in zip(changes, positions, strict=True):
            event = encode_event(change, 1_000_000)
            value = b"refused" if change.doc_id in self.refused else event.value
            await self._writer.write([Record(*SHARD, position.offset, event.key, value)])
        return positions


def test_a_change_that_the_index_did_not_apply_is_published_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "COMPARE_EVERY_S", 0.05)
    index = Index()
    index.refused = {"b.md"}
    one = Feed(files(tmp_path, "a.md", "b.md"), NOTES, index.store, index, 1_000_000)  # type: ignore[arg-type]

    async def follow() -> None:
        async for _ in one.forever():
            if index.sent.count("b.md") == 2:
                index.refused.clear()
            if index.sent.count("b.md") == 3:
                return

    asyncio.run(asyncio.wait_for(follow(), 30))
    assert index.sent == ["a.md", "b.md", "b.md", "b.md"]
    assert one._compare_every_s == 0.2  # twice as long after each time


def test_a_feed_is_content_with_an_index_that_holds_what_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "COMPARE_EVERY_S", 0.01)
    index = Index()
    one = Feed(files(tmp_path, "a.md", "b.md"), NOTES, index.store, index, 1_000_000)  # type: ignore[arg-type]
    comparisons: list[bool] = []
    is_as_published = one._is_as_published

    async def noted(source: FolderSource) -> bool:
        comparisons.append(await is_as_published(source))
        if len(comparisons) == 5:
            files(tmp_path, "c.md")
        return comparisons[-1]

    monkeypatch.setattr(one, "_is_as_published", noted)

    async def follow() -> None:
        async for _ in one.forever():
            if "c.md" in index.sent:
                return

    asyncio.run(asyncio.wait_for(follow(), 30))
    assert all(comparisons)
    assert index.sent == ["a.md", "b.md", "c.md"]


def test_a_folder_that_is_emptied_is_reported_and_deletes_only_when_told_to(tmp_path: Path) -> None:
    index = Index()
    folder = files(tmp_path, "a.md", "b.md")

    def ingest(**options: bool) -> FeedReport:
        one = Feed(folder, NOTES, index.store, index, 1_000_000, **options)  # type: ignore[arg-type]
        asyncio.run(one.once())
        return one.report

    assert not ingest().problems
    (folder / "a.md").unlink()
    (folder / "b.md").unlink()
    report = ingest()
    assert report.deleted == 0
    [line] = unpublished([report])
    assert "--allow-empty" in line
    assert ingest(allow_empty=True).deleted == 2
