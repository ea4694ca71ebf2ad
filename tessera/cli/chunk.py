"""``tessera chunk``: how a file is cut."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from rich.text import Text

from tessera.cli.terminal import console, counted, print_json, printable
from tessera.errors import PolicyError, SettingsError, SourceError
from tessera.events.change import MediaType, SourceKind
from tessera.events.content import decode_content
from tessera.ingestion import Chunk, UncoveredRange, lf_lines, uncovered_ranges
from tessera.policies import TOKENIZERS, ChunkPolicy, load_policy
from tessera.settings import load_settings
from tessera.sources.kinds import media_type as media_type_of

SHOWN_LINES = 3
"""Lines of each chunk that a person is shown: enough to recognize it, and the file is at hand."""


def run(file: Path, policy: str, media_type: str | None, *, as_json: bool) -> None:
    """Cut ``file`` and print its chunks and uncovered ranges."""
    chosen = _media_type(file, media_type)
    rule = _policy(policy)
    try:
        text, undecodable = decode_content(file.read_bytes())
    except OSError as error:
        raise SourceError(f"{file}: cannot be read ({error.strerror}): check the path") from None
    chunks = rule.chunk(text, file.stem, chosen)
    lines = lf_lines(text) if chosen in ("text/markdown", "text/plain") else text
    uncovered = uncovered_ranges(lines, chunks)
    if as_json:
        report = {"file": str(file), "media_type": chosen, "policy": rule.id, "undecodable": undecodable}
        print_json(report | {"chunks": chunks, "uncovered": uncovered})
        return
    _show(file, chosen, rule, chunks, uncovered)
    for found in undecodable:
        console().print(f"bytes {found.start}-{found.end} are not UTF-8", style="yellow")


def _policy(given: str) -> ChunkPolicy:
    try:
        policy = load_policy(given)
        if policy.tokenizer_files:
            TOKENIZERS.folder = load_settings(require=(), join_running=False).tokenizers_folder
        return policy.require_tokenizers()
    except PolicyError as error:
        raise PolicyError(f"--policy: {error}: give a built-in name or a TOML file that is one") from None


def _media_type(file: Path, given: str | None) -> str:
    if given is None:
        kinds: tuple[SourceKind, ...] = ("documents", "devex")
        return next((found for kind in kinds if (found := media_type_of(kind, file.name))), "text/plain")
    if given not in get_args(MediaType):
        raise SettingsError(f"--media-type: {given!r} is not one of {', '.join(get_args(MediaType))}")
    return given


def _show(
    file: Path, media_type: str, policy: ChunkPolicy, chunks: list[Chunk], uncovered: list[UncoveredRange]
) -> None:
    out = console()
    for chunk in chunks:
        tokens = f"tokens {chunk.start_token}-{chunk.end_token}"
        where = f"lines {chunk.start_line}-{chunk.end_line}  code points {chunk.start}-{chunk.end}  {tokens}"
        out.print(Text(printable(chunk.id), style="bold cyan"), Text(where, style="dim"))
        if chunk.headings:
            out.print(Text("  " + " › ".join(map(printable, chunk.headings)), style="magenta"))
        lines = chunk.text.split("\n")
        for line in lines[:SHOWN_LINES]:
            out.print(Text(f"  {printable(line)}"))
        if len(lines) > SHOWN_LINES:
            out.print(Text(f"  … {len(lines) - SHOWN_LINES} more lines", style="dim"))
    for gap in uncovered:
        out.print(
            Text(
                f"uncovered: lines {gap.start_line}-{gap.end_line}, code points {gap.start}-{gap.end}", "red"
            )
        )
    counts = f"{counted(len(chunks), 'chunk')}, {counted(len(uncovered), 'uncovered range')}"
    out.print(Text(f"{printable(str(file))} ({media_type}) under {policy.id}: {counts}"))
