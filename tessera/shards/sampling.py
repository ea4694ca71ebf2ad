"""Representability, sampled: of a few spans of each text that is cut, how many lie whole in one chunk.

The spans are such as answers are quoted from: one to three sentences of a document, or lines of a log. Which
ones is decided by the document's key and content alone: the same content, the same spans under every policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from tessera.index.segment import ChunkEntry
from tessera.ingestion import sentence_spans

ONE_IN: Final = 8
"""Texts of which one is looked at: measuring must cost little beside cutting."""

SPANS: Final = 2
"""Of each such text."""

WINDOW_BYTES: Final = 1_000
"""Sentences are looked for in so much of the text: nobody would quote a longer one."""

MAX_SENTENCES: Final = 3

Span = tuple[int, int]


def sample_spans(key: str, content_digest: str, data: bytes, *, is_log: bool) -> list[Span]:
    """Up to :data:`SPANS` spans of one text in :data:`ONE_IN`, half-open, in bytes of ``data``."""
    if int(content_digest[-4:], 16) % ONE_IN:
        return []
    seed = Random(f"{key} {content_digest}")  # noqa: S311 - a sample, not a secret
    found = []
    for _ in range(SPANS):
        place, wanted = seed.randrange(max(1, len(data))), seed.randint(1, MAX_SENTENCES)
        found += _around(data, place, wanted, is_log=is_log)
    return found


def count_whole(spans: Iterable[Span], chunks: Sequence[ChunkEntry], base: int) -> tuple[int, int]:
    """How many of the spans lie whole in some chunk, and how many do not; ``base`` is the data's first byte.

    Spans outside of what was cut are not counted: of a log only its end is cut again.
    """
    whole = split = 0
    if not chunks:
        return whole, split
    first, last = chunks[0].start_byte, max(chunk.end_byte for chunk in chunks)
    for start, end in ((start + base, end + base) for start, end in spans):
        if first <= start and end <= last:
            held = any(chunk.start_byte <= start and end <= chunk.end_byte for chunk in chunks)
            whole, split = whole + held, split + (not held)
    return whole, split


def _around(data: bytes, place: int, wanted: int, *, is_log: bool) -> list[Span]:
    """The span of ``wanted`` sentences from that at ``place`` on; none where one is too long."""
    start = _character(data, max(0, place - WINDOW_BYTES // 2))
    end = _character(data, min(len(data), place + WINDOW_BYTES // 2))
    text = data[start:end].decode()
    # What a border of the window cuts is no sentence.
    sentences = [
        (first, last)
        for first, last in sentence_spans(text, lines=is_log)
        if (first > 0 or start == 0) and (last < len(text) or end == len(data))
    ]
    offset = len(data[start : _character(data, place)].decode())
    at = next((number for number, (_, last) in enumerate(sentences) if last > offset), None)
    if at is None:
        return []
    first, last = sentences[at][0], sentences[min(at + wanted, len(sentences)) - 1][1]
    first_byte = start + len(text[:first].encode())
    return [(first_byte, first_byte + len(text[first:last].encode()))]


def _character(data: bytes, place: int) -> int:
    """The place, or the nearest before it at which a code point begins; where none does, the first behind.

    Of a log only the last blocks may be at hand, and a block can begin within a code point.
    """
    found = place
    while 0 < found < len(data) and _continues(data[found]):
        found -= 1
    while found < len(data) and _continues(data[found]):
        found += 1
    return found


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80
