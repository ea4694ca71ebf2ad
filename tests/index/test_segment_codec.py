from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import Batch, batches, contents

from tessera.errors import CorruptionError
from tessera.index import codec
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.builder import build_segment
from tessera.index.codec import VERSION, decode, encode
from tessera.index.segment import ChunkEntry, DocumentEntry

ANALYZER = WordsAnalyzer()
GOLDENS = [Path(__file__).parent.parent / "compat" / f"segment-v{version}.bin" for version in (1, VERSION)]


def golden_batch() -> Batch:
    """What the golden files hold. Never change it: it stands for segments that are stored somewhere."""
    entry = DocumentEntry(
        "handbook", "contracts/msa.md", 42, "sha256:00ff", ("group:legal", "*"), "text/markdown", "t-1", 97, 7
    )
    log = DocumentEntry(
        "devex", "run_R-1042", 2**40 + 5, "sha256-64k:aa", (), "text/x-run-log", "t-2", 70_000, 9
    )
    return [
        (
            entry,
            [
                ChunkEntry(0, 0, 40, 0, 43, 1, 3, 0, 6, ("Mäster",), "# Mäster\n\nThe the agreement of 2026"),
                ChunkEntry(1, 42, 90, 45, 97, 5, 6, 6, 15, ("Mäster", "Terms"), "## Terms\n\nNone of these."),
            ],
        ),
        (log, [ChunkEntry(300, 69_000, 69_900, 69_100, 70_000, 900, 960, 5000, 5100, (), "err " * 300)]),
    ]


@settings(max_examples=100, deadline=None)
@given(batches)
def test_decoding_gives_back_the_segment(batch: Batch) -> None:
    segment = build_segment(batch, ANALYZER)
    assert contents(decode(encode(segment))) == contents(segment)


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_every_version_is_decoded_for_ever(golden: Path) -> None:
    assert contents(decode(golden.read_bytes())) == contents(build_segment(golden_batch(), ANALYZER))


@given(st.data())
def test_a_changed_or_missing_byte_is_found(data: st.DataObject) -> None:
    blob = GOLDENS[-1].read_bytes()
    at = data.draw(st.integers(0, len(blob) - 1))
    changed = bytes([*blob[:at], blob[at] ^ data.draw(st.integers(1, 255)), *blob[at + 1 :]])
    with pytest.raises(CorruptionError):
        decode(changed)
    with pytest.raises(CorruptionError):
        decode(blob[:at])


@given(st.data())
def test_what_was_made_to_pass_for_a_segment_is_found(data: st.DataObject) -> None:
    """Somebody who can write to the store can give any bytes their checksum."""
    blob = GOLDENS[-1].read_bytes()
    at = data.draw(st.integers(22, len(blob) - 1))
    body = blob[22:at] + bytes([blob[at] ^ data.draw(st.integers(1, 255))]) + blob[at + 1 :]
    body = body[: data.draw(st.integers(0, len(body)))]
    forged = blob[:6] + hashlib.blake2b(body, digest_size=16).digest() + body
    with contextlib.suppress(CorruptionError):
        decode(forged)


def test_a_future_version_is_refused_by_name() -> None:
    blob = GOLDENS[-1].read_bytes()
    with pytest.raises(CorruptionError, match=f"version {VERSION + 1}.*reads versions 1 and {VERSION}"):
        decode(blob[:4] + bytes([VERSION + 1, 0]) + blob[6:])


def test_terms_more_frequent_than_a_byte_or_two_can_tell_survive() -> None:
    entry = DocumentEntry("a", "b", 1, "sha256:0", (), "text/plain", "t", 9, 1)
    chunks = [ChunkEntry(0, 0, 1, 0, 1, 1, 1, 0, 1, (), "x " * 70_000 + "y " * 300 + "z")]
    segment = decode(encode(build_segment([(entry, chunks)], ANALYZER)))
    assert segment.posting_tf.tolist() == [70_000, 300, 1]


def test_a_long_title_over_many_sections_is_stored_once() -> None:
    entry = DocumentEntry("a", "b", 1, "sha256:0", (), "text/markdown", "t", 9, 1)
    chunks = [
        ChunkEntry(each, each, each + 1, each, each + 1, 1, 1, 0, 1, ("long " * 1000, f"section {each}"), "x")
        for each in range(2000)
    ]
    blob = encode(build_segment([(entry, chunks)], ANALYZER))
    _, headings, *_ = codec._sections(memoryview(blob)[22:])
    assert len(headings) < 100_000
    assert {path[0] for path in decode(blob).headings} == {"long " * 1000}
