"""Parser ``window``: so many tokens a chunk, each beginning some tokens back in the one before.

Between two tokens stands what holds none: spaces, marks, rules like ``---``. A window begins with its first
token, or with that token's line where it is the line's first; it ends before the next window's first token
would begin so, without the blank space there. So every character with content is in a chunk, a heading keeps
its marks, a list item its bullet and a line of code its indentation.

``headings`` is the path at the window's first content that is no heading (at its last, where all are): for a
window that holds one section, what parser ``paragraph`` gives that section.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tessera.ingestion.chunk import Parse
from tessera.ingestion.lines import BLANKS
from tessera.ingestion.outline import Outline, nothing, parsed
from tessera.ingestion.resume import Resume

Offsets = npt.NDArray[np.int64]

Window = tuple[int, int]
"""Half-open, in tokens."""


def parse_windows(text: str, begin: Resume, token_starts: Offsets, windows: Sequence[Window]) -> Parse:
    """Find the spans of ``windows`` over ``text``, the source from ``begin`` on, whose lines end at LF.

    ``token_starts`` are offsets in ``text``; ``windows`` rise and hold all tokens. A text with content but no
    token is one span. The next cut begins at the last span; earlier where the text ends in headings that a
    next line could make text.
    """
    outline = Outline(text, begin)
    if not outline.starts:
        return nothing(text, begin)
    return parsed(text, begin, outline, _bounds(text, outline.starts[0], token_starts, windows))


def _bounds(
    text: str, content_start: int, token_starts: Offsets, windows: Sequence[Window]
) -> list[tuple[int, int]]:
    """Start and end of each window in ``text``; of all the content where there is no token."""
    bounds = []
    for first, after in windows or [(0, 0)]:
        start = _token_begin(text, token_starts, first) if first else content_start
        last = int(token_starts[after - 1]) if after else content_start
        limit = _token_begin(text, token_starts, after) if after < len(token_starts) else len(text)
        bounds.append((start, last + len(text[last:limit].rstrip(BLANKS + "\n"))))
    return bounds


def _token_begin(text: str, token_starts: Offsets, token: int) -> int:
    """Where a window that begins with this token begins: at its line where it is the line's first."""
    start = int(token_starts[token])
    line_feed = text.rfind("\n", int(token_starts[token - 1]), start)
    return start if line_feed < 0 else line_feed + 1
