"""What an operator does to generations: checked, recorded on the control log, and only then made."""

from __future__ import annotations

import getpass
import re
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from tessera.errors import RefusedError, TesseraError
from tessera.generations.bootstrap import contract_of, read_registry
from tessera.generations.checks import Situation
from tessera.generations.control import ControlLog, KafkaLog
from tessera.generations.progress import Progress, progress
from tessera.generations.readers import live_readers
from tessera.generations.record import Action, ControlRecord
from tessera.generations.registry import Evidence, Generation, Registry
from tessera.generations.transitions import known
from tessera.index.analyzer import DEFAULT_ANALYZER
from tessera.kafka.admin import high_watermarks
from tessera.kafka.security import security_of
from tessera.policies import ChunkPolicy, TextPolicy
from tessera.settings import Settings
from tessera.shards.deadletters import all_shards
from tessera.shards.status import read_status
from tessera.store.base import ShardId, ShardStore

MAX_SKEW_S = 60.0
"""Clocks further apart: one of them jumped, and a retention could end days early. Synchronized ones differ by
milliseconds, and a slow answer of the store by seconds."""

MOST_REPEATS = 16
"""Chunks that may hold one token: where windows of 2,000 overlap by all but one, 70 KB of text take 600 MB,
and the first document of some megabytes ends every worker."""

_DURATION = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_NUMBERED = re.compile(r"g([1-9][0-9]{0,17})")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}

LONGEST_S = 10 * 365 * 24 * 3600
"""Longest duration that is taken: what holds for longer than an installation lives was mistyped."""


def parse_duration_s(given: str) -> int:
    """Seconds of a duration such as ``90s``, ``30m``, ``24h`` or ``7d``; RefusedError for anything else.

    Nothing longer than :data:`LONGEST_S` is taken.
    """
    found = _DURATION.fullmatch(given.strip())
    if found is None:
        raise RefusedError(
            "duration", f"{given[:50]!r} is not a duration", "give one such as 90s, 30m, 24h or 7d"
        )
    seconds = int(found[1]) * _UNIT_S[found[2]]
    if seconds > LONGEST_S:
        raise RefusedError(
            "duration", f"{given[:50]!r} is too long", f"give at most {LONGEST_S // (24 * 3600)}d"
        )
    return seconds


def local_actor() -> str:
    """Who gives a command on this machine, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


class Operator:
    """One operator's hands on one installation. ``clock`` returns Unix seconds.

    Every method that moves something raises :class:`~tessera.errors.RefusedError` where the step is not
    allowed, with the reason and the next step, and :class:`~tessera.errors.UnavailableError`.
    """

    def __init__(
        self,
        store: ShardStore,
        settings: Settings,
        actor: str,
        control: ControlLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.settings = settings
        self.actor = actor
        self._control = control or ControlLog(
            KafkaLog(settings.broker, security_of(settings)), settings.namespace
        )
        self._clock = clock

    def now_ms(self) -> int:
        """The time, in Unix milliseconds."""
        return round(self._clock() * 1000)

    async def registry(self) -> Registry:
        """The registry, once everything that the control log has is in it."""
        return await self._control.reapply(self.store)

    async def step(
        self, registry: Registry, action: Action, generation: str, note: str = "", **values: Any
    ) -> Registry:
        """Make one step from ``registry`` and return where it led; ``values`` are fields of the record.

        Retention, evidence and waivers are counted by the times of steps, so none is made by a clock that
        the store's does not agree with.
        """
        await self._require_clock()
        record = ControlRecord(
            action, generation, registry.version, self.actor, self.now_ms(), uuid.uuid4().hex, note, **values
        )
        return await self._control.submit(self.store, registry, record)

    async def _require_clock(self) -> None:
        skew_s = (self.now_ms() - await self.store.now_ms()) / 1000
        if abs(skew_s) > MAX_SKEW_S:
            way = "ahead of" if skew_s > 0 else "behind"
            raise RefusedError(
                "clock",
                f"the clock of this machine is {abs(skew_s):,.0f} s {way} that of the store, and at most "
                f"{MAX_SKEW_S:g} s are allowed",
                "set the one that is wrong: times of steps decide when data may be deleted",
            )

    async def create(
        self,
        policy: ChunkPolicy,
        name: str | None = None,
        rate: float | None = None,
        analyzer: str = DEFAULT_ANALYZER,
    ) -> Generation:
        """A new generation cut by ``policy``; shards adopt it and begin its backfill by themselves.

        Without a name it gets the next of g1, g2, … that was never used. A ``rate`` of 0 is no bound.
        """
        _require_frugal(policy)
        registry = await self.registry()
        name = _next_name(registry) if name is None else name
        moved = await self.step(
            registry,
            "create",
            name,
            policy.id,
            contract=contract_of(policy, analyzer),
            limit=self.settings.max_building,
            rate=rate or None,
        )
        return moved.generations[name]

    async def set_rate(self, name: str, rate: float | None) -> Generation:
        """Bound the backfill to ``rate`` documents a second and shard; None takes the bound away."""
        return (await self.step(await self.registry(), "rate", name, rate=rate)).generations[name]

    async def pause(self, name: str) -> Generation:
        """Stop the backfill; live changes go on being written."""
        return (await self.step(await self.registry(), "pause", name)).generations[name]

    async def resume(self, name: str) -> Generation:
        """Let the backfill go on."""
        return (await self.step(await self.registry(), "resume", name)).generations[name]

    async def hold(self, name: str, why: str) -> Generation:
        """Keep the generation from being contracted or abandoned until the hold is released."""
        return (await self.step(await self.registry(), "hold", name, why)).generations[name]

    async def release_hold(self, name: str) -> Generation:
        """Take the hold off."""
        return (await self.step(await self.registry(), "release-hold", name)).generations[name]

    async def record_verified(self, name: str, baseline: str, note: str) -> Generation:
        """Record that the generation holds what ``baseline`` holds, as long as that one still serves."""
        registry = await self._still_serving(baseline)
        return (await self.step(registry, "verified", name, note)).generations[name]

    async def record_compared(self, name: str, evidence: Evidence) -> Generation:
        """Record evidence: passing, ``ready`` becomes ``gated``; failing, ``gated`` becomes ``ready``."""
        registry = await self._still_serving(evidence.baseline)
        verdict = "passed" if evidence.passed else f"failed: {', '.join(evidence.failed)}"
        note = f"against {evidence.baseline}, {verdict}"
        return (await self.step(registry, "compared", name, note, evidence=evidence)).generations[name]

    async def _still_serving(self, name: str) -> Registry:
        registry = await self.registry()
        if registry.serving.name != name:
            raise RefusedError(
                "superseded",
                f"{registry.serving.name!r} serves by now, no longer {name!r}",
                "give the command again",
            )
        return registry

    async def progress(self, name: str) -> tuple[Generation, Progress]:
        """The generation and how far the shards are with it, from the store alone."""
        registry = await read_registry(self.store)
        generation = known(registry, name)
        shards = await all_shards(self.store)
        heads = await self.store.heads(shards)
        return generation, progress(shards, heads, name, registry.serving.name, self.now_ms())

    async def situation(self, registry: Registry) -> Situation:
        """Everything that cutover and rollback are checked against, as it is now."""
        index = await read_status(self.store)
        ends: Mapping[ShardId, int] = {}
        trouble = ""
        try:
            ends = await high_watermarks(
                self.settings.broker,
                [shard.shard for shard in index.shards],
                security=security_of(self.settings),
            )
        except TesseraError as error:
            trouble = str(error)
        return Situation(registry, index, ends, trouble, await live_readers(self.store), self.now_ms())


def _next_name(registry: Registry) -> str:
    numbered = (_NUMBERED.fullmatch(name) for name in registry.generations)
    return f"g{max((int(found[1]) for found in numbered if found), default=0) + 1}"


def _require_frugal(policy: ChunkPolicy) -> None:
    """Refuse a policy whose chunks repeat each token more often than :data:`MOST_REPEATS`."""
    for table in ("documents", "run_logs", "ci_logs"):
        rule: TextPolicy = getattr(policy, table)
        if rule.size is not None and rule.size > MOST_REPEATS * (rule.size - rule.overlap):
            raise RefusedError(
                "policy",
                f"{table}: with size {rule.size} and overlap {rule.overlap} a token is in "
                f"{rule.size // (rule.size - rule.overlap):,} chunks, and at most {MOST_REPEATS} are allowed",
                "give a smaller overlap",
            )
