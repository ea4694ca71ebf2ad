"""``tessera status``: how the index stands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.servers import opened_store
from tessera.cli.terminal import console, counted, print_json, printable
from tessera.errors import UnavailableError
from tessera.overview import read_overview
from tessera.settings import Settings, load_settings

DAY_S = 24 * 3600


def run(flags: Mapping[str, Any], config: Path | None, *, as_json: bool) -> None:
    """Print the status. Raises :class:`UnavailableError` after it where the broker did not answer."""
    overview = asyncio.run(_read(load_settings(flags, config=config)))
    if as_json:
        print_json(overview)
    else:
        show(overview, console())
    if trouble := overview["broker"]["trouble"]:
        raise UnavailableError(f"{trouble}; what is shown is from Redis alone")


async def _read(settings: Settings) -> dict[str, Any]:
    async with opened_store(settings) as store:
        return await read_overview(settings, store)


def show(overview: Mapping[str, Any], out: Console) -> None:
    """Print the status for a person."""
    if overview["release"] is None:
        out.print("nothing is set up on this server yet: start `tessera up` or `tessera worker`")
        return
    served = f"release {overview['release']}, generation {overview['generation']}"
    out.print(f"{served}, contexts by {overview['assembly']}")
    out.print(f"broker {overview['broker']['address']}, redis {overview['redis']['address']}")
    shards = [{**shard, "claimed": "yes" if shard["claimed"] else "never"} for shard in overview["shards"]]
    columns = ("applied", "end", "lag", "epoch", "fence", "claimed", "records", "duplicates", "stale")
    out.print(_table("shard", columns, {shard["shard"]: shard for shard in shards}))
    sources = overview["sources"]
    out.print(_table("source", ("documents", "chunks", "uncovered", "parse_failures", "tombstones"), sources))
    generations = {
        each["generation"]: each
        for each in overview["generations"]
        if each["state"] not in ("contracted", "abandoned")
    }
    out.print(_table("generation", ("state", "policy", "analyzer", "chunks", "uncovered"), generations))
    totals = overview["totals"]
    out.print(
        f"{counted(totals['documents'], 'document')}, {counted(totals['chunks'], 'chunk')}, "
        f"lag {_cell(totals['lag'])}, {counted(totals['duplicates'], 'duplicate')} dropped, "
        f"{counted(totals['stale'], 'stale change')}"
    )
    dead = totals["dead_letters"]
    advice = ": see `tessera deadletter list`" if dead else ""
    out.print(Text(f"{counted(dead, 'dead letter')}{advice}", style="red" if dead else ""))
    out.print(f"deletes are remembered for {overview['tombstone_horizon_s'] / DAY_S:g} days")


def _table(name: str, columns: tuple[str, ...], rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(name)
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for key, row in rows.items():
        table.add_row(printable(key), *(_cell(row[column]) for column in columns))
    return table


def _cell(value: object) -> str:
    return "unknown" if value is None else printable(str(value))
