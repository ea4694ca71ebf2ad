"""``tessera publish``: change events as they stand, one JSON object per line."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tessera.cli.servers import opened_publisher, opened_store
from tessera.cli.terminal import counted, print_json, progress
from tessera.errors import EventError, InputError, SourceError
from tessera.events.acceptance import accepted_event
from tessera.events.encoding import Event
from tessera.settings import Settings, load_settings

BATCH_EVENTS = 256
READ_BYTES = 1024 * 1024
"""Bounds of what is held at once: a batch is acknowledged before the next one is read."""


class Line(NamedTuple):
    """One sound change event of the input; ``number`` counts from 1."""

    number: int
    event: Event


def run(flags: Mapping[str, Any], config: Path | None, file: str, *, as_json: bool) -> None:
    """Publish every event of ``file`` (``-`` is standard input); print how many, or where each one went.

    A file is checked as a whole before anything is sent. Standard input is sent as it arrives; what stands
    before a line at fault has been published then, and the error says so.
    """
    settings = load_settings(flags, config=config)
    try:
        total = None if file == "-" else sum(map(len, _batches(settings, file)))
        published = asyncio.run(_publish(settings, file, total, as_json=as_json))
    except OSError as error:
        raise SourceError(f"{file}: cannot be read ({error.strerror}): check the path") from None
    if not as_json:
        print(f"{counted(published, 'change')} published")


async def _publish(settings: Settings, file: str, total: int | None, *, as_json: bool) -> int:
    published = 0
    batches = _batches(settings, file)
    async with opened_store(settings) as store, opened_publisher(settings, store) as publisher:
        with progress("publishing", total) as bar:
            while batch := await asyncio.to_thread(next, batches, None):
                positions = await publisher.publish_many(line.event for line in batch)
                published += len(batch)
                bar.advance(bar.task_ids[0], len(batch))
                if as_json:
                    for line, position in zip(batch, positions, strict=True):
                        print_json({"line": line.number, **position._asdict()})
    return published


def _batches(settings: Settings, file: str) -> Iterator[list[Line]]:
    """Sound events in batches, each as soon as its lines are there; blank lines are passed over."""
    number = 0
    batch: list[Line] = []
    with open(0 if file == "-" else file, "rb") as stream:
        for lines in _arriving_lines(stream):
            for line in lines:
                number += 1
                if not line.strip():
                    continue
                try:
                    event = accepted_event(line, settings.catalog, settings.max_document_bytes)
                    batch.append(Line(number, event))
                except EventError as error:
                    if batch and file == "-":
                        yield batch
                    raise InputError(_fault(error, file, number)) from None
                if len(batch) >= BATCH_EVENTS:
                    yield batch
                    batch = []
            if batch:
                yield batch
                batch = []


def _arriving_lines(stream: io.BufferedReader) -> Iterator[list[bytes]]:
    """Whole lines as they arrive, not only when a buffer is full: somebody may be typing."""
    rest: list[bytes] = []
    while piece := stream.read1(READ_BYTES):
        *lines, last = piece.split(b"\n")
        if lines:
            lines[0] = b"".join((*rest, lines[0]))
            rest = []
            yield lines
        rest.append(last)
    if any(rest):
        yield [b"".join(rest)]


def _fault(error: EventError, file: str, number: int) -> str:
    field = f", field {error.field!r}" if error.field else ""
    if file == "-":
        name, sent = "standard input", "what stands before it was published"
    else:
        name, sent = file, "nothing was published"
    if error.reason == "invalid_json":
        return f"{name}, line {number} is not JSON: write one change event as a JSON object per line; {sent}"
    return f"{name}, line {number}{field}: {error} ({error.reason}); {sent}"
