"""The assembly of contexts moves with the release: with a cutover, by itself, and back with a rollback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from installation import NAMESPACE, Installation, broker_that_knows

from tessera.assembly.assembly import JOINED, SENTENCES
from tessera.errors import CorruptionError, RefusedError
from tessera.generations.bootstrap import first_registry
from tessera.generations.control import ControlLog
from tessera.generations.cutover import AskedWaiver, cutover, plan_cutover, plan_rollback, rollback
from tessera.generations.description import described
from tessera.generations.record import ControlRecord
from tessera.generations.registry import Registry
from tessera.releases import Release
from tessera.shards.status import read_status
from tessera.store.memory import MemoryStore

R1 = Release("r1", "g1")


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    broker_that_knows(monkeypatch, {})


def scenario(play: Callable[[Installation], Awaitable[None]]) -> None:
    async def run() -> None:
        here = await Installation().open()
        await here.gated()
        await play(here)

    asyncio.run(run())


async def served(here: Installation) -> Release:
    """The release of the pointer, which is the registry's."""
    encoded = await here.store.release()
    assert encoded == (await here.registry()).release.to_json()
    return Release.from_json(encoded)


def test_a_cutover_moves_generation_and_assembly_together_and_a_rollback_brings_both_back() -> None:
    async def play(here: Installation) -> None:
        plan = await plan_cutover(here.operator(), "g2", assembly=SENTENCES)
        assert "assembly joined@1 becomes sentences@1" in plan.changes
        await cutover(here.operator(), "g2", assembly=SENTENCES)
        assert await served(here) == Release("r2", "g2", assembly=SENTENCES)
        assert "assembly sentences@1 becomes joined@1" in (await plan_rollback(here.operator())).changes
        await rollback(here.operator())
        assert await served(here) == R1

    scenario(play)


def test_a_cutover_that_names_no_assembly_keeps_the_one_that_serves() -> None:
    async def play(here: Installation) -> None:
        await cutover(here.operator(), "g1", assembly=SENTENCES)
        plan = await plan_cutover(here.operator(), "g2")
        assert not any("assembly" in change for change in plan.changes)
        await cutover(here.operator(), "g2")
        assert await served(here) == Release("r3", "g2", assembly=SENTENCES)

    scenario(play)


def test_the_assembly_alone_is_a_release_of_the_same_generation() -> None:
    async def play(here: Installation) -> None:
        before = await here.states()
        plan = await plan_cutover(here.operator(), "g1", assembly=SENTENCES)
        assert await served(here) == R1
        done = await cutover(here.operator(), "g1", assembly=SENTENCES)
        assert (done.changes, [check.name for check in done.checks]) == (plan.changes, ["shards", "parity"])
        assert await served(here) == Release("r2", "g1", assembly=SENTENCES)
        assert (await here.registry()).previous == R1
        await rollback(here.operator(), "worse contexts")
        assert await served(here) == R1
        assert (await here.registry()).previous is None
        await cutover(here.operator(), "g1", assembly=SENTENCES)
        assert (await served(here)).release == "r3"
        assert await here.states() == before
        steps = (await here.registry()).generations["g1"].steps
        assert [step.action for step in steps] == ["assembly", "rollback", "assembly"]

    scenario(play)


def test_a_change_of_nothing_or_with_what_it_cannot_use_is_refused() -> None:
    async def play(here: Installation) -> None:
        for given, reason in [
            ({"assembly": JOINED}, "already"),
            ({"assembly": SENTENCES, "retention_s": 60}, "assembly"),
            ({"assembly": SENTENCES, "waiver": AskedWaiver("now", 60)}, "assembly"),
            ({}, "already"),
        ]:
            with pytest.raises(RefusedError) as refused:
                await cutover(here.operator(), "g1", **given)  # type: ignore[arg-type]
            assert refused.value.reason == reason
        assert await served(here) == R1

    scenario(play)


def test_a_step_of_the_assembly_moves_nothing_else() -> None:
    async def play(here: Installation) -> None:
        operator, registry = here.operator(), await here.registry()
        for name, release in [
            ("g1", None),
            ("g1", Release("r1", "g1", assembly=SENTENCES)),
            ("g1", Release("r2", "g2", assembly=SENTENCES)),
            ("g1", Release("r2", "g1", assembly=SENTENCES, reranker={"name": "x"})),
        ]:
            with pytest.raises(RefusedError, match="no sound release"):
                await operator.step(registry, "assembly", name, release=release)
        with pytest.raises(RefusedError, match="g2' is gated"):
            await operator.step(registry, "assembly", "g2", release=Release("r2", "g2"))

    scenario(play)


def test_what_shows_generations_names_the_release_and_its_assembly() -> None:
    async def play(here: Installation) -> None:
        await cutover(here.operator(), "g2", assembly=SENTENCES)
        found = described(await here.registry(), await read_status(here.store), 0)
        shown = {each["generation"]: (each["release"], each["assembly"]) for each in found}
        assert shown == {"g1": ("r1", "joined@1"), "g2": ("r2", "sentences@1")}

    scenario(play)


def test_a_store_that_lost_the_cutover_gets_the_assembly_back_from_the_control_log() -> None:
    async def play(here: Installation) -> None:
        await cutover(here.operator(), "g2", assembly=SENTENCES)
        lost = await Installation(store=MemoryStore(), log=here.log).open()
        assert await served(lost) == R1
        await ControlLog(here.log, NAMESPACE).reapply(lost.store)
        assert await served(lost) == Release("r2", "g2", assembly=SENTENCES)

    scenario(play)


@pytest.mark.parametrize(
    "assembly",
    [
        "sentences",
        [],
        {},
        5,
        {"name": "sentences"},
        {**SENTENCES.to_value(), "hits": float("inf")},
        {**SENTENCES.to_value(), "hits": 10**30},
        {**SENTENCES.to_value(), "hits": None},
        {**SENTENCES.to_value(), "floor": "0.9"} | {"ceiling": "much"},
        {**SENTENCES.to_value(), "order": ["source"]},
        {**SENTENCES.to_value(), "revision": 7},
        {**SENTENCES.to_value(), "more": "of it"},
    ],
    ids=str,
)
def test_a_record_with_an_assembly_that_is_none_is_no_record_and_as_a_release_cannot_be_read(
    assembly: object,
) -> None:
    record = ControlRecord("cutover", "g2", 1, "ann", 0, "id", release=Release("r2", "g2"))
    value = json.loads(record.to_json(NAMESPACE))
    value["release"]["assembly"] = assembly
    hostile = json.dumps(value).replace("Infinity", "1e999").encode()
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds; whoever reads the log ignores them all
        ControlRecord.from_json(hostile)
    with pytest.raises(CorruptionError):
        Release.from_json(json.dumps(value["release"]).replace("Infinity", "1e999").encode())
    registry = json.loads(first_registry().to_json()) | {"release": value["release"]}
    with pytest.raises(CorruptionError):
        Registry.from_json(json.dumps(registry).replace("Infinity", "1e999").encode())


@pytest.mark.parametrize("generation", ["g1", "g2"])
def test_a_crash_between_record_and_pointer_leaves_a_release_that_the_next_reader_finishes(
    generation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CrashError(Exception):
        pass

    def crash(name: str) -> None:
        if name == "control.published":
            raise CrashError

    async def play(here: Installation) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("tessera.generations.control.failpoint", crash)
            with pytest.raises(CrashError):
                await cutover(here.operator(), generation, assembly=SENTENCES)
        assert await served(here) == R1
        await here.operator().registry()
        assert await served(here) == Release("r2", generation, assembly=SENTENCES)

    scenario(play)
