"""The bytes of a document: text where they are UTF-8, and what is recorded where they are not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tessera.events.change import ByteRange

MAX_RANGES = 1000
"""A file of noise would otherwise bring millions of ranges, more bytes than the file itself."""

_ESCAPED = re.compile("[\udc80-\udcff]+")


def decode_content(content: bytes) -> tuple[str, tuple[ByteRange, ...]]:
    """The text of ``content``, and the byte ranges that are not UTF-8.

    Undecodable bytes stand as U+FFFD, one per maximal ill-formed subpart (Unicode Standard, 3.9, and what
    Python's ``errors="replace"`` does). Ranges rise and neighbours are joined into one. Of more than
    :data:`MAX_RANGES` stretches the last range reaches from the start of the stretch with that number to
    the end of the last one.
    """
    try:
        return content.decode(), ()
    except UnicodeDecodeError:
        return content.decode(errors="replace"), _bounded(_stretches(content))


def _stretches(content: bytes) -> Iterator[ByteRange]:
    """Maximal runs of bytes that are not UTF-8. Linear in the content, whatever it holds."""
    # Each undecodable byte becomes one code point of U+DC80..U+DCFF, which valid UTF-8 never yields.
    text = content.decode(errors="surrogateescape")
    position = 0
    text_start = 0
    for found in _ESCAPED.finditer(text):
        start = position + len(text[text_start : found.start()].encode())
        position = start + len(found.group())
        text_start = found.end()
        yield ByteRange(start, position)


def _bounded(stretches: Iterator[ByteRange]) -> tuple[ByteRange, ...]:
    """The first ranges as they are, all from number :data:`MAX_RANGES` on as one."""
    ranges: list[ByteRange] = []
    for stretch in stretches:
        if len(ranges) < MAX_RANGES:
            ranges.append(stretch)
        else:
            ranges[-1] = ByteRange(ranges[-1].start, stretch.end)
    return tuple(ranges)
