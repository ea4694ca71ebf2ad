"""What context assembly is given, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Span = tuple[int, int]
"""Code points from the first to before the second."""


MAX_BLANK: Final = 4096
"""Characters of blank space over which neighbours are joined. It costs no tokens, so the budget does not
bound it: the missing lines of a log stand as empty lines, up to millions of them."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A hit as assembly sees it: code points ``start`` to ``end`` of document ``key``, half-open.

    ``key`` is ``<source>/<doc_id>``, ``uid`` the chunk's; ``score`` is not negative. ``after`` is the blank
    space that follows in the document, :data:`MAX_BLANK` of it at most: where it reaches the next chunk, both
    are neighbours.
    """

    key: str
    uid: str
    start: int
    end: int
    score: float
    text: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the context: code points ``start`` to ``end`` of document ``key``, verbatim.

    ``uids`` are the chunks that it was taken from, best first; ``score`` is that of the best.
    """

    key: str
    start: int
    end: int
    text: str
    uids: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Context:
    """Pieces in the order of reading, disjoint per document, with ``used`` of ``budget`` measured.

    ``left_out`` are the chunks of hits of which nothing went in, best first.
    """

    pieces: tuple[Piece, ...]
    used: int
    budget: int
    left_out: tuple[str, ...]

    @property
    def utilization(self) -> float:
        """Share of the budget that is used."""
        return self.used / self.budget
