from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import EventError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import MAX_REVISION, Append, ByteRange, Delete, Record, Upsert
from tessera.events.content import MAX_RANGES, decode_content
from tessera.events.decoding import (
    MAX_PRINCIPALS,
    check_partition,
    check_routing,
    decode_joined,
    decode_record,
    decode_value,
)
from tessera.events.identity import MAX_DOC_ID_BYTES, MAX_SOURCE_BYTES
from tessera.events.reasons import REASONS
from tessera.events.topics import DOCUMENTS, LOGS, partition_of

UPSERT: dict[str, Any] = {
    "v": 1,
    "op": "upsert",
    "source": "handbook",
    "doc_id": "contracts/msa.md",
    "revision": 42,
    "media_type": "text/markdown",
    "content": "# Master agreement\n",
    "access": ["group:legal"],
    "occurred_at": "2026-06-28T09:00:00Z",
}
DELETE: dict[str, Any] = {"v": 1, "op": "delete", "source": "handbook", "doc_id": "a.md", "revision": 43}
APPEND: dict[str, Any] = {
    "v": 1,
    "op": "append",
    "source": "devex",
    "doc_id": "run_R-1042",
    "first_line": 120,
    "content": "one\ntwo",
}
ABSENT = object()


def event(base: dict[str, Any], **changes: Any) -> bytes:
    fields = {**base, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ABSENT}).encode()


def record(value: bytes | None, key: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record(DOCUMENTS, partition=0, offset=7, key=key, value=value, headers=headers)


def refusal(value: bytes, **options: int) -> EventError:
    with pytest.raises(EventError) as caught:
        decode_value(value, **options)
    return caught.value


def test_an_upsert_decodes_to_all_its_fields() -> None:
    assert decode_record(record(event(UPSERT), b"handbook/contracts/msa.md")) == Upsert(
        "handbook",
        "contracts/msa.md",
        revision=42,
        media_type="text/markdown",
        content="# Master agreement\n",
        access=("group:legal",),
        occurred_at="2026-06-28T09:00:00Z",
    )


def test_what_an_upsert_may_leave_out_is_none() -> None:
    change = decode_value(event(UPSERT, revision=ABSENT, access=ABSENT, occurred_at=ABSENT))
    assert isinstance(change, Upsert)
    assert (change.revision, change.access, change.occurred_at) == (None, None, None)


def test_an_empty_access_list_is_not_the_sources_default() -> None:
    change = decode_value(event(UPSERT, access=[]))
    assert isinstance(change, Upsert)
    assert change.access == ()


def test_a_delete_decodes() -> None:
    assert decode_value(event(DELETE)) == Delete("handbook", "a.md", revision=43)


def test_a_null_value_deletes_the_keys_document_outright() -> None:
    found = decode_record(record(None, "handbook/ä/b#c:d.md".encode()))
    assert found == Delete("handbook", "ä/b#c:d.md", revision=None, outright=True)


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ("one\ntwo", "one\ntwo\n"),
        ("one\n", "one\n"),
        ("", ""),
        ("\n", "\n"),
        ("a\r", "a\r\n"),
        ("a\0b", "a\0b\n"),
    ],
)
def test_an_append_holds_whole_lines(given: str, lines: str) -> None:
    assert decode_value(event(APPEND, content=given)) == Append("devex", "run_R-1042", 120, lines)


REFUSED: list[tuple[str, bytes, str, str]] = [
    # name, value, reason, field
    ("empty", b"", "invalid_json", ""),
    ("text", b"upsert", "invalid_json", ""),
    ("cut", event(UPSERT)[:-1], "invalid_json", ""),
    ("two values", event(DELETE) + event(DELETE), "invalid_json", ""),
    ("byte order mark", b"\xef\xbb\xbf" + event(DELETE), "invalid_json", ""),
    ("Latin-1", event(UPSERT, content="x").replace(b'"x"', b'"\xe9"'), "invalid_json", ""),
    ("lone surrogate", event(UPSERT, content="\ud800"), "invalid_json", ""),
    ("not a number", event(UPSERT).replace(b"42", b"NaN"), "invalid_json", ""),
    ("nested without end", b"[" * 100_000, "invalid_json", ""),
    ("array", b"[]", "not_an_object", ""),
    ("null", b"null", "not_an_object", ""),
    ("no version", event(UPSERT, v=ABSENT), "missing_field", "v"),
    ("version 2", event(UPSERT, v=2), "unsupported_version", "v"),
    ("version true", event(UPSERT, v=True), "wrong_type", "v"),
    ("version 1.0", event(UPSERT, v=1.0), "wrong_type", "v"),
    ("no op", event(UPSERT, op=ABSENT), "missing_field", "op"),
    ("unknown op", event(UPSERT, op="replace"), "unknown_op", "op"),
    ("op in capitals", event(UPSERT, op="Upsert"), "unknown_op", "op"),
    ("op is a list", event(UPSERT, op=["upsert"]), "wrong_type", "op"),
    ("unknown field", event(UPSERT, colour="red"), "unknown_field", "'colour'"),
    ("revision of an append", event(APPEND, revision=1), "unknown_field", "'revision'"),
    ("content of a delete", event(DELETE, content="x"), "unknown_field", "'content'"),
    ("first line of an upsert", event(UPSERT, first_line=1), "unknown_field", "'first_line'"),
    ("no source", event(UPSERT, source=ABSENT), "missing_field", "source"),
    ("source is a number", event(UPSERT, source=7), "wrong_type", "source"),
    ("source is null", event(UPSERT, source=None), "wrong_type", "source"),
    ("empty source", event(UPSERT, source=""), "invalid_source", "source"),
    ("source with a slash", event(UPSERT, source="a/b"), "invalid_source", "source"),
    ("source with a line end", event(UPSERT, source="a\nb"), "invalid_source", "source"),
    ("source with DEL", event(UPSERT, source="a\x7f"), "invalid_source", "source"),
    ("source of dots", event(UPSERT, source=".."), "invalid_source", "source"),
    ("long source", event(UPSERT, source="ä" * (MAX_SOURCE_BYTES // 2) + "x"), "invalid_source", "source"),
    ("no doc_id", event(UPSERT, doc_id=ABSENT), "missing_field", "doc_id"),
    ("empty doc_id", event(UPSERT, doc_id=""), "invalid_doc_id", "doc_id"),
    ("doc_id with NUL", event(UPSERT, doc_id="a\0b"), "invalid_doc_id", "doc_id"),
    ("doc_id with a C1 control", event(UPSERT, doc_id="a\x85b"), "invalid_doc_id", "doc_id"),
    ("doc_id that climbs", event(UPSERT, doc_id="a/../b"), "invalid_doc_id", "doc_id"),
    ("doc_id with a part '.'", event(UPSERT, doc_id="./b"), "invalid_doc_id", "doc_id"),
    ("long doc_id", event(UPSERT, doc_id="x" * (MAX_DOC_ID_BYTES + 1)), "invalid_doc_id", "doc_id"),
    ("revision true", event(UPSERT, revision=True), "wrong_type", "revision"),
    ("revision text", event(UPSERT, revision="42"), "wrong_type", "revision"),
    ("revision null", event(UPSERT, revision=None), "wrong_type", "revision"),
    ("revision 42.0", event(UPSERT, revision=42.0), "wrong_type", "revision"),
    ("revision below 0", event(UPSERT, revision=-1), "out_of_range", "revision"),
    ("revision 2^63", event(UPSERT, revision=MAX_REVISION + 1), "out_of_range", "revision"),
    ("revision 2^64", event(DELETE, revision=2**64), "wrong_type", "revision"),
    ("no first line", event(APPEND, first_line=ABSENT), "missing_field", "first_line"),
    ("first line 0", event(APPEND, first_line=0), "out_of_range", "first_line"),
    ("first line true", event(APPEND, first_line=True), "wrong_type", "first_line"),
    ("no media type", event(UPSERT, media_type=ABSENT), "missing_field", "media_type"),
    ("unknown media type", event(UPSERT, media_type="text/html"), "invalid_media_type", "media_type"),
    ("Markdown append", event(APPEND, media_type="text/markdown"), "invalid_media_type", "media_type"),
    ("media type null", event(APPEND, media_type=None), "wrong_type", "media_type"),
    ("no content", event(UPSERT, content=ABSENT), "missing_field", "content"),
    ("content twice", event(UPSERT, content_base64="eA=="), "content_twice", "content"),
    ("content null", event(UPSERT, content=None), "wrong_type", "content"),
    ("base64 null", event(UPSERT, content=ABSENT, content_base64=None), "wrong_type", "content_base64"),
    ("base64 cut", event(UPSERT, content=ABSENT, content_base64="eA="), "invalid_base64", "content_base64"),
    ("base64 text", event(UPSERT, content=ABSENT, content_base64="é==="), "invalid_base64", "content_base64"),
    (
        "base64 line",
        event(UPSERT, content=ABSENT, content_base64="eA==\n"),
        "invalid_base64",
        "content_base64",
    ),
    ("access is text", event(UPSERT, access="group:legal"), "wrong_type", "access"),
    ("access of numbers", event(UPSERT, access=[1]), "wrong_type", "access"),
    ("access of nothing", event(UPSERT, access=[""]), "invalid_access", "access"),
    ("long principal", event(UPSERT, access=["x" * 1025]), "invalid_access", "access"),
    ("long access", event(UPSERT, access=["x"] * (MAX_PRINCIPALS + 1)), "invalid_access", "access"),
    ("time is a number", event(UPSERT, occurred_at=1750000000), "wrong_type", "occurred_at"),
    ("time without zone", event(UPSERT, occurred_at="2026-06-28T09:00:00"), "invalid_time", "occurred_at"),
    ("date only", event(UPSERT, occurred_at="2026-06-28"), "invalid_time", "occurred_at"),
    ("30 February", event(UPSERT, occurred_at="2026-02-30T09:00:00Z"), "invalid_time", "occurred_at"),
    ("hour 24", event(UPSERT, occurred_at="2026-02-20T24:00:00Z"), "invalid_time", "occurred_at"),
    ("Arabic digits", event(UPSERT, occurred_at="٢٠٢٦-06-28T09:00:00Z"), "invalid_time", "occurred_at"),
]


@pytest.mark.parametrize(
    ("value", "reason", "field"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_is_wrong_is_refused_with_its_reason(value: bytes, reason: str, field: str) -> None:
    error = refusal(value)
    assert (error.reason, error.field) == (reason, field)
    assert reason in REASONS


@pytest.mark.parametrize(
    "time", ["2026-06-28T09:00:00Z", "1990-12-31t23:59:60.123456789z", "2024-02-29T00:00:00-08:30"]
)
def test_rfc_3339_times_are_kept_as_given(time: str) -> None:
    change = decode_value(event(DELETE, occurred_at=time))
    assert isinstance(change, Delete)
    assert change.occurred_at == time


@pytest.mark.parametrize(
    "doc_id", ["a//b", "/a", "s3://bucket/key", "a:b#c@1", "ärger/文書.md", "a..b", "...", " a "]
)
def test_doc_ids_hold_what_names_hold(doc_id: str) -> None:
    assert decode_value(event(DELETE, doc_id=doc_id)) == Delete("handbook", doc_id, revision=43)


def test_a_refusal_does_not_repeat_the_content() -> None:
    secret = "top secret"
    for value in (
        event(UPSERT, content=secret, revision="x"),
        event(UPSERT, content=secret, content_base64=base64.b64encode(secret.encode()).decode()),
        event(APPEND, content=secret * 10, first_line=0),
    ):
        assert secret not in str(refusal(value))
    assert secret not in str(refusal(event(UPSERT, content=secret), max_content_bytes=3))


@pytest.mark.parametrize("text", ["x" * 10, "ä" * 5, "🜁🜁ab"])
@pytest.mark.parametrize("as_base64", [False, True])
def test_content_is_bounded_in_bytes(text: str, as_base64: bool) -> None:
    value = event(UPSERT, content=text)
    if as_base64:
        value = event(UPSERT, content=ABSENT, content_base64=base64.b64encode(text.encode()).decode())
    change = decode_value(value, max_content_bytes=10)
    assert isinstance(change, Upsert)
    assert change.content == text
    assert refusal(value, max_content_bytes=9).reason == "too_large"


KEYS: list[tuple[str, bytes | None, bytes | None, str]] = [
    ("no key", None, event(UPSERT), "missing_key"),
    ("no key, no value", None, None, "missing_key"),
    ("another document", b"handbook/other.md", event(UPSERT), "key_mismatch"),
    ("no source", b"contracts/msa.md", event(UPSERT), "key_mismatch"),
    ("not UTF-8", b"handbook/\xff", event(UPSERT), "key_mismatch"),
    ("null value, not UTF-8", b"handbook/\xff", None, "invalid_key"),
    ("null value, no slash", b"handbook", None, "invalid_key"),
    ("null value, no source", b"/a.md", None, "invalid_key"),
    ("null value, no document", b"handbook/", None, "invalid_key"),
    ("null value, control", b"handbook/a\n", None, "invalid_key"),
    ("null value, empty key", b"", None, "invalid_key"),
]


@pytest.mark.parametrize(
    ("key", "value", "reason"), [case[1:] for case in KEYS], ids=[case[0] for case in KEYS]
)
def test_a_key_that_is_not_the_documents_is_refused(
    key: bytes | None, value: bytes | None, reason: str
) -> None:
    with pytest.raises(EventError) as caught:
        decode_record(record(value, key))
    assert caught.value.reason == reason
    assert reason in REASONS


def test_a_joined_event_is_held_to_its_key_too() -> None:
    assert decode_joined(b"handbook/a.md", event(DELETE)) == Delete("handbook", "a.md", revision=43)
    with pytest.raises(EventError, match="key") as caught:
        decode_joined(b"handbook/b.md", event(DELETE))
    assert caught.value.reason == "key_mismatch"


def slow_ranges(content: bytes) -> tuple[ByteRange, ...]:
    """Undecodable stretches, found by asking of one error after the other."""
    ranges: list[ByteRange] = []
    start = 0
    while True:
        try:
            content[start:].decode()
        except UnicodeDecodeError as error:
            bad = ByteRange(start + error.start, start + error.end)
            if ranges and ranges[-1].end == bad.start:
                ranges[-1] = ByteRange(ranges[-1].start, bad.end)
            else:
                ranges.append(bad)
            start = bad.end
        else:
            return tuple(ranges)


@given(
    st.lists(
        st.sampled_from([b"a", "ä".encode(), "🜁".encode(), b"\xff", b"\xf0\x9f", b"\xed\xa0\x80", b"\n"])
    )
)
def test_bytes_that_are_not_utf8_stand_as_replacements_with_their_ranges(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    encoded = base64.b64encode(content).decode()
    change = decode_value(event(UPSERT, content=ABSENT, content_base64=encoded))
    assert isinstance(change, Upsert)
    assert change.content == content.decode(errors="replace")
    assert change.undecodable == slow_ranges(content)


def test_an_append_may_be_bytes() -> None:
    encoded = base64.b64encode(b"a\xffb").decode()
    change = decode_value(event(APPEND, content=ABSENT, content_base64=encoded))
    assert change == Append("devex", "run_R-1042", 120, "a\ufffdb\n", undecodable=(ByteRange(1, 2),))


def test_of_too_many_undecodable_ranges_the_last_covers_the_rest() -> None:
    content = b"a\xff" * (MAX_RANGES + 500)
    _, ranges = decode_content(content)
    assert len(ranges) == MAX_RANGES
    assert ranges[:2] == (ByteRange(1, 2), ByteRange(3, 4))
    assert ranges[-1] == ByteRange(2 * MAX_RANGES - 1, len(content))


CATALOG = SourceCatalog(
    [
        SourceDeclaration("handbook", revision_from="event"),
        SourceDeclaration("ci", kind="github"),
    ]
)


def upsert(source: str, revision: int | None = None) -> Upsert:
    return Upsert(source, "a", revision, "text/plain", "x", None)


@pytest.mark.parametrize(
    ("change", "topic", "reason"),
    [
        (upsert("handbook", 1), LOGS, "wrong_topic"),
        (upsert("ci"), DOCUMENTS, "wrong_topic"),
        (Delete("ci", "a", None, outright=True), DOCUMENTS, "wrong_topic"),
        (Append("ci", "a", 1, "x\n"), DOCUMENTS, "wrong_topic"),
        (Append("handbook", "a", 1, "x\n"), DOCUMENTS, "append_to_documents"),
        (Append("undeclared", "a", 1, "x\n"), DOCUMENTS, "append_to_documents"),
        (upsert("handbook"), DOCUMENTS, "revision_missing"),
        (Delete("handbook", "a", None), DOCUMENTS, "revision_missing"),
    ],
)
def test_a_change_must_fit_what_its_source_declares(change: Any, topic: str, reason: str) -> None:
    with pytest.raises(EventError) as caught:
        check_routing(change, CATALOG, topic)
    assert caught.value.reason == reason
    assert reason in REASONS


@pytest.mark.parametrize(
    ("change", "topic"),
    [
        (upsert("handbook", 0), DOCUMENTS),
        (Delete("handbook", "a", None, outright=True), DOCUMENTS),
        (upsert("undeclared"), DOCUMENTS),
        (upsert("ci"), LOGS),
        (Append("ci", "a", 1, "x\n"), LOGS),
        (Append("devex", "a", 1, "x\n"), LOGS),
    ],
)
def test_a_change_that_fits_passes(change: Any, topic: str) -> None:
    check_routing(change, CATALOG, topic)


def test_a_record_in_another_partition_than_its_keys_is_refused() -> None:
    key = b"handbook/a.md"
    home = partition_of(key, 4)
    for partition in range(4):
        candidate = Record(DOCUMENTS, partition, 0, key, None)
        if partition == home:
            check_partition(candidate, 4)
        else:
            with pytest.raises(EventError) as caught:
                check_partition(candidate, 4)
            assert caught.value.reason == "wrong_partition"
    with pytest.raises(EventError) as caught:
        check_partition(Record(DOCUMENTS, 0, 0, None, b"x"), 4)
    assert caught.value.reason == "missing_key"
