"""Windows over a sequence of tokens."""

from __future__ import annotations

from collections.abc import Callable


def token_windows(n_tokens: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Return half-open windows that cover ``0 .. n_tokens``, each ``overlap`` tokens into its predecessor.

    All have ``size`` tokens but the last, which ends at ``n_tokens``; none lies inside its predecessor.
    ValueError where ``n_tokens`` is negative, ``size`` less than 1, or ``overlap`` not in ``0 .. size - 1``.
    """
    if n_tokens < 0:
        raise ValueError(f"n_tokens is {n_tokens}; a count of tokens is 0 or more")
    if size < 1:
        raise ValueError(f"size is {size}; a window holds at least 1 token")
    if not 0 <= overlap < size:
        raise ValueError(
            f"overlap is {overlap}; it must be from 0 to size - 1 = {size - 1}, or windows never end"
        )
    step = size - overlap
    # A window that started in the last `overlap` tokens would lie inside its predecessor.
    starts = range(0, max(n_tokens - overlap, min(n_tokens, 1)), step)
    return [(start, min(start + size, n_tokens)) for start in starts]


def windows_by_room(
    n_tokens: int, size: int, overlap: int, room: Callable[[int], int]
) -> list[tuple[int, int]]:
    """Return half-open windows that cover ``0 .. n_tokens``; one that begins with a token has ``room`` of it.

    ``room`` is from 1 to ``size``. As its predecessor has less than ``size`` tokens, a window begins less
    than ``overlap`` back in it, in proportion; and still less where it would not reach beyond it. Where the
    room is ``size`` everywhere, they are :func:`token_windows`.
    """
    windows = []
    start = end = 0
    while end < n_tokens:
        end = min(start + room(start), n_tokens)
        windows.append((start, end))
        # The whole overlap in a window of half the size would have each token in ever so many windows.
        back = overlap * (end - start) // size
        while back and back >= room(end - back):
            back = room(end - back) - 1
        start = end - back
    return windows
