from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import EventError
from tessera.events.change import (
    MAX_REVISION,
    MEDIA_TYPES,
    Append,
    ByteRange,
    Change,
    Delete,
    Part,
    Record,
    Upsert,
)
from tessera.events.content import decode_content
from tessera.events.decoding import APPEND_MEDIA_TYPES, decode_joined, decode_record, decode_value
from tessera.events.encoding import encode_change, encode_event
from tessera.events.parts import MAX_PARTS, PART_HEADER, join_parts, max_event_bytes, split_record
from tessera.events.reasons import REASONS
from tessera.events.topics import DOCUMENTS

UTF8_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAME = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/."), min_size=1, max_size=12
)
DOC_ID = st.lists(NAME, min_size=1, max_size=4).map("/".join)
ACCESS = st.none() | st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1)).map(tuple)
REVISION = st.none() | st.integers(0, MAX_REVISION)
TIME = st.sampled_from([None, "2026-06-28T09:00:00Z", "2026-06-28T09:00:00.5+02:00"])


@st.composite
def contents(draw: st.DrawFn, *, lines: bool = False) -> tuple[str, tuple[ByteRange, ...], bytes | None]:
    """Content as a connector has it: text, undecodable ranges, and the bytes where there are any."""
    raw = draw(st.binary() | UTF8_TEXT.map(str.encode))
    if lines and raw and not raw.endswith(b"\n"):
        raw += b"\n"
    text, undecodable = decode_content(raw)
    return text, undecodable, raw if undecodable else None


@st.composite
def upserts(draw: st.DrawFn) -> Upsert:
    text, undecodable, raw = draw(contents())
    media_type = draw(st.sampled_from(MEDIA_TYPES))
    revision, access, time = draw(REVISION), draw(ACCESS), draw(TIME)
    return Upsert(draw(NAME), draw(DOC_ID), revision, media_type, text, access, time, undecodable, raw)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    text, undecodable, raw = draw(contents(lines=True))
    media_type = draw(st.none() | st.sampled_from(APPEND_MEDIA_TYPES))
    first_line, access, time = draw(st.integers(1, MAX_REVISION)), draw(ACCESS), draw(TIME)
    return Append(draw(NAME), draw(DOC_ID), first_line, text, media_type, access, time, undecodable, raw)


DELETES = st.builds(Delete, NAME, DOC_ID, REVISION, st.just(False), TIME) | st.builds(
    Delete, NAME, DOC_ID, st.none(), st.just(True)
)
CHANGES: st.SearchStrategy[Change] = upserts() | appends() | DELETES


@given(CHANGES)
def test_every_change_comes_back_from_its_record(change: Change) -> None:
    event = encode_event(change)
    assert decode_record(Record(DOCUMENTS, 0, 0, event.key, event.value)) == change


@given(upserts(), st.integers(1, 2000), st.randoms())
def test_every_change_comes_back_from_the_records_it_is_split_into(
    change: Upsert, limit: int, random: Random
) -> None:
    event = encode_event(change)
    assert event.value is not None
    limit = max(limit, -(-len(event.value) // MAX_PARTS))
    parts = []
    for headers, payload in split_record(event.value, limit):
        assert 0 < len(payload) <= limit
        decoded = decode_record(Record(DOCUMENTS, 0, 0, event.key, payload, headers))
        if not isinstance(decoded, Part):
            assert len(event.value) <= limit
            assert decoded == change
            return
        parts.append(decoded)
    assert [part.index for part in parts] == list(range(len(parts)))
    random.shuffle(parts)
    value = join_parts(parts)
    assert value == event.value
    assert decode_joined(event.key, value) == change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Upsert("a/b", "x", None, "text/plain", "", None), "invalid_source"),
        (Upsert("a", "", None, "text/plain", "", None), "invalid_doc_id"),
        (Upsert("a", "x", -1, "text/plain", "", None), "out_of_range"),
        (Upsert("a", "x", 2**64, "text/plain", "", None), "not_encodable"),
        (Upsert("a", "x\udcff", 1, "text/plain", "", None), "not_encodable"),
        (Upsert("a", "x", 1, "text/plain", "", ("",)), "invalid_access"),
        (Append("a", "x", 0, ""), "out_of_range"),
        (Delete("a", "../x", 1), "invalid_doc_id"),
        (Delete("a", "../x", None, outright=True), "invalid_doc_id"),
        (
            Upsert("a", "x", 1, "text/plain", "\ufffd", None, undecodable=(ByteRange(0, 1),)),
            "undecodable_content",
        ),
        (Upsert("a", "x", 1, "text/plain", "x" * 101, None), "too_large"),
    ],
)
def test_what_decoding_would_refuse_is_not_encoded(change: Change, reason: str) -> None:
    with pytest.raises(EventError) as caught:
        encode_event(change, max_content_bytes=100)
    assert caught.value.reason == reason
    assert reason in REASONS


def test_other_bytes_than_the_contents_are_not_encoded() -> None:
    change = Upsert("a", "x", 1, "text/plain", "\ufffd", None, undecodable=(ByteRange(0, 1),), raw=b"\xffx")
    with pytest.raises(ValueError, match="raw"):
        encode_change(change)


@pytest.mark.parametrize("character", ["\0", "\n", '"', "é", "🜁"])
def test_no_content_makes_an_event_larger_than_is_accepted_in_parts(character: str) -> None:
    size = 3_000_000
    content = character * (size // len(character.encode()))
    value = encode_change(Upsert("a", "x", 1, "text/plain", content, ("*",)))
    assert len(value) <= max_event_bytes(len(content.encode()))
    change = decode_value(value)
    assert isinstance(change, Upsert)
    assert change.content == content


@settings(max_examples=20)
@given(st.binary(min_size=1, max_size=500))
def test_equal_events_have_equal_parts(value: bytes) -> None:
    assert split_record(value, 10 + len(value) // 5) == split_record(value, 10 + len(value) // 5)


def test_an_event_that_would_take_too_many_records_is_refused() -> None:
    assert len(split_record(b"x" * MAX_PARTS, limit=1)) == MAX_PARTS
    with pytest.raises(EventError) as caught:
        split_record(b"x" * (MAX_PARTS + 1), limit=1)
    assert caught.value.reason == "too_large"


GROUP = "a" * 64


def part_header(text: str | None = None, **changes: object) -> tuple[tuple[str, bytes], ...]:
    fields = {"group": GROUP, "index": 0, "count": 2, "size_bytes": 10, **changes}
    return ((PART_HEADER, (json.dumps(fields) if text is None else text).encode()),)


@pytest.mark.parametrize(
    ("headers", "payload", "reason"),
    [
        (part_header(""), b"x", "invalid_part"),
        (part_header("[]"), b"x", "invalid_part"),
        (part_header("{}"), b"x", "invalid_part"),
        (part_header(more=1), b"x", "invalid_part"),
        (part_header() * 2, b"x", "invalid_part"),
        (part_header(group="A" * 64), b"x", "invalid_part"),
        (part_header(group=7), b"x", "invalid_part"),
        (part_header(index=True), b"x", "invalid_part"),
        (part_header(index=0.0), b"x", "invalid_part"),
        (part_header(index=2), b"x", "invalid_part"),
        (part_header(index=-1), b"x", "invalid_part"),
        (part_header(count=0), b"x", "invalid_part"),
        (part_header(count=MAX_PARTS + 1, size_bytes=10**6), b"x", "invalid_part"),
        (part_header(size_bytes=-1), b"x", "invalid_part"),
        (part_header(size_bytes=10**12), b"x", "too_large"),
        (part_header(), b"", "invalid_part"),
        (part_header(), None, "invalid_part"),
        (part_header(), b"x" * 10, "invalid_part"),  # nothing left for the other part
    ],
)
def test_a_part_that_is_not_well_formed_is_refused(
    headers: tuple[tuple[str, bytes], ...], payload: bytes | None, reason: str
) -> None:
    with pytest.raises(EventError) as caught:
        decode_record(Record(DOCUMENTS, 0, 0, b"a/x", payload, headers))
    assert caught.value.reason == reason
    assert reason in REASONS


def test_a_part_must_have_a_documents_key() -> None:
    with pytest.raises(EventError) as caught:
        decode_record(Record(DOCUMENTS, 0, 0, b"x", b"x", part_header()))
    assert caught.value.reason == "invalid_key"


def test_other_headers_are_left_alone() -> None:
    event = encode_event(Delete("a", "x", 1))
    found = decode_record(Record(DOCUMENTS, 0, 0, event.key, event.value, (("traceparent", b"\xff"),)))
    assert found == Delete("a", "x", 1)


def parts_of(value: bytes, limit: int) -> list[Part]:
    decoded = (decode_record(Record(DOCUMENTS, 0, 0, b"a/x", p, h)) for h, p in split_record(value, limit))
    return [part for part in decoded if isinstance(part, Part)]


def test_parts_that_are_not_one_whole_event_are_not_joined() -> None:
    parts = parts_of(b"0123456789", 4)
    other = parts_of(b"9876543210", 4)
    assert join_parts(parts) == b"0123456789"
    forged = Part(parts[2].group, 2, 3, 10, b"XX")
    for wrong in ([], parts[:2], [*parts, parts[0]], [*parts[:2], other[2]], [*parts[:2], forged]):
        with pytest.raises(EventError) as caught:
            join_parts(wrong)
        assert caught.value.reason == "invalid_part"
