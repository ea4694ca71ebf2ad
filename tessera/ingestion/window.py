"""Parser ``window``: so many tokens a chunk, each beginning some tokens back in the one before.

Between two tokens stands what holds none: spaces, marks, rules like ``---``. A window begins with its first
token, or with that token's line where it is the line's first; it ends before the next window's first token
would begin so, without the blank space there. So every character with content is in a chunk, a heading keeps
its marks, a list item its bullet and a line of code its indentation.

``headings`` is the path at the window's first content that is no heading (at its last, where all are): for a
window that holds one section, what parser ``paragraph`` gives that section. Where a policy indexes the
headings around a window with it, the window has so many tokens less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tessera.ingestion.chunk import Around, Parse
from tessera.ingestion.lines import BLANKS
from tessera.ingestion.outline import Outline, nothing, parsed
from tessera.ingestion.resume import Resume

Offsets = npt.NDArray[np.int64]

Window = tuple[int, int]
"""Half-open, in tokens."""


def parse_windows(
    text: str,
    begin: Resume,
    token_starts: Offsets,
    windows: Callable[[Callable[[int], Around]], Sequence[Window]],
    *,
    by_lines: bool = False,
) -> Parse:
    """Find the spans of windows over ``text``, the source from ``begin`` on, whose lines end at LF.

    ``token_starts`` are offsets in ``text``. ``windows`` gives windows that rise and hold all tokens; it is
    given what says what is around a window that begins with a token. A text with content but no
    token is one span. The next cut begins at the last span; earlier where the text ends in headings that a
    next line could make text, or, ``by_lines``, where no line starts there.
    """
    outline = Outline(text, begin)
    if not outline.starts:
        return nothing(text, begin)

    def begin_of(token: int) -> int:
        return _token_begin(text, token_starts, token) if token else outline.starts[0]

    found = windows(lambda token: outline.around(begin_of(token)))
    bounds = []
    for first, after in found or [(0, 0)]:
        last = int(token_starts[after - 1]) if after else outline.starts[0]
        limit = begin_of(after) if after < len(token_starts) else len(text)
        bounds.append((begin_of(first), last + len(text[last:limit].rstrip(BLANKS + "\n"))))
    return parsed(text, begin, outline, bounds, by_lines=by_lines)


def _token_begin(text: str, token_starts: Offsets, token: int) -> int:
    """Where a window that begins with this token begins: at its line where it is the line's first."""
    start = int(token_starts[token])
    line_feed = text.rfind("\n", int(token_starts[token - 1]), start)
    return start if line_feed < 0 else line_feed + 1
