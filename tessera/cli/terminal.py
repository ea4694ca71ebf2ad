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

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with control characters made visible: a document must not drive the reader's terminal."""
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


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
