"""``tessera ground``: quotes of a file checked against the index, which is read directly."""

from __future__ import annotations

import asyncio
import sys
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from tessera.cli.search import principals_of, show_as_of
from tessera.cli.servers import opened_store
from tessera.cli.terminal import console, counted, print_json, printable
from tessera.errors import QueryError
from tessera.http.schema import GroundRequest
from tessera.search import Searcher
from tessera.search.grounding import Grounded, GroundingAnswer
from tessera.settings import Settings, load_settings

_STYLES = {"supported": "green", "stale": "yellow", "absent": "red"}
_WHY = {
    "held": "the chunk holds it",
    "changed": "its document has changed",
    "deleted": "its document was deleted",
    "generation": "its document is cut by another policy now",
    "not_in_chunk": "the chunk does not hold it",
    "unknown": "there is no such chunk",
}


def run(
    flags: Mapping[str, Any], config: Path | None, file: str, principals: Sequence[str], *, as_json: bool
) -> None:
    """Check the quotes and print what has become of them; exit 1 where one is not supported."""
    seen_as = principals_of(principals)
    request = _read(file)
    settings = load_settings(flags, config=config, require=("redis",))
    answer = asyncio.run(_ground(settings, request, seen_as))
    if as_json:
        print_json(answer.to_value())
    else:
        show(answer, console())
    if not answer.evidence or any(each.verdict != "supported" for each in answer.quotes):
        raise typer.Exit(1)


def _read(file: str) -> GroundRequest:
    try:
        encoded = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise QueryError(f"{file}: {error.strerror}: name a file that can be read, or -") from error
    try:
        return GroundRequest.model_validate_json(encoded.removeprefix(BOM_UTF8))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise QueryError(f"{file}: {place}: {first['msg']}; the form is that of POST /api/ground") from error


async def _ground(
    settings: Settings, request: GroundRequest, principals: frozenset[str] | None
) -> GroundingAnswer:
    async with opened_store(settings) as store:
        searcher = Searcher(store, pointer_staleness_s=settings.pointer_staleness_s)
        try:
            return await searcher.ground(request.to_quotes(), request.floor, principals, request.generation)
        finally:
            await searcher.close()


def show(answer: GroundingAnswer, out: Console) -> None:
    """Print what has become of the quotes for a person."""
    for each in answer.quotes:
        out.print(Text.assemble((f"{each.verdict:<10}", _STYLES[each.verdict]), printable(each.uid)))
        out.print(Text(f"          {_WHY[each.reason]}{_place(each)}", style="dim"))
    supported = sum(each.verdict == "supported" for each in answer.quotes)
    verdict = "evidence" if answer.evidence else "no evidence"
    line = f"{verdict}: {supported} of {counted(len(answer.quotes), 'quote')} supported"
    out.print(Text(line, style="bold"))
    line = f"{answer.took_ms:.1f} ms · release {answer.release} · generation {answer.generation}"
    out.print(Text(line, style="dim"))
    show_as_of(answer.as_of, answer.stale_s, out)


def _place(each: Grounded) -> str:
    if each.start_line is not None:
        return f"; now at lines {each.start_line}-{each.end_line}, characters {each.start}-{each.end}"
    if each.stands is False:
        return "; its text holds the quote no more"
    return ""
