"""Lines of places in a text, 1-based: they end at LF, or at CR in a source that has no LF and is no log."""

from __future__ import annotations

from tessera.search.answer import Hit


def line_of(text: str, offset: int, is_log: bool) -> int:
    """The line of the code point at ``offset`` of a whole text."""
    return text.count("\n" if is_log or "\n" in text else "\r", 0, offset) + 1


def line_within(hit: Hit, offset: int) -> int:
    """The line of the code point at ``offset`` of the document, which the hit holds.

    A chunk of several lines that has no LF is of a source whose lines end at CR.
    """
    if hit.start_line == hit.end_line:
        return hit.start_line
    return hit.start_line + hit.text.count("\n" if "\n" in hit.text else "\r", 0, offset - hit.start)
