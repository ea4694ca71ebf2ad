r"""Tokenizer ``words@1``: tokens are the maximal runs of ``\w`` in the text as it stands."""

from __future__ import annotations

import re
import sys
from functools import cache

import numpy as np
import numpy.typing as npt

BLOCK_SIZE = 1 << 20
"""Code points looked at in one step: without it a text of 32 MiB would take ten times that for a moment."""


def word_starts(text: str) -> npt.NDArray[np.int64]:
    """Return the offsets, in code points and rising, at which the tokens of ``text`` start."""
    table = _word_table()
    found = []
    for block_start in range(0, len(text), BLOCK_SIZE):
        # One code point more at the front tells whether a token goes on across the blocks' border.
        lead = min(block_start, 1)
        block = text[block_start - lead : block_start + BLOCK_SIZE]
        code_points = np.frombuffer(block.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        is_word = table.take(code_points)
        is_start = is_word.copy()
        is_start[1:] &= ~is_word[:-1]
        found.append(np.flatnonzero(is_start[lead:]) + block_start)
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def word_count(text: str) -> int:
    """How many tokens ``text`` has; for short texts, where looking at each character costs less."""
    return len(_words(text))


_words = re.compile(r"\w+").findall


@cache
def _word_table() -> npt.NDArray[np.bool_]:
    r"""Return for every code point whether ``\w`` matches it, as ``re`` of this interpreter has it."""
    code_points = np.arange(sys.maxunicode + 1, dtype="<u4")
    table = np.zeros(len(code_points), dtype=np.bool_)
    for match in re.finditer(r"\w+", code_points.tobytes().decode("utf-32-le", "surrogatepass")):
        table[match.start() : match.end()] = True
    return table
