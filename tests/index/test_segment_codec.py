from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import Batch, batches, contents

from tessera.errors import CorruptionError
from tessera.index.analyzer import WordsAnalyzer
from tessera.index.builder import build_segment
from tessera.index.codec import VERSION, decode, encode
from tessera.index.segment import ChunkEntry, DocumentEntry

ANALYZER = WordsAnalyzer()
GOLDEN = Path(__file__).parent.parent / "compat" / "segment-v1.bin"


def golden_batch() -> Batch:
    """What the golden file holds. Never change it: it stands for segments that are stored somewhere."""
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


def test_version_1_is_decoded_for_ever() -> None:
    assert contents(decode(GOLDEN.read_bytes())) == contents(build_segment(golden_batch(), ANALYZER))


@given(st.data())
def test_a_changed_or_missing_byte_is_found(data: st.DataObject) -> None:
    blob = GOLDEN.read_bytes()
    at = data.draw(st.integers(0, len(blob) - 1))
    changed = bytes([*blob[:at], blob[at] ^ data.draw(st.integers(1, 255)), *blob[at + 1 :]])
    with pytest.raises(CorruptionError):
        decode(changed)
    with pytest.raises(CorruptionError):
        decode(blob[:at])


def test_a_future_version_is_refused_by_name() -> None:
    blob = GOLDEN.read_bytes()
    with pytest.raises(CorruptionError, match=f"version {VERSION + 1}.*reads version {VERSION}"):
        decode(blob[:4] + bytes([VERSION + 1, 0]) + blob[6:])


def test_terms_more_frequent_than_a_byte_or_two_can_tell_survive() -> None:
    entry = DocumentEntry("a", "b", 1, "sha256:0", (), "text/plain", "t", 9, 1)
    chunks = [ChunkEntry(0, 0, 1, 0, 1, 1, 1, 0, 1, (), "x " * 70_000 + "y " * 300 + "z")]
    segment = decode(encode(build_segment([(entry, chunks)], ANALYZER)))
    assert segment.posting_tf.tolist() == [70_000, 300, 1]
