from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_model import DEVEX, GITHUB, IndexModel, file

from tessera.documents.digests import log_digest
from tessera.documents.held import HeldDocument
from tessera.events.change import Append, Change, Delete, Upsert
from tessera.sources import logs
from tessera.sources.logs import LastLine, whole_lines
from tessera.sources.plan import plan, plan_file

LOG = "run_R-1.log"


def step(index: IndexModel, content: str | bytes | None, last_line: LastLine = "publish") -> list[Change]:
    """Publish one state of the log (None: no file) and return the changes."""
    files = [] if content is None else [file(LOG, content, index.declaration)]
    return index.apply(plan(files, index.held, index.declaration, 9, last_line))


def indexed(content: str | bytes) -> IndexModel:
    index = IndexModel(DEVEX)
    step(index, content)
    return index


def test_a_new_log_is_appended_from_its_first_line() -> None:
    assert step(IndexModel(DEVEX), "one\ntwo\n") == [
        Append("devex", LOG, 1, "one\ntwo\n", "text/x-run-log", ("*",))
    ]


def test_growth_is_appended_alone() -> None:
    index = indexed("one\ntwo\n")
    assert step(index, "one\ntwo\n\nthree\n") == [
        Append("devex", LOG, 3, "\nthree\n", "text/x-run-log", ("*",))
    ]
    assert step(index, "one\ntwo\n\nthree\n") == []


@pytest.mark.parametrize("now", ["one\nTWO\nthree\n", "one\n", "", "zero\none\ntwo\n"])
def test_a_rewritten_or_truncated_log_is_sent_as_a_whole(now: str) -> None:
    assert step(indexed("one\ntwo\n"), now) == [Upsert("devex", LOG, None, "text/x-run-log", now, ("*",))]


def test_a_removed_log_is_deleted_and_a_new_one_begins_at_line_one() -> None:
    index = indexed("one\n")
    assert step(index, None) == [Delete("devex", LOG, None)]
    assert step(index, None) == []
    (change,) = step(index, "one\n")
    assert isinstance(change, Append)
    assert change.first_line == 1


@pytest.mark.parametrize("content", ["", "half a line"])
def test_a_log_without_a_whole_line_waits(content: str) -> None:
    assert step(IndexModel(DEVEX), content, "hold") == []


def test_a_last_line_waits_for_its_line_feed() -> None:
    index = IndexModel(DEVEX)
    assert step(index, "one\ntw", "hold") == [Append("devex", LOG, 1, "one\n", "text/x-run-log", ("*",))]
    assert step(index, "one\ntwo\r", "hold") == []
    assert step(index, "one\ntwo\r\n", "hold") == [
        Append("devex", LOG, 2, "two\r\n", "text/x-run-log", ("*",))
    ]


def test_a_last_line_is_published_with_a_line_feed_when_nothing_more_is_expected() -> None:
    index = IndexModel(DEVEX)
    step(index, "one\ntwo")
    assert index.contents[LOG] == "one\ntwo\n"
    assert step(index, "one\ntwo") == []
    assert step(index, "one\ntwo", "hold") == []
    assert step(index, "one\ntwo\n") == []
    assert step(index, "one\ntwo\nthree\n") == [Append("devex", LOG, 3, "three\n", "text/x-run-log", ("*",))]


def test_a_published_last_line_that_goes_on_makes_the_log_a_rewritten_one() -> None:
    index = indexed("one\ntwo")
    (change,) = step(index, "one\ntwofold\n")
    assert isinstance(change, Upsert)
    assert index.contents[LOG] == "one\ntwofold\n"


def test_a_character_cut_in_two_is_not_published_until_it_is_whole() -> None:
    euro = "€".encode()
    index = IndexModel(DEVEX)
    assert step(index, b"5 " + euro[:2], "hold") == []
    step(index, b"5 " + euro[:2], "settle")
    assert index.contents[LOG] == "5 \n"
    step(index, b"5 " + euro + b"\n", "hold")
    assert index.contents[LOG] == "5 €\n"


@pytest.mark.parametrize("cut", range(1, 4))
def test_settling_drops_just_the_unfinished_character(cut: int) -> None:
    whole = "a😀".encode()
    assert whole_lines(whole[: 1 + cut], "settle") == b"a\n"
    assert whole_lines(whole, "settle") == whole + b"\n"
    assert whole_lines(b"a\xff", "settle") == b"a\xff\n"


def test_bytes_that_will_never_be_whole_are_published_when_nothing_more_is_expected() -> None:
    (change,) = step(IndexModel(DEVEX), b"5 \xe2\x82")
    assert isinstance(change, Append)
    assert change.content == "5 \ufffd\n"
    assert change.raw == b"5 \xe2\x82\n"


def test_a_log_held_without_its_last_line_feed_is_the_same_as_its_file() -> None:
    held = HeldDocument(
        1, log_digest("one\ntwo"), "text/x-run-log", ("*",), False, 2, 7, ends_with_newline=False
    )
    for last_line in ("hold", "settle", "publish"):
        assert plan_file(file(LOG, "one\ntwo", DEVEX), held, DEVEX, last_line).changes == []
    (change,) = plan_file(file(LOG, "one\ntwo\nthree\n", DEVEX), held, DEVEX).changes
    assert isinstance(change, Upsert)


def test_changed_access_sends_the_whole_log_even_if_it_grew() -> None:
    index = indexed("one\n")
    index.declaration = replace(DEVEX, access=("group:ops",))
    (change,) = step(index, "one\ntwo\n")
    assert isinstance(change, Upsert)
    assert change.access == ("group:ops",)


def test_large_logs_travel_in_appends_of_bounded_size() -> None:
    line = "x" * 99 + "\n"
    index = IndexModel(GITHUB)
    changes = step(index, line * 20_000)
    assert index.contents[LOG] == line * 20_000
    assert len(changes) == 4
    assert all(isinstance(each, Append) and len(each.content) <= logs.APPEND_BYTES for each in changes)


def test_a_line_longer_than_the_bound_travels_alone() -> None:
    long = "x" * (logs.APPEND_BYTES + 10) + "\n"
    changes = step(IndexModel(DEVEX), "a\n" + long + "b\n")
    assert [change.content for change in changes if isinstance(change, Append)] == ["a\n", long, "b\n"]


def test_growth_is_told_from_a_rewrite_across_digest_blocks() -> None:
    start = "".join(f"line {n}\n" for n in range(20_000))
    index = indexed(start)
    assert [type(change) for change in step(index, start + "more\n")] == [Append]
    assert [type(change) for change in step(index, "X" + start[1:] + "more\nagain\n")] == [Upsert]


pieces = st.sampled_from([b"a", b"b", b"\n", b"\r\n", "é".encode(), b"\xc3", b"\xa9", b"\xff", b"\n\n"])
contents = st.lists(pieces, max_size=8).map(b"".join)
edits = st.one_of(
    contents.map(lambda more: ("grow", more)),
    contents.map(lambda new: ("rewrite", new)),
    st.just(("remove", b"")),
)
last_lines: st.SearchStrategy[LastLine] = st.sampled_from(["hold", "settle", "publish"])


@settings(max_examples=300)
@given(st.lists(st.tuples(edits, last_lines), max_size=8), st.sampled_from([1, 3, 512]))
def test_whatever_happens_to_a_log_the_index_holds_its_whole_lines(
    history: list[tuple[tuple[str, bytes], LastLine]], bound: int
) -> None:
    index = IndexModel(DEVEX)
    now: bytes | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "APPEND_BYTES", bound)
        for (edit, content), last_line in history:
            grown = edit == "grow"
            now = None if edit == "remove" else (now or b"") + content if grown else content
            before = index.contents.get(LOG)
            changes = step(index, now, last_line)
            assert_holds(index, now, last_line, before)
            if grown and before is not None and index.contents[LOG].startswith(before):
                assert not any(isinstance(change, Upsert) for change in changes)
            assert step(index, now, last_line) == []


def assert_holds(index: IndexModel, now: bytes | None, last_line: LastLine, before: str | None) -> None:
    if now is None:
        assert LOG not in index.contents
        return
    expected = whole_lines(now, last_line).decode(errors="replace")
    kept = {before} & {now.decode(errors="replace"), (now + b"\n").decode(errors="replace")}
    assert index.contents.get(LOG, "") in {expected, *kept}


@given(contents, contents)
def test_what_a_plan_says_is_held_afterwards_is_what_is_held(first: bytes, second: bytes) -> None:
    index = IndexModel(DEVEX)
    for content in (first, first + second, second):
        planned = plan_file(file(LOG, content, DEVEX), index.held.get(LOG), DEVEX, "publish")
        index.apply(planned.changes)
        held = index.held.get(LOG)
        if held is None:
            assert planned.after is None
        else:
            assert planned.after == replace(held, revision=planned.after.revision if planned.after else -1)
