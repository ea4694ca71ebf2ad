"""What ``tessera up`` shows: one live screen in a terminal, a line per change of state elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tessera.cli.terminal import counted, print_json, printable

SHOWN_LINES = 10
REFRESHES_PER_S = 4


class Announcer(Protocol):
    """Takes what happens; ``fields`` say it for machines."""

    def __call__(self, event: str, message: str, **fields: object) -> None:
        """One thing that happened."""
        ...


def plain(event: str, message: str, **fields: object) -> None:
    """One line for a log or a pipe."""
    print(f"{event}: {printable(message)}", flush=True)


def machine(event: str, message: str, **fields: object) -> None:
    """One line of JSON."""
    print_json({"event": event, "message": message, **fields})


class Screen:
    """The live screen: a summary, and the last events below it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events: deque[Text] = deque(maxlen=SHOWN_LINES)

    def __call__(self, event: str, message: str, **fields: object) -> None:
        """Take note of one thing that happened."""
        at = time.strftime("%H:%M:%S")
        style = "red" if event in ("trouble", "child", "problem") else ""
        self._events.append(Text(f"{at} {event}: {printable(message)}", style=style))

    @contextmanager
    def shown(self, state: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
        """Show ``state()`` for as long as the body runs; the last screen stays on the terminal."""

        def render() -> RenderableType:
            return Group(*summary(state()), Text(), *self._events)

        with Live(get_renderable=render, console=self._console, refresh_per_second=REFRESHES_PER_S):
            yield


def summary(state: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The screen's upper part: addresses, processes, sources, totals."""
    yield Text.assemble(("tessera ", "bold"), (state["http"], "bold cyan"), ("   Ctrl-C stops it", "dim"))
    yield Text(f"broker {state['broker']}  redis {state['redis']}", style="dim")
    yield Text.assemble("processes  ", *_processes(state["processes"]))
    overview = state["overview"]
    if not overview:
        return
    yield _sources(overview["sources"], state["problems"])
    totals = overview["totals"]
    lag = "unknown" if totals["lag"] is None else totals["lag"]
    dead = totals["dead_letters"]
    yield Text.assemble(
        f"{counted(totals['documents'], 'document')}  {counted(totals['chunks'], 'chunk')}  lag {lag}  ",
        (counted(dead, "dead letter"), "red" if dead else ""),
    )
    median, p95 = _seconds(state["freshness_p50"]), _seconds(state["freshness_p95"])
    yield Text(f"edit to searchable: {median} median, {p95} 95th percentile")


def _processes(states: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, state in states.items():
        yield f"{name} {state}  ", "green" if state == "running" else "red"


def _sources(sources: Mapping[str, Mapping[str, Any]], problems: Mapping[str, int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("source")
    for column in ("documents", "chunks", "uncovered", "parse failures", "not published"):
        table.add_column(column, justify="right")
    for name, source in sources.items():
        counts = (source["documents"], source["chunks"], source["uncovered"], source["parse_failures"])
        table.add_row(printable(name), *map(str, counts), str(problems.get(name, 0)))
    return table


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
