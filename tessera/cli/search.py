"""``tessera search``: the index is read directly, no service is needed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from tessera.cli.servers import opened_store
from tessera.cli.terminal import console, counted, print_json, printable
from tessera.errors import SettingsError
from tessera.search import Answer, Hit, Searcher
from tessera.settings import Settings, load_settings
from tessera.shards.status import read_status
from tessera.store.base import ShardStore

EVERYONE = "*"
SHOWN_LINES = 6
"""Lines of each hit that a person is shown; the line numbers lead to the rest."""

WIDEST = 400
"""Cells of a line that are shown: a log can hold one line of a megabyte, which would flood the terminal."""


def run(
    flags: Mapping[str, Any],
    config: Path | None,
    query: str,
    k: int,
    principals: Sequence[str],
    source: str | None,
    generation: str | None,
    *,
    as_json: bool,
) -> None:
    """Search and print the hits, best first. Without principals the caller is the operator."""
    seen_as = principals_of(principals)
    settings = load_settings(flags, config=config, require=("redis",))
    answer = asyncio.run(_search(settings, query, k, seen_as, source, generation))
    if as_json:
        print_json(answer.to_value())
    else:
        show(answer, console())


def principals_of(given: Sequence[str]) -> frozenset[str] | None:
    """The principals of ``--as``, everyone's among them; None, the operator, where none is given."""
    if not all(map(str.strip, given)):
        raise SettingsError("--as: a principal is not empty: leave --as out to search as the operator")
    return frozenset({EVERYONE, *given}) if given else None


async def _search(
    settings: Settings,
    query: str,
    k: int,
    principals: frozenset[str] | None,
    source: str | None,
    generation: str | None,
) -> Answer:
    async with opened_store(settings) as store:
        searcher = Searcher(store, pointer_staleness_s=settings.pointer_staleness_s)
        try:
            answer = await searcher.search(query, k, principals, source, generation)
        finally:
            await searcher.close()
        if source is not None and not answer.hits:
            await warn_of_unknown(source, store)
        return answer


async def warn_of_unknown(source: str, store: ShardStore) -> None:
    """Tell on standard error where the index has no such source."""
    if source not in (await read_status(store)).sources:
        hint = f"there is no source {source!r} in the index: `tessera status` lists those there are"
        print(f"tessera: {printable(hint)}", file=sys.stderr)


def show(answer: Answer, out: Console) -> None:
    """Print the answer for a person."""
    for rank, hit in enumerate(answer.hits, start=1):
        _show_hit(rank, hit, out)
    count = counted(len(answer.hits), "hit") if answer.hits else "no hits"
    line = f"{count} in {answer.took_ms:.1f} ms · release {answer.release} · generation {answer.generation}"
    out.print(Text(line, style="dim"))
    show_as_of(answer.as_of, answer.stale_s, out)


def show_as_of(offsets: Mapping[str, int], stale_s: float | None, out: Console) -> None:
    """Print as of which offsets an answer is, and where it is stale, that it is."""
    as_of = " ".join(f"{shard}:{offset}" for shard, offset in sorted(offsets.items()) if offset >= 0)
    out.print(Text(f"as of {as_of or 'an empty index'}", style="dim"))
    if stale_s is not None:
        out.print(Text(f"the release could not be read for {stale_s:.1f} s", style="yellow"))


def _show_hit(rank: int, hit: Hit, out: Console) -> None:
    place = f"{hit.source}/{hit.doc_id}:{hit.start_line}-{hit.end_line}"
    out.print(
        Text(f"{rank}. "), Text(printable(place), style="bold cyan"), Text(f"score {hit.score:.4f}", "green")
    )
    if hit.headings:
        out.print(_cut("   " + " › ".join(hit.headings), out, "magenta"))
    out.print(Text(f"   {printable(hit.id)}  {hit.uid}", style="dim"))
    lines = hit.text.split("\n")
    for line in lines[:SHOWN_LINES]:
        out.print(_cut(f"   │ {line}", out))
    if len(lines) > SHOWN_LINES:
        out.print(Text(f"   │ … {counted(len(lines) - SHOWN_LINES, 'more line')}", style="dim"))
    out.print()


def _cut(line: str, out: Console, style: str = "") -> Text:
    """The line, cut with an ellipsis where it is wider than the terminal or than anybody reads."""
    width = min(out.width, WIDEST)
    text = Text(printable(line[: width + 1]), style=style)
    text.truncate(width, overflow="ellipsis")
    return text
