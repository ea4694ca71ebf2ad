"""What commands print: JSON for machines, plain lines for people, progress on standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

UNBOUNDED_COLUMNS = 1000
"""A file or a pipe has no edge at which a table would have to be cut."""

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text on one line, with control characters made visible.

    A document must not drive the reader's terminal, and a file's name must not look like a line of its own.
    """
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def counted(amount: int, noun: str) -> str:
    """How many of something: ``1 hit``, ``2 hits``."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def print_json(value: object) -> None:
    """Print one value as one line of JSON and flush it."""
    sys.stdout.write(orjson.dumps(value, default=_plain).decode() + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def console() -> Console:
    """A console on standard output that prints text as it is: no markup, no guessed highlights."""
    out = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not out.is_terminal:
        out.width = UNBOUNDED_COLUMNS
    return out


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Progress]:
    """A progress display on standard error with one task, number 0; nothing where that is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    errors = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=errors, transient=True, disable=not errors.is_terminal
    ) as bar:
        bar.add_task(what, total=total)
        yield bar
