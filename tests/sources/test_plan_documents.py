from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_model import HANDBOOK, IndexModel, file

from tessera.documents.digests import document_digest
from tessera.documents.held import HeldDocument
from tessera.errors import SourceError
from tessera.events.change import MAX_REVISION, ByteRange, Delete, Upsert
from tessera.sources.content import FileContent
from tessera.sources.plan import plan


def held(content: str, revision: int, **changes: object) -> HeldDocument:
    base = HeldDocument(revision, document_digest(content), "text/markdown", ("group:staff",))
    return replace(base, **changes)  # type: ignore[arg-type]


def only_change(
    now: FileContent | None, before: HeldDocument | None, now_ns: int = 5_000
) -> Upsert | Delete | None:
    files = [] if now is None else [now]
    changes = list(plan(files, {} if before is None else {"a.md": before}, HANDBOOK, now_ns))
    assert len(changes) <= 1
    change = changes[0] if changes else None
    assert change is None or isinstance(change, Upsert | Delete)
    return change


def test_a_new_file_is_published_with_its_modification_time_as_revision() -> None:
    assert only_change(file("a.md", "# A\n", HANDBOOK, 7), None) == Upsert(
        "handbook", "a.md", 7, "text/markdown", "# A\n", ("group:staff",)
    )


def test_an_unchanged_file_is_not_published_whatever_its_time() -> None:
    for mtime in (1, 9_999):
        assert only_change(file("a.md", "# A\n", HANDBOOK, mtime), held("# A\n", 100)) is None


def test_the_order_and_repetition_of_principals_is_no_change() -> None:
    before = held("# A\n", 100, access=("group:staff", "group:staff"))
    assert only_change(file("a.md", "# A\n", HANDBOOK), before) is None


@pytest.mark.parametrize(("mtime", "revision"), [(500, 500), (101, 101), (100, 101), (3, 101)])
def test_changed_content_wins_even_with_an_older_time(mtime: int, revision: int) -> None:
    change = only_change(file("a.md", "# B\n", HANDBOOK, mtime), held("# A\n", 100))
    assert isinstance(change, Upsert)
    assert change.revision == revision


def test_a_time_before_1970_begins_at_revision_zero() -> None:
    change = only_change(file("a.md", "# B\n", HANDBOOK, -5), None)
    assert change is not None
    assert change.revision == 0


def test_changed_access_alone_is_published() -> None:
    change = only_change(file("a.md", "# A\n", HANDBOOK), held("# A\n", 100, access=("*",)))
    assert isinstance(change, Upsert)
    assert change.access == ("group:staff",)


def test_a_changed_media_type_alone_is_published() -> None:
    assert only_change(file("a.md", "# A\n", HANDBOOK), held("# A\n", 100, media_type="text/plain"))


@pytest.mark.parametrize(("revision", "expected"), [(100, 5_000), (6_000, 6_001)])
def test_a_missing_file_is_deleted_above_the_held_revision(revision: int, expected: int) -> None:
    assert only_change(None, held("# A\n", revision)) == Delete("handbook", "a.md", expected)


def test_a_deleted_document_is_not_deleted_again_and_comes_back_above_its_tombstone() -> None:
    gone = held("", 6_000, deleted=True, content_digest="")
    assert only_change(None, gone) is None
    change = only_change(file("a.md", "# A\n", HANDBOOK, 3), gone)
    assert isinstance(change, Upsert)
    assert change.revision == 6_001


def test_an_empty_document_comes_back_after_it_was_deleted() -> None:
    assert only_change(file("a.md", "", HANDBOOK), held("", 1, deleted=True)) is not None


def test_bytes_that_are_not_utf8_travel_along_with_their_ranges() -> None:
    change = only_change(file("a.md", b"caf\xe9 au lait\n", HANDBOOK), None)
    assert isinstance(change, Upsert)
    assert change.content == "caf\ufffd au lait\n"
    assert change.undecodable == (ByteRange(3, 4),)
    assert change.raw == b"caf\xe9 au lait\n"


def test_bytes_that_are_not_utf8_are_published_once() -> None:
    index = IndexModel(HANDBOOK)
    files = [file("a.md", b"caf\xe9\n", HANDBOOK)]
    assert index.apply(plan(files, index.held, HANDBOOK, 1))
    assert not index.apply(plan(files, index.held, HANDBOOK, 2))


def test_a_document_at_the_greatest_revision_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(SourceError, match="outright"):
        only_change(file("a.md", "# B\n", HANDBOOK), held("# A\n", MAX_REVISION))


def test_a_source_whose_revisions_come_from_the_log_sends_none() -> None:
    declaration = replace(HANDBOOK, revision_from="log")
    before = {"b.md": held("old", 2**41)}
    changes = list(plan([file("a.md", "x", declaration, 7)], before, declaration, 9))
    assert [change.revision for change in changes if isinstance(change, Upsert | Delete)] == [None, None]


folders = st.dictionaries(
    st.sampled_from(["a.md", "b/a.md", "c.txt"]),
    st.tuples(st.binary(max_size=4), st.integers(0, 50)),
)


@given(st.lists(folders, max_size=6))
def test_after_each_plan_the_index_holds_the_folder_and_a_second_plan_is_empty(
    history: list[dict[str, tuple[bytes, int]]],
) -> None:
    index = IndexModel(HANDBOOK)
    for now_ns, folder in enumerate(history):
        files = [file(name, content, HANDBOOK, mtime) for name, (content, mtime) in folder.items()]
        index.apply(plan(files, index.held, HANDBOOK, now_ns))
        assert index.contents == {name: raw.decode(errors="replace") for name, (raw, _) in folder.items()}
        assert not list(plan(files, index.held, HANDBOOK, now_ns))
