"""The order of the control log decides, whatever operators, brokers and Redis do meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from installation import NAMESPACE, Installation, MemoryLog, policy

from tessera.errors import CorruptionError, RefusedError, SettingsError, UnavailableError
from tessera.generations.bootstrap import first_registry, read_registry
from tessera.generations.control import ControlLog, fold
from tessera.generations.record import ControlRecord
from tessera.generations.registry import Registry
from tessera.store.memory import MemoryStore

IDS = count()


def hold(expected: int, why: str = "x", actor: str = "ann") -> ControlRecord:
    return ControlRecord("hold", "g1", expected, actor, 0, f"id{next(IDS)}", why)


async def stored(registry: Registry) -> MemoryStore:
    """A store that stands at this registry, as one does that lost what came after it."""
    store = MemoryStore()
    version = 0
    while version < registry.version - 1:
        assert await store.put_control(version, b"older", b"older")
        version += 1
    assert await store.put_control(version, registry.to_json(), registry.release.to_json())
    return store


def test_a_step_moves_registry_and_release_pointer_and_stands_in_the_log() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.operator().create(policy(), "g2", rate=5)
        [record] = here.log.records()
        registry = await here.registry()
        assert (record.action, record.expected, record.actor) == ("create", 1, "ann@desk")
        assert (registry.version, registry.record, registry.written) == (2, record.id, ("g1", "g2"))
        assert await here.store.release() == registry.release.to_json()
        [step] = registry.generations["g2"].steps
        assert (step.at_ms, step.actor) == (round(here.now * 1000), "ann@desk")

    asyncio.run(scenario())


def test_what_is_not_allowed_reaches_neither_log_nor_registry() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        with pytest.raises(RefusedError):
            await here.operator().pause("g1")
        assert here.log.values == []
        assert (await here.registry()).version == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("operators", [2, 5])
def test_of_operators_at_the_same_moment_exactly_one_wins_and_the_others_are_told_who(operators: int) -> None:
    async def scenario() -> None:
        here = await Installation(log=MemoryLog(asyncio.Barrier(operators))).open()
        tries = (here.operator(f"op{n}").hold("g1", f"reason {n}") for n in range(operators))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, RefusedError)]
        assert (len(won), len(lost)) == (1, operators - 1)
        winner = here.log.records()[0]
        registry = await here.registry()
        assert (registry.version, registry.generations["g1"].hold) == (2, winner.note)
        assert all(error.reason == "superseded" and winner.actor in str(error) for error in lost)
        assert len(here.log.values) == operators

    asyncio.run(scenario())


def test_a_redis_that_lost_its_last_seconds_is_healed_by_the_next_command_or_start() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        operator = here.operator()
        lost = [await here.registry()]
        await operator.create(policy(), "g2")
        lost.append(await here.registry())
        await operator.pause("g2")
        await operator.hold("g1", "audit")
        whole = await here.registry()
        for registry in lost:
            here.store = await stored(registry)
            assert await ControlLog(here.log, NAMESPACE).reapply(here.store) == whole
            assert await here.registry() == whole
            assert await here.store.release() == whole.release.to_json()
        here.store = await stored(lost[0])
        assert (await here.operator().release_hold("g1")).hold == ""
        assert (await here.registry()).version == whole.version + 1

    asyncio.run(scenario())


def test_an_operator_that_died_after_its_record_has_made_its_step() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        record = hold(1, "made by nobody else")
        await here.log.append(b"g1", record.to_json(NAMESPACE))
        assert (await here.operator().registry()).generations["g1"].hold == "made by nobody else"

    asyncio.run(scenario())


def test_an_empty_log_resets_nothing() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.operator().create(policy(), "g2")
        before = await here.registry()
        here.log = MemoryLog()
        assert await here.operator().registry() == before
        await here.operator().pause("g2")
        assert (await here.registry()).version == before.version + 1
        assert [record.expected for record in here.log.records()] == [before.version]

    asyncio.run(scenario())


def test_nothing_set_up_is_told_and_not_made_up() -> None:
    with pytest.raises(SettingsError, match="tessera up"):
        asyncio.run(ControlLog(MemoryLog(), NAMESPACE).reapply(MemoryStore()))


def test_other_installations_on_the_same_broker_and_garbage_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        here = await Installation().open()
        here.log.values += [hold(1).to_json("another"), b"\xff", b"{}", None, b'{"format": 1}']
        with caplog.at_level(logging.WARNING):
            assert (await here.operator().registry()).version == 1
        assert len(caplog.records) == 4
        await here.operator().hold("g1", "ours")

    asyncio.run(scenario())


def test_a_record_of_a_later_build_stops_whoever_cannot_read_it() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        here.log.values.append(hold(1).to_json(NAMESPACE).replace(b'"format":1', b'"format":2'))
        with pytest.raises(CorruptionError, match="use the build that wrote it"):
            await here.operator().registry()

    asyncio.run(scenario())


def test_a_record_that_the_broker_stored_twice_is_one_step() -> None:
    first = first_registry()
    once, other = hold(1, "once"), hold(2, "other")
    folded = fold(first, [once, once, other, once])
    assert [registry.version for registry in folded.registries] == [2, 3]
    assert fold(folded.registries[0], [once, other, once, once]).registry == folded.registry


class DeafLog(MemoryLog):
    """Takes a value and never shows it."""

    async def read(self) -> Sequence[bytes | None]:
        return []


def test_a_record_that_cannot_be_read_back_is_not_taken_for_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.generations.control.READ_PAUSE_S", 0.0)

    async def scenario() -> None:
        here = await Installation(log=DeafLog()).open()
        with pytest.raises(UnavailableError, match="cannot be read back"):
            await here.operator().hold("g1", "x")
        assert (await here.registry()).version == 1

    asyncio.run(scenario())


class ForgetfulStore(MemoryStore):
    """Loses every write of the registry, as a failover would, while ``forgets``."""

    forgets = False

    async def put_control(self, expected: int, registry: bytes, release: bytes) -> bool:
        return True if self.forgets else await super().put_control(expected, registry, release)


def test_a_registry_lost_while_it_is_written_is_not_reported_as_done() -> None:
    async def scenario() -> None:
        store = ForgetfulStore()
        here = await Installation(store=store).open()
        store.forgets = True
        with pytest.raises(UnavailableError, match="lost data"):
            await here.operator().hold("g1", "x")
        store.forgets = False
        assert (await here.operator().registry()).generations["g1"].hold == "x"

    asyncio.run(scenario())


def test_a_registry_kept_under_another_version_than_it_says_is_corrupt() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        registry = replace(first_registry(), version=3)
        assert await store.put_control(0, registry.to_json(), registry.release.to_json())
        with pytest.raises(CorruptionError, match="version 3 and is kept as 1"):
            await read_registry(store)

    asyncio.run(scenario())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 6), max_size=14), st.data())
def test_whoever_folds_the_log_from_whatever_version_comes_to_the_same_registry(
    versions: list[int], data: st.DataObject
) -> None:
    records = [hold(expected, f"r{number}") for number, expected in enumerate(versions)]
    # The slow model: one registry that sees the records as they come.
    seen = [first_registry()]
    for record in records:
        if record.expected == seen[-1].version:
            made = fold(seen[-1], [record]).registry
            seen.append(made)
    whole = fold(first_registry(), records)
    assert [first_registry(), *whole.registries] == seen
    lost_to = data.draw(st.sampled_from(seen))
    assert fold(lost_to, records).registry == seen[-1]
    cut = data.draw(st.integers(0, len(records)))
    middle = fold(first_registry(), records[:cut]).registry
    assert fold(middle, records).registry == seen[-1]


WAIVER = {"check": "parity", "why": "measured", "actor": "ann", "at_ms": 1, "expires_at_ms": 2}


def nested(levels: int) -> dict[str, Any]:
    return {"deeper": nested(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    "changed",
    [
        {"action": "waive", "waiver": {**WAIVER, "why": 5}},
        {"action": "waive", "waiver": {**WAIVER, "expires_at_ms": "x"}},
        {"action": "waive", "waiver": {**WAIVER, "at_ms": None}},
        {"action": "waive", "waiver": WAIVER, "at_ms": math.inf},
        {"action": "compared", "evidence": {"expires_at_ms": "x"}},
        {"action": "compared", "evidence": {"failed": [3]}},
        {"action": "hold", "note": "audit", "actor": "half a character \ud800"},
        {"action": "create", "generation": "g9", "contract": {"embedding": nested(900)}},
    ],
)
def test_records_of_wrong_types_on_the_topic_stop_neither_operators_nor_workers(
    changed: dict[str, Any],
) -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated("g2")
        before = await here.registry()
        record = json.loads(here.log.values[-1] or b"")
        record |= {"waiver": None, "id": "forged", "expected": before.version}
        record |= {"contract": before.serving.contract.to_value()}
        for name, value in changed.items():
            parts = isinstance(value, dict) and isinstance(record[name], dict)
            record[name] = {**record[name], **value} if parts else value
        here.log.values.append(json.dumps(record).encode())
        assert await here.operator().registry() == before
        await here.operator().hold("g2", "goes on")

    asyncio.run(scenario())
