"""What is served, and which generations there are: the release pointer and the registry, as last read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tessera.errors import CorruptionError, QueryError, UnavailableError
from tessera.generations.registry import WRITTEN, Generation, Registry
from tessera.releases import Release
from tessera.store.base import ShardStore

POINTER_STALENESS_S = 5.0
"""For how long the last release is served while the pointer cannot be read: long enough for a server to be
replaced by its standby, and shorter than a lease, so that the generation is still there."""

POINTER_TIMEOUT_S = 1.0
"""A pointer that hangs is as good as one that cannot be read; without it each query would hang as well."""

_NOTHING_SERVED = (
    "the store names no release to serve: start a worker (tessera worker, or tessera up), which sets the "
    "first one"
)


@dataclass(frozen=True, slots=True)
class Served:
    """The release that a query is pinned to; ``stale_s`` is None, or the age of the last good reading."""

    release: Release
    stale_s: float | None = None


class Control:
    """Reads pointer and registry. ``clock`` returns seconds and never goes back."""

    def __init__(
        self,
        store: ShardStore,
        *,
        staleness_s: float = POINTER_STALENESS_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._staleness_s = staleness_s
        self._clock = clock
        self._encoded_release = b""
        self._release: Release | None = None
        self._read_at = clock()
        self._encoded_registry = b""
        self._registry: Registry | None = None

    @property
    def release(self) -> Release | None:
        """The release last read."""
        return self._release

    @property
    def last_registry(self) -> Registry | None:
        """The registry last read."""
        return self._registry

    async def served(self) -> Served:
        """The release that the pointer names now; for a bounded time the last one where it cannot be read.

        Raises :class:`~tessera.errors.UnavailableError` once that time has passed, or where none is set.
        """
        began = self._clock()
        try:
            async with asyncio.timeout(POINTER_TIMEOUT_S):
                encoded = await self._store.release()
        except (UnavailableError, TimeoutError) as error:
            return self._last_served(error)
        if encoded is None:
            raise UnavailableError(_NOTHING_SERVED)
        release = self._release
        if release is None or encoded != self._encoded_release:
            release = Release.from_json(encoded)
        if began >= self._read_at:
            # Of two readings under way at once, the one that began later counts.
            self._encoded_release, self._release, self._read_at = encoded, release, began
        return Served(release)

    def _last_served(self, error: Exception) -> Served:
        age_s = self._clock() - self._read_at
        if self._release is None or age_s > self._staleness_s:
            why = str(error) or f"no answer within {POINTER_TIMEOUT_S:g} s"
            known = f"the last reading is {age_s:.1f} s old" if self._release else "it was never read"
            raise UnavailableError(
                f"the release pointer cannot be read and {known} (at most {self._staleness_s:g} s): {why}"
            ) from error
        return Served(self._release, age_s)

    async def registry(self) -> Registry:
        """The registry as it is now; UnavailableError where there is none or it cannot be read."""
        _, encoded = await self._store.control()
        if encoded is None:
            raise UnavailableError(_NOTHING_SERVED)
        if self._registry is None or encoded != self._encoded_registry:
            self._encoded_registry, self._registry = encoded, Registry.from_json(encoded)
        return self._registry


def served_generation(registry: Registry, release: Release) -> Generation:
    """The generation of a release that the pointer named."""
    try:
        return registry.generations[release.generation]
    except KeyError:
        raise CorruptionError(
            f"release {release.release} serves generation {release.generation}, which the registry does not "
            "know: start a worker, which reapplies the control log"
        ) from None


def written_generation(registry: Registry, name: str) -> Generation:
    """The generation of this name; QueryError where it is not written and would answer from the past."""
    generation = registry.generations.get(name)
    written = ", ".join(registry.written) or "none"
    if generation is None:
        raise QueryError(f"there is no generation {name[:100]!r}; there are: {written}", "generation")
    if generation.state not in WRITTEN:
        raise QueryError(
            f"generation {name!r} is {generation.state} and answers no more; there are: {written}",
            "generation",
        )
    return generation
