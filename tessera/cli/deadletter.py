"""``tessera deadletter``: records that could not be applied."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.text import Text

from tessera.cli.servers import opened_publisher, opened_store
from tessera.cli.terminal import console, counted, print_json, printable, progress
from tessera.errors import CorruptionError, InputError
from tessera.events.parts import Headers, split_record
from tessera.kafka.publisher import Publisher
from tessera.settings import Settings, load_settings
from tessera.shards.deadletters import (
    DeadLetter,
    discard_deadletter,
    find_deadletter,
    list_deadletters,
    replay_deadletter,
)

Flags = Mapping[str, Any]


class Replay(NamedTuple):
    """The dead letters that were replayed, and those that could not be, with why."""

    replayed: list[str]
    refused: dict[str, str]


def show_all(flags: Flags, config: Path | None, *, as_json: bool) -> None:
    """Print every dead letter."""
    letters = asyncio.run(_listed(load_settings(flags, config=config, require=("redis",))))
    if as_json:
        print_json([_described(letter) for letter in letters])
        return
    for letter in letters:
        _print(letter)
    console().print(counted(len(letters), "dead letter") if letters else "no dead letters")


def show_one(flags: Flags, config: Path | None, deadletter_id: str, *, as_json: bool) -> None:
    """Print one dead letter and its bytes."""
    settings = load_settings(flags, config=config, require=("redis",))
    letter, value = asyncio.run(_found(settings, deadletter_id))
    if as_json:
        encoded = None if value is None else b64encode(value).decode()
        print_json(_described(letter) | {"value_base64": encoded})
        return
    _print(letter)
    shown = "(a null value)" if value is None else value.decode(errors="backslashreplace")
    console().print(Text("\n".join(map(printable, shown.split("\n")))))


def replay(flags: Flags, config: Path | None, deadletter_ids: Sequence[str], *, as_json: bool) -> None:
    """Publish these dead letters again, or all, and print which.

    One that cannot be replayed does not hold back the others: each is told, and an InputError at the end
    says how many there are.
    """
    done = asyncio.run(_replayed(load_settings(flags, config=config), deadletter_ids))
    if as_json:
        print_json({"replayed": done.replayed, "refused": done.refused})
    else:
        for deadletter_id, why in done.refused.items():
            print(f"tessera: {printable(deadletter_id)}: {printable(why)}", file=sys.stderr)
        console().print(f"{counted(len(done.replayed), 'dead letter')} replayed")
    if done.refused:
        raise InputError(f"{counted(len(done.refused), 'dead letter')} could not be replayed")


def discard(flags: Flags, config: Path | None, deadletter_id: str, *, as_json: bool) -> None:
    """Remove one dead letter for good."""
    asyncio.run(_discarded(load_settings(flags, config=config, require=("redis",)), deadletter_id))
    if as_json:
        print_json({"discarded": deadletter_id})
    else:
        console().print(f"{deadletter_id} discarded")


async def _listed(settings: Settings) -> list[DeadLetter]:
    async with opened_store(settings) as store:
        return await list_deadletters(store)


async def _found(settings: Settings, deadletter_id: str) -> tuple[DeadLetter, bytes | None]:
    async with opened_store(settings) as store:
        return await find_deadletter(store, deadletter_id)


async def _discarded(settings: Settings, deadletter_id: str) -> None:
    async with opened_store(settings) as store:
        await discard_deadletter(store, deadletter_id)


async def _replayed(settings: Settings, asked: Sequence[str]) -> Replay:
    done = Replay([], {})
    async with opened_store(settings) as store, opened_publisher(settings, store) as publisher:
        republish = partial(_republish, publisher)
        ids = list(asked) or [letter.id for letter in await list_deadletters(store)]
        with progress("replaying", total=len(ids)) as bar:
            for each in ids:
                try:
                    await replay_deadletter(store, republish, each)
                except (InputError, CorruptionError) as error:
                    done.refused[each] = str(error)
                else:
                    done.replayed.append(each)
                bar.advance(bar.task_ids[0])
    return done


async def _republish(
    publisher: Publisher, topic: str, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    """Send a record again; one that came in several records leaves in several.

    Raises InputError for a record without a key, which no shard can apply however often it is sent.
    """
    if key is None:
        raise InputError("its record has no key, so it names no document: discard it")
    pieces = [((), None)] if value is None else split_record(value)
    for own, payload in pieces:
        await publisher.publish_record(topic, key, payload, (*headers, *own))


def _described(letter: DeadLetter) -> dict[str, Any]:
    fields = asdict(letter)
    key = letter.key
    fields["key"] = None if key is None else key.decode(errors="backslashreplace")
    fields["headers"] = [[name, value.decode(errors="backslashreplace")] for name, value in letter.headers]
    return fields


def printed_time(timestamp_ms: int) -> str:
    """A record's timestamp as an RFC 3339 time, or as it stands where no calendar has it."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms after 1970"


def _print(letter: DeadLetter) -> None:
    out = console()
    arrived = printed_time(letter.timestamp_ms)
    key = "(no key)" if letter.key is None else printable(letter.key.decode(errors="backslashreplace"))
    out.print(Text(letter.id, style="bold cyan"), Text(letter.reason, style="red"), Text(key))
    out.print(Text(f"  {printable(letter.message)}"))
    out.print(Text(f"  {letter.size_bytes:,} bytes, produced {arrived}", style="dim"))
