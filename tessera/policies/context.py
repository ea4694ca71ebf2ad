"""Parent context ``headings``: what is indexed beside a chunk's text, so that it is found by its section."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from tessera.ingestion import Chunk, heading_titles

SEPARATOR: Final = " > "

_words = re.compile(r"\w+").findall


def heading_context(path: Sequence[str], own: Iterable[str], limit: int | None) -> str:
    """The enclosing headings but for the chunk's own, outermost first, joined by ``" > "``.

    Where they have more than ``limit`` tokens, the innermost that fit; ``None``: no limit.
    """
    left_out = set(own)
    titles = [title for title in path if title not in left_out]
    while titles and limit is not None and tokens_of(SEPARATOR.join(titles)) > limit:
        del titles[0]
    return SEPARATOR.join(titles)


@lru_cache(maxsize=1024)
def path_context(path: tuple[str, ...], limit: int | None) -> str:
    """The context of a chunk under this path that begins with none of its headings."""
    return heading_context(path, (), limit)


def with_heading_contexts(
    chunks: Iterable[Chunk], limit: int | None, around: Sequence[tuple[str, ...]] | None = None
) -> list[Chunk]:
    """The chunks, each with the context of its headings.

    ``around`` are the headings around each chunk but for its own, where the parser has told them apart.
    """
    if around is not None:
        return [
            chunk._replace(context=path_context(path, limit))
            for chunk, path in zip(chunks, around, strict=True)
        ]
    return [
        chunk._replace(context=heading_context(chunk.headings, heading_titles(chunk.text), limit))
        for chunk in chunks
    ]


def tokens_of(text: str) -> int:
    """Tokens of ``words@1`` in a short text."""
    return len(_words(text))
