"""What a searcher tells the others: which generations it has loaded, and which its queries may be reading.

A cutover waits until every searcher has loaded what comes; a contraction deletes nothing that a searcher
still reads. So a generation that is asked for by name is announced first, and looked up in the registry after
that: either the contraction sees the lease, or the query sees the contraction.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

import orjson

from tessera.errors import UnavailableError
from tessera.store.base import ShardStore

ANNOUNCE_S = 2.0
"""Between two announcements. A lease outlives four lost ones; longer, and a cutover waits for nothing."""

LEASE_S = 10.0
"""Life of a lease. Without it, a searcher that died would hold back contraction for ever."""

LINGER_S = 10.0
"""For how long a generation stays announced after a query named it: without it, each query would announce."""


WITHDRAW_S = 0.1
"""Life of the empty lease that takes the place of one withdrawn, and the time given to a store to take it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What one searcher serves.

    ``generations`` are loaded and current, so serving one needs no load; ``in_use`` are those that queries
    and comparisons may be reading. Both are sorted. ``follows``: it will serve what the release names next;
    one that was started for a single question will not, and a cutover need not wait for it.
    """

    release: str
    generations: tuple[str, ...]
    in_use: tuple[str, ...]
    follows: bool

    def to_json(self) -> bytes:
        """The announcement."""
        return orjson.dumps(asdict(self))


class Lessee:
    """One searcher's lease.

    ``compose`` makes it from the generations that queries hold, in whatever state, and those that recent ones
    named; ``clock`` returns seconds and never goes back.
    """

    def __init__(
        self,
        store: ShardStore,
        reader: str,
        compose: Callable[[Collection[str], Collection[str]], Lease],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._reader = reader
        self._compose = compose
        self._clock = clock
        self._held: Counter[str] = Counter()
        self._named: dict[str, float] = {}
        self._told: Lease | None = None
        self._told_at = clock()
        self._lock = asyncio.Lock()

    @property
    def lapsed(self) -> bool:
        """Whether a lease was given and has run out: what it named may have been deleted since."""
        return self._told is not None and self._clock() - self._told_at > LEASE_S

    @property
    def due(self) -> bool:
        """Whether to announce: never done yet, :data:`ANNOUNCE_S` ago, or not true any more."""
        return self._told is None or self._clock() - self._told_at >= ANNOUNCE_S or self._now() != self._told

    @contextmanager
    def using(self, *generations: str) -> Iterator[None]:
        """Hold generations for as long as a query or a comparison reads them."""
        self._held.update(generations)
        try:
            yield
        finally:
            self._held -= Counter(generations)

    async def ensure(self, generation: str) -> bool:
        """See that the lease names a generation as in use; whether it did not before.

        Where it did not, only a registry read after this call counts. Raises
        :class:`~tessera.errors.UnavailableError` where that cannot be done.
        """
        self._named[generation] = self._clock() + LINGER_S
        told = self._told is not None and generation in self._told.in_use
        # An announcement under way may have been composed without it.
        if told and not self._lock.locked() and self._clock() - self._told_at < LEASE_S / 2:
            return False
        try:
            await self.announce()
        except UnavailableError:
            if not told or self.lapsed:
                raise
        return not told

    async def announce(self) -> None:
        """Tell the store what is held now."""
        async with self._lock:
            began, lease = self._clock(), self._now()
            await self._store.announce(self._reader, lease.to_json(), LEASE_S)
            self._told, self._told_at = lease, began

    async def withdraw(self) -> None:
        """End the lease now; where that cannot be done it runs out by itself."""
        if self._told is not None:
            nothing = Lease(self._told.release, (), (), follows=False)
            with suppress(UnavailableError, TimeoutError):
                async with asyncio.timeout(WITHDRAW_S):
                    await self._store.announce(self._reader, nothing.to_json(), WITHDRAW_S)

    def _now(self) -> Lease:
        now = self._clock()
        self._named = {name: until for name, until in self._named.items() if until > now}
        return self._compose(frozenset(self._held), frozenset(self._named))
