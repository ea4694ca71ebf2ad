"""What ends a line, and what a blank line is.

Lines end at LF; a CR before it belongs to the line end. Unicode separators, form feeds and NEL end nothing.
"""

from __future__ import annotations

from typing import Final

BLANKS: Final = " \t\r"
"""All that a blank line may hold."""

BOM: Final = "\ufeff"
"""Looked through by every test at the start of a source; part of the span all the same."""


def lf_lines(text: str) -> str:
    """Return ``text`` with lines that end at LF, code point for code point at the same offsets.

    Only a source with no LF at all and at least one CR has lines that end at CR; any other comes back as it
    is. Logs never take this way: their lines always count by LF.
    """
    if "\n" in text:
        return text
    return text.replace("\r", "\n")


def line_end(text: str, end: int) -> int:
    """Return the end of the line whose LF, or the end of the text, is at ``end``: a CR before LF is out."""
    if end < len(text) and end and text[end - 1] == "\r":
        return end - 1
    return end


def bom_length(text: str, start: int) -> int:
    """Return 1 where ``text``, the source from code point ``start`` on, begins with its BOM, else 0."""
    return 1 if start == 0 and text.startswith(BOM) else 0
