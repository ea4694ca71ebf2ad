from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from index_model import DEVEX, HANDBOOK, IndexModel

from tessera.errors import SourceError
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Append, Change, Delete, Upsert
from tessera.sources import content as content_module
from tessera.sources import folder as folder_module
from tessera.sources import scan as scan_module
from tessera.sources import watch
from tessera.sources.folder import FolderSource
from tessera.sources.scan import FileState

DEADLINE_S = 20
FOUND_WITHIN_S = 1.0
"""How soon an edit must be handed over; what comes after it (broker, index) has the rest of its second."""


class Watched:
    """A source being watched, and what it has published."""

    def __init__(self, source: FolderSource, index: IndexModel) -> None:
        self.source = source
        self.index = index
        self.changes: list[Change] = []
        self._batches: AsyncGenerator[list[Change], None] = source.changes()

    async def run(self) -> None:
        async with aclosing(self._batches) as batches:
            async for batch in batches:
                self.changes += self.index.apply(batch)

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{self.changes} {self.source.problems}"
            await asyncio.sleep(0.005)

    async def until_held(self, contents: dict[str, str]) -> None:
        await self.until(lambda: self.index.contents == contents)

    async def ready(self, folder: Path) -> None:
        """Wait until the watch is certainly on: an edit has been seen."""
        probe = folder / ("probe" + (".log" if self.source.declaration.is_log else ".md"))
        probe.write_text("probe\n")
        await self.until(lambda: probe.name in self.index.contents)
        probe.unlink()
        await self.until(lambda: probe.name not in self.index.contents)
        self.changes.clear()

    async def changes_of(self, doc_id: str) -> list[Change]:
        """All changes of a document so far, once a later edit has been seen as well."""
        later = self.source.path / ("later" + (".log" if self.source.declaration.is_log else ".md"))
        later.write_text("later\n")
        await self.until(lambda: later.name in self.index.contents)
        return [change for change in self.changes if change.doc_id == doc_id]


def watching(
    folder: Path,
    test: Callable[[Watched], Awaitable[None]],
    declaration: SourceDeclaration = HANDBOOK,
    **options: Any,
) -> None:
    async def main() -> None:
        source = FolderSource(folder, declaration, **options)
        index = IndexModel(declaration)
        index.apply(source.initial({}, watching=True))
        watched = Watched(source, index)
        task = asyncio.create_task(watched.run())
        try:
            await watched.ready(folder)
            await test(watched)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that a busy machine stretches stay below the settling time."""
    monkeypatch.setattr(folder_module, "SETTLE_NS", 500_000_000)
    monkeypatch.setattr(folder_module, "MAX_UNSETTLED_NS", 10_000_000_000)


def test_the_initial_changes_make_the_index_hold_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.md").write_text("# B\n")
    (tmp_path / "c.txt").write_text("C")
    index = IndexModel(HANDBOOK)
    index.apply(FolderSource(tmp_path, HANDBOOK).initial({}))
    assert index.contents == {"a/b.md": "# B\n", "c.txt": "C"}
    (tmp_path / "c.txt").unlink()
    (tmp_path / "a" / "b.md").write_text("# b\n")
    os.utime(tmp_path / "a" / "b.md", ns=(1, 1))
    changes = index.apply(FolderSource(tmp_path, HANDBOOK).initial(index.held))
    assert [type(change) for change in changes] == [Upsert, Delete]
    assert index.contents == {"a/b.md": "# b\n"}
    assert not list(FolderSource(tmp_path, HANDBOOK).initial(index.held))


def test_a_folder_that_is_missing_deletes_nothing(tmp_path: Path) -> None:
    source = FolderSource(tmp_path / "unmounted", HANDBOOK)
    with pytest.raises(SourceError):
        list(source.initial({}))


def test_a_file_that_cannot_be_read_is_reported_and_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "b.md").write_text("y")
    index = IndexModel(HANDBOOK)
    index.apply(FolderSource(tmp_path, HANDBOOK).initial({}))
    real = os.open

    def refusing(path: str, *flags: int) -> int:
        if path.endswith("a.md"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *flags)

    monkeypatch.setattr(os, "open", refusing)
    source = FolderSource(tmp_path, HANDBOOK)
    assert not list(source.initial(index.held))
    assert source.problems == (("a.md", "Permission denied"),)


def test_a_file_over_the_maximum_size_is_reported_and_keeps_what_is_held(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x" * 10)
    index = IndexModel(HANDBOOK)
    index.apply(FolderSource(tmp_path, HANDBOOK).initial({}))
    (tmp_path / "a.md").write_text("x" * 11)
    source = FolderSource(tmp_path, HANDBOOK, max_document_bytes=10)
    assert not list(source.initial(index.held))
    assert [problem.path for problem in source.problems] == ["a.md"]


def test_an_edit_a_new_file_and_a_removal_are_one_change_each_and_soon_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("old")

    async def test(watched: Watched) -> None:
        took: list[float] = []
        for edit, contents in (
            (lambda: (tmp_path / "a.md").write_text("new"), {"a.md": "new"}),
            (lambda: write_deep(tmp_path), {"a.md": "new", "x/y/z.md": "deep"}),
            (lambda: (tmp_path / "a.md").unlink(), {"x/y/z.md": "deep"}),
            (lambda: shutil.rmtree(tmp_path / "x"), {}),
        ):
            started = time.monotonic()
            edit()
            await watched.until_held(contents)
            took.append(time.monotonic() - started)
        assert [type(change) for change in watched.changes] == [Upsert, Upsert, Delete, Delete]
        assert sorted(took)[1] < FOUND_WITHIN_S

    watching(tmp_path, test)


def write_deep(folder: Path) -> None:
    (folder / "x" / "y").mkdir(parents=True)
    (folder / "x" / "y" / "z.md").write_text("deep")


@pytest.mark.usefixtures("patient")
def test_an_editor_that_empties_the_file_before_it_writes_makes_one_change(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("old")

    async def test(watched: Watched) -> None:
        with path.open("w") as file:
            for word in ("all ", "of ", "it"):
                await asyncio.sleep(0.015)
                file.write(word)
                file.flush()
        await watched.until_held({"a.md": "all of it"})
        assert len(await watched.changes_of("a.md")) == 1

    watching(tmp_path, test)


@pytest.mark.usefixtures("patient")
def test_a_tool_that_removes_the_file_before_it_writes_makes_one_change(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("old")

    async def test(watched: Watched) -> None:
        path.unlink()
        await asyncio.sleep(0.1)
        path.write_text("new")
        await watched.until_held({"a.md": "new"})
        assert len(await watched.changes_of("a.md")) == 1

    watching(tmp_path, test)


def test_a_file_replaced_by_renaming_another_over_it_makes_one_change(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("old")

    async def test(watched: Watched) -> None:
        (tmp_path / ".a.md.swp").write_text("new")
        os.replace(tmp_path / ".a.md.swp", tmp_path / "a.md")
        await watched.until_held({"a.md": "new"})
        assert len(await watched.changes_of("a.md")) == 1

    watching(tmp_path, test)


def test_a_file_that_is_written_without_end_is_published_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("old")

    async def test(watched: Watched) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with path.open("a") as file:
            while not watched.changes and time.monotonic() < deadline:
                file.write("x")
                file.flush()
                await asyncio.sleep(0.005)
        assert watched.changes

    watching(tmp_path, test)


def test_every_line_of_a_growing_log_is_appended_once(tmp_path: Path) -> None:
    path = tmp_path / "run_R-1.log"

    async def test(watched: Watched) -> None:
        expected = ""
        with path.open("w") as file:
            for n in range(100):
                line = f"line {n}\n"
                expected += line
                file.write(line[:3])
                file.flush()
                await asyncio.sleep(0.001)
                file.write(line[3:])
                file.flush()
        await watched.until_held({path.name: expected})
        assert all(isinstance(change, Append) for change in watched.changes)

    watching(tmp_path, test, DEVEX)


def test_a_last_line_without_line_feed_is_published_after_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "run_R-1.log"

    async def test(watched: Watched) -> None:
        path.write_text("one\nlast words")
        await watched.until_held({path.name: "one\n"})
        await watched.until_held({path.name: "one\nlast words\n"})
        assert [type(change) for change in watched.changes] == [Append, Append]

    watching(tmp_path, test, DEVEX, idle_last_line_ns=1_000_000_000)


def test_a_folder_that_vanishes_deletes_nothing_and_is_followed_when_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    (folder / "a.md").write_text("kept")

    async def test(watched: Watched) -> None:
        folder.rename(tmp_path / "elsewhere")
        await watched.until(lambda: any(problem.path == "." for problem in watched.source.problems))
        assert watched.index.contents == {"a.md": "kept"}
        folder.mkdir()
        (folder / "a.md").write_text("kept")
        (folder / "b.md").write_text("new")
        await watched.until_held({"a.md": "kept", "b.md": "new"})
        assert not watched.source.problems
        assert len(watched.changes) == 1

    watching(folder, test)


def test_a_folder_is_followed_where_the_system_offers_no_notifications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_watches_left(*_: object, **__: object) -> object:
        raise OSError(28, "no space left on device: the watches are used up")

    monkeypatch.setattr(watch, "awatch", no_watches_left)

    async def test(watched: Watched) -> None:
        (tmp_path / "a.md").write_text("seen")
        await watched.until_held({"a.md": "seen"})

    watching(tmp_path, test)


def test_a_file_read_within_the_step_of_its_times_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_ns = 1_700_000_000_000_000_000
    state = FileState(1, 2, 3, written_ns, written_ns)  # a second write changes none of these
    monkeypatch.setattr(scan_module, "file_state", lambda _: state)
    monkeypatch.setattr(content_module, "file_state", lambda _: state)
    monkeypatch.setattr(folder_module, "RACY_NS", 2 * folder_module.SETTLE_NS)
    (tmp_path / "a.md").write_text("old")
    source = FolderSource(tmp_path, HANDBOOK, lambda: written_ns + folder_module.SETTLE_NS)

    async def first_batch() -> list[Change]:
        list(source.initial({}))
        (tmp_path / "a.md").write_text("new")
        async with aclosing(source.changes()) as batches:
            return await asyncio.wait_for(anext(batches), DEADLINE_S)

    (change,) = asyncio.run(first_batch())
    assert isinstance(change, Upsert)
    assert change.content == "new"


def test_large_folders_come_in_batches_and_are_remembered_after_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "BATCH_CHANGES", 3)
    for n in range(10):
        (tmp_path / f"{n}.md").write_text(str(n))

    async def first_batches() -> list[int]:
        sizes: list[int] = []
        async with aclosing(FolderSource(tmp_path, HANDBOOK).changes()) as batches:
            async for batch in batches:
                sizes.append(len(batch))
                if sum(sizes) == 10:
                    break
        return sizes

    assert asyncio.run(first_batches()) == [3, 3, 3, 1]


@pytest.mark.parametrize("name", [b"caf\xe9.md", b"caf\xe9.bin"])
def test_a_name_that_is_not_utf8_is_reported_and_the_watch_goes_on(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    shown = name.decode(errors="backslashreplace")

    async def test(watched: Watched) -> None:
        path.write_bytes(b"x")
        await watched.until(lambda: shown in [problem.path for problem in watched.source.problems])
        (tmp_path / "a.md").write_text("A")
        await watched.until(lambda: watched.index.contents.get("a.md") == "A")
        path.unlink()
        await watched.until(lambda: watched.source.problems == ())

    watching(tmp_path, test)


def test_a_problem_that_comes_or_goes_is_told_by_an_empty_batch(tmp_path: Path) -> None:
    async def told() -> list[list[Change]]:
        source = FolderSource(tmp_path, HANDBOOK)
        batches = []
        async with aclosing(source.changes()) as arriving:
            task = asyncio.create_task(anext(arriving))
            await asyncio.sleep(0)
            os.mkfifo(tmp_path / "a.md")
            batches.append(await asyncio.wait_for(task, DEADLINE_S))
            (tmp_path / "a.md").unlink()
            batches.append(await asyncio.wait_for(anext(arriving), DEADLINE_S))
        assert source.problems == ()
        return batches

    assert asyncio.run(told()) == [[], []]


def test_a_folder_found_without_any_of_several_held_documents_deletes_nothing_unless_told_to(
    tmp_path: Path,
) -> None:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text(name)
    index = IndexModel(HANDBOOK)
    index.apply(FolderSource(tmp_path, HANDBOOK).initial({}))
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    (tmp_path / "lost+found.md").write_text("what the mount point itself holds")
    source = FolderSource(tmp_path, HANDBOOK)
    index.apply(source.initial(index.held))
    assert set(index.contents) == {"a.md", "b.md", "c.md", "lost+found.md"}
    [problem] = source.problems
    assert problem.path == "."
    assert "all 3 documents" in problem.reason
    assert f"tessera ingest {tmp_path} --source handbook --allow-empty" in problem.reason
    (tmp_path / "lost+found.md").unlink()
    index.apply(FolderSource(tmp_path, HANDBOOK, allow_empty=True).initial(index.held))
    assert index.contents == {}


def test_the_only_document_of_a_folder_is_deleted_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a")
    index = IndexModel(HANDBOOK)
    index.apply(FolderSource(tmp_path, HANDBOOK).initial({}))
    (tmp_path / "a.md").unlink()
    index.apply(FolderSource(tmp_path, HANDBOOK).initial(index.held))
    assert index.contents == {}


def test_a_watched_folder_that_is_emptied_at_once_is_a_problem_until_its_files_are_back(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "mount"
    (folder / "docs").mkdir(parents=True)

    async def test(watched: Watched) -> None:
        contents = {"docs/a.md": "a", "docs/b.md": "b"}
        (folder / "docs" / "a.md").write_text("a")
        (folder / "docs" / "b.md").write_text("b")
        await watched.until_held(contents)
        (folder / "docs").rename(tmp_path / "elsewhere")
        await watched.until(lambda: [problem.path for problem in watched.source.problems] == ["."])
        assert watched.index.contents == contents
        (tmp_path / "elsewhere").rename(folder / "docs")
        await watched.until(lambda: watched.source.problems == ())
        assert watched.index.contents == contents

    watching(folder, test)
