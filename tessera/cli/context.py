"""``tessera context``: the index is read directly, no service is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from tessera.cli.search import principals_of, show_as_of, warn_of_unknown
from tessera.cli.servers import opened_store
from tessera.cli.terminal import console, counted, print_json, printable
from tessera.search import Searcher
from tessera.search.context import Asked, ContextAnswer, ContextPiece
from tessera.settings import Settings, load_settings

SHOWN_LEFT_OUT = 3
"""Hits left out that a person is shown; --json has all."""


def run(
    flags: Mapping[str, Any],
    config: Path | None,
    asked: tuple[str, int, int | None, float],
    principals: Sequence[str],
    source: str | None,
    generation: str | None,
    *,
    as_json: bool,
) -> None:
    """Assemble and print the context; ``asked`` as in :class:`~tessera.search.context.Asked`."""
    seen_as = principals_of(principals)
    settings = load_settings(flags, config=config, require=("redis",))
    answer = asyncio.run(_assemble(settings, Asked(*asked), seen_as, source, generation))
    if as_json:
        print_json(answer.to_value())
    else:
        show(answer, console())


async def _assemble(
    settings: Settings,
    asked: Asked,
    principals: frozenset[str] | None,
    source: str | None,
    generation: str | None,
) -> ContextAnswer:
    async with opened_store(settings) as store:
        searcher = Searcher(store, pointer_staleness_s=settings.pointer_staleness_s)
        try:
            answer = await searcher.context(asked, principals, source, generation)
        finally:
            await searcher.close()
        if source is not None and not answer.assembled.hits:
            await warn_of_unknown(source, store)
        return answer


def show(answer: ContextAnswer, out: Console) -> None:
    """Print the context for a person, every piece in full: it is what a reader is given."""
    made = answer.assembled
    for piece in made.pieces:
        _show_piece(piece, out)
    if not made.evidence:
        out.print("no evidence: no hit, or none that reaches the floor")
    elif not made.pieces:
        out.print(f"nothing fits into {counted(made.budget, 'token')}: give a larger --budget")
    if made.left_out:
        out.print(Text(f"{counted(len(made.left_out), 'hit')} left out, the best of them:", style="yellow"))
    for uid in made.left_out[:SHOWN_LEFT_OUT]:
        out.print(Text(f"  {uid}", style="dim"))
    used = f"{made.used:,} of {counted(made.budget, 'token')} ({made.used / made.budget:.0%})"
    line = f"{used} from {counted(made.hits, 'hit')} in {answer.took_ms:.1f} ms"
    line += f" · release {answer.release} · generation {answer.generation} · assembly {answer.assembly}"
    out.print(Text(line, style="dim"))
    show_as_of(answer.as_of, answer.stale_s, out)


def _show_piece(piece: ContextPiece, out: Console) -> None:
    place = f"{piece.source}/{piece.doc_id}:{piece.start_line}-{piece.end_line}"
    out.print(Text(printable(place), style="bold cyan"), Text(f"score {piece.score:.4f}", "green"))
    if piece.headings:
        out.print(Text(printable("  " + " › ".join(piece.headings)), style="magenta"))
    for line in piece.text.split("\n"):
        out.print(Text(f"  │ {printable(line)}"))
    out.print()
