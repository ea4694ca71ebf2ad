"""Parser ``sentence``: whole sentences packed up to a size, each chunk beginning some sentences back.

A sentence ends at a full stop, question or exclamation mark with the closing quotes and brackets behind it,
before white space; at a blank line; and at a line end where that line or the next one stands by itself: a
heading, list item, quote, table row, fence or rule. Soft-wrapped lines go on. A full stop ends nothing
behind an initial or a title (``J. Smith``, ``Dr. Smith``), nor before a lower-case letter. In logs each line
end ends a sentence, so that what was said stays said when the log grows.

The rule is a plain reading of text: it knows nothing of fences, nor of any language beyond these marks.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from tessera.ingestion.chunk import Parse, Reserve
from tessera.ingestion.lines import BLANKS
from tessera.ingestion.outline import Outline, nothing, parsed
from tessera.ingestion.resume import Resume

Span = tuple[int, int]

_BLANK: Final = BLANKS + "\n"

# All begin with one set of characters, which is searched for fast. A run of marks is looked at once, from its
# first mark on: else a line of a million dots takes for ever.
_STOP: Final = r"""
    (?<=[.!?…])(?<![.!?…][.!?…])[.!?…]*+["'”’»)\]]*+(?=[ \t\r\n])
  | (?<=[。！？])[。！？]*+[”’」』）]*+
"""

_LOG_END: Final = re.compile(rf"[.!?…。！？\n](?: (?<=\n) | {_STOP} )", re.VERBOSE)

_END: Final = re.compile(
    rf"""
    [.!?…。！？\n](?:
    (?<=\n)(?=
        [ \t\r]*+\n                                             # a blank line
      | [ \t]*+(?:[\#>|]|[-*+•][ \t]|\d{{1,9}}[.)][ \t]|```|~~~|={{3,}}|-{{3,}}|_{{3,}})
    )
  | {_STOP}
    )
    """,
    re.VERBOSE,
)

_ROW: Final = re.compile(r"\n\ufeff?[ \t]{0,3}(?:#{1,6}[ \t]|\|)[^\n]*+(?=\n)")
"""A heading or a table row is one sentence."""

_HEADING: Final = re.compile(r"\ufeff?[ \t]{0,3}#{1,6}[ \t]+\S[^\n]*")
_LAST_WORD: Final = re.compile(r"(?:^|\W)([^\W\d_]+(?:\.[^\W\d_]+)*)$")
_TITLES: Final = frozenset("mr mrs ms dr prof st vs cf fig e.g i.e".split())  # noqa: SIM905 - read as a line
_BACK: Final = 12
"""Characters looked back for an initial or a title: longer than any of them."""


def sentence_spans(text: str, *, lines: bool = False) -> list[Span]:
    """Half-open spans of the sentences of ``text``, rising and disjoint, without the blank space around.

    Every character with content is in one; the indentation of a sentence's first line is, too. ``lines``:
    each line end ends a sentence, as in a log.
    """
    ends = _log_ends(text) if lines else _ends(text)
    spans = []
    for start, end in pairwise([0, *ends, len(text)]):
        piece = text[start:end]
        content = piece.lstrip(_BLANK)
        if content:
            first = end - len(content)
            line = text.rfind("\n", start, first) + 1
            begins_line = line > 0 or start == 0 or text[start - 1] == "\n"
            spans.append((max(line, start) if begins_line else first, start + len(piece.rstrip(_BLANK))))
    return spans


def _log_ends(text: str) -> list[int]:
    return [match.end() for match in _LOG_END.finditer(text) if _is_end(text, *match.span())]


def _ends(text: str) -> list[int]:
    """Where sentences of a document end: none inside a heading or a table row, and each at its line end."""
    rows = [(match.start() + 1, match.end() + 1) for match in _ROW.finditer(text)]
    if first := _ROW.match("\n" + text[: text.find("\n") + 1]):
        rows.insert(0, (0, first.end()))
    ends = []
    row_ends = iter([*rows, (len(text) + 1, 0)])
    row, after = next(row_ends)
    for match in _END.finditer(text):
        start, end = match.span()
        if start >= row:
            while start >= after > 0:
                ends.append(after)
                row, after = next(row_ends)
            if start >= row:
                continue
        if text[start] != "." or end - start != 1 or _is_end(text, start, end):
            ends.append(end)
    while after > 0:
        ends.append(after)
        row, after = next(row_ends)
    return ends


def _is_end(text: str, start: int, end: int) -> bool:
    """Whether a match ends a sentence: a full stop by itself may stand behind an initial or a title."""
    if text[start] != "." or end - start != 1:
        return True
    following = text[end : end + _BACK].lstrip(" \t")[:1]
    if following.islower():
        return False
    word = _LAST_WORD.search(text, max(0, start - _BACK), start)
    return word is None or not (len(word[1]) == 1 or word[1].lower() in _TITLES)


def parse_sentences(
    text: str,
    begin: Resume,
    token_starts: npt.NDArray[np.int64],
    size: int | None,
    overlap: int,
    reserve: Reserve,
    *,
    lines: bool = False,
    by_lines: bool = False,
) -> Parse:
    """Pack the sentences of ``text``, the source from ``begin`` on, whose lines end at LF.

    A chunk has at most ``size`` tokens, less what ``reserve`` says is indexed beside it; a longer
    sentence is cut before a token. The next chunk begins up to ``overlap`` tokens of whole sentences back,
    and never inside its predecessor only. A heading leads what follows: no chunk ends with one that has
    content behind it, unless both are too long for one, and it begins a new chunk where the one before is
    half full. ``by_lines``: the next cut begins at the start of a line.
    """
    outline = Outline(text, begin)
    if not outline.starts:
        return nothing(text, begin)
    packing = _Packing(text, outline, token_starts, size or len(token_starts) + 1, overlap, reserve, lines)
    return parsed(text, begin, outline, packing.bounds(), by_lines=by_lines)


class _Packing:
    """Sentences on their way into chunks. ``units`` are sentences, or pieces of those that are too long."""

    def __init__(
        self,
        text: str,
        outline: Outline,
        token_starts: npt.NDArray[np.int64],
        size: int,
        overlap: int,
        reserve: Reserve,
        lines: bool,
    ) -> None:
        self._outline, self._size, self._overlap = outline, size, overlap
        self._reserve = cache(reserve)
        self.units: list[Span] = []
        self._tokens: list[int] = []
        self._leads: list[bool] = []
        self._token_starts = token_starts
        spans = np.array(sentence_spans(text, lines=lines), np.int64).reshape(-1, 2)
        borders = token_starts.searchsorted(spans).tolist()
        # A context takes half the size at most: shorter sentences fit wherever they stand.
        always = size - size // 2
        for (start, end), (token, after) in zip(spans.tolist(), borders, strict=True):
            is_heading = not lines and _HEADING.fullmatch(text, start, end) is not None
            if after - token <= always:
                self._add(start, end, after - token, is_heading)
            else:
                self._add_long(text, (start, end), (token, after), is_heading)
        # Tokens before each unit.
        self._before = list(accumulate(self._tokens, initial=0))

    def _add(self, start: int, end: int, tokens: int, is_heading: bool) -> None:
        self.units.append((start, end))
        self._tokens.append(tokens)
        self._leads.append(is_heading)

    def _add_long(self, text: str, span: Span, tokens: Span, is_heading: bool) -> None:
        """Add the pieces of a sentence that may be too long for a chunk."""
        (start, end), (token, after) = span, tokens
        while start < end:
            following = token + self._room(start)
            stops = int(self._token_starts[following]) if following < after else end
            last = start + len(text[start:stops].rstrip(_BLANK))
            self._add(start, last, min(following, after) - token, is_heading)
            start, token = stops, following

    def _room(self, start: int) -> int:
        """Tokens that a chunk beginning there may have, one at least."""
        return max(1, self._size - self._reserve(self._outline.around(start)))

    def _room_from(self, unit: int) -> int:
        return self._room(self.units[unit][0])

    def bounds(self) -> list[Span]:
        """Start and end of each chunk in the text."""
        bounds = []
        first = done = 0
        while done < len(self.units):
            after = self._filled(first, done)
            bounds.append((self.units[first][0], self.units[after - 1][1]))
            first, done = self._next(first, after), after
        return bounds

    def _filled(self, first: int, done: int) -> int:
        """The unit behind the chunk that begins with ``first`` and holds more than those before ``done``."""
        room = self._room_from(first)
        after = done + 1
        while after < len(self.units) and self._count(first, after + 1) <= room:
            if self._leads[after] and not self._leads[after - 1] and 2 * self._count(first, after) >= room:
                return after
            after += 1
        if after == len(self.units):
            return after
        content = after
        while content > done and self._leads[content - 1]:
            content -= 1
        return content if content > max(done, first) else after

    def _next(self, first: int, after: int) -> int:
        """Where the chunk begins that goes on at ``after``: up to the overlap back, in the same section."""
        start = after
        while (
            after < len(self.units)
            and start - 1 > first
            and not self._leads[start]
            and self._count(start - 1, after) <= self._overlap
            and self._count(start - 1, after + 1) <= self._room_from(start - 1)
        ):
            start -= 1
        return start

    def _count(self, first: int, after: int) -> int:
        return self._before[after] - self._before[first]
