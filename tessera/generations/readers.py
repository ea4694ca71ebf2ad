"""Searchers as they announce themselves: what each serves, has loaded, and may be reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from tessera.errors import CorruptionError
from tessera.store.base import ShardStore


@dataclass(frozen=True, slots=True)
class Reader:
    """One live searcher. Its queries may be pinned to the generations ``in_use``.

    One that ``follows`` goes on with whatever the release names next.
    """

    release: str
    loaded: frozenset[str]
    in_use: frozenset[str]
    follows: bool


async def live_readers(store: ShardStore) -> dict[str, Reader]:
    """All searchers whose lease has not run out, by name."""
    return {name: _reader(name, lease) for name, lease in (await store.readers()).items()}


def following(readers: Mapping[str, Reader]) -> dict[str, Reader]:
    """Those of the searchers that will serve what the release names next."""
    return {name: reader for name, reader in readers.items() if reader.follows}


def lacking(readers: Mapping[str, Reader], generation: str) -> list[str]:
    """Names of the searchers that have not loaded the generation."""
    return sorted(name for name, reader in readers.items() if generation not in reader.loaded)


def using(readers: Mapping[str, Reader], generation: str) -> list[str]:
    """Names of the searchers whose queries may be reading the generation."""
    return sorted(name for name, reader in readers.items() if generation in reader.in_use)


def _reader(name: str, lease: bytes) -> Reader:
    try:
        value = orjson.loads(lease)
        return Reader(
            str(value["release"]),
            frozenset(value["generations"]),
            frozenset(value["in_use"]),
            bool(value["follows"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"the lease of searcher {name!r} cannot be read: {error!r}; it is of another build, stop it"
        ) from error
