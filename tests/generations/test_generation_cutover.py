"""Cutover and rollback: every check, waivers, searchers that lag, and two operators at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from dual_index import DOCUMENTS, LOGS
from installation import Installation, broker_that_knows, policy

from tessera.errors import RefusedError, UnavailableError
from tessera.events.change import Record
from tessera.generations.checks import Check
from tessera.generations.cutover import AskedWaiver, Move, cutover, plan_cutover, plan_rollback, rollback
from tessera.releases import Release
from tessera.store.base import Commit, ShardId
from tessera.store.memory import MemoryStore

DAY_MS = 24 * 3600 * 1000
NAMES = [
    "state",
    "shards",
    "parity",
    "documents",
    "evidence",
    "lag",
    "parse_failures",
    "dead_letters",
    "readers",
]


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The ends of the logs that the broker tells."""
    known: dict[str, int] = {}
    broker_that_knows(monkeypatch, known)
    return known


def failing(move: Move) -> list[str]:
    return [check.name for check in move.checks if not check.stands]


def check(move: Move, name: str) -> Check:
    return next(each for each in move.checks if each.name == name)


async def refusal(
    here: Installation, waiver: AskedWaiver | None = None, retention_s: int | None = None
) -> RefusedError:
    before = await here.registry()
    with pytest.raises(RefusedError) as refused:
        await cutover(here.operator(), "g2", waiver, retention_s)
    assert (await here.registry()).release == before.release
    return refused.value


def test_a_gated_generation_is_served_and_the_old_one_retired_in_one_write() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        await here.announce("s1", "g1", "g2")
        plan = await plan_cutover(here.operator(), "g2")
        assert [each.name for each in plan.checks] == NAMES
        assert plan.allowed
        before = (await here.registry()).version
        done = await cutover(here.operator(), "g2")
        registry = await here.registry()
        assert registry.version == before + 1
        assert await here.states() == {"g1": "retired", "g2": "serving"}
        assert (registry.release.release, registry.previous) == ("r2", Release("r1", "g1"))
        assert registry.generations["g1"].retain_until_ms == round(here.now * 1000) + DAY_MS
        assert await here.store.release() == registry.release.to_json()
        assert (plan.changes, plan.checks) == (done.changes, done.checks)

    asyncio.run(scenario())


def test_a_dry_run_changes_and_records_nothing() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        before, records = await here.registry(), len(here.log.values)
        await plan_cutover(here.operator(), "g2", AskedWaiver("known", 60))
        assert (await here.registry(), len(here.log.values)) == (before, records)

    asyncio.run(scenario())


def test_cutover_rollback_cutover_needs_no_new_evidence_and_each_is_at_once() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        await cutover(here.operator(), "g2", retention_s=60)
        assert (await plan_rollback(here.operator())).to_release == Release("r1", "g1")
        await rollback(here.operator(), "worse answers")
        assert await here.states() == {"g1": "serving", "g2": "gated"}
        assert (await here.registry()).generations["g2"].steps[-1].note == "worse answers"
        with pytest.raises(RefusedError, match="no release before r1"):
            await rollback(here.operator())
        await cutover(here.operator(), "g2")
        assert (await here.registry()).release == Release("r3", "g2")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"expires_at_ms": 1_800_000_000_000}, "expired at 2027-01-15"),
        ({"at_ms": 1_800_000_000_000 + 60_000}, "in the future"),
        ({"baseline": "g0"}, "compares with g0, and g1 is served"),
        ({"baseline_contract": "sha256:1"}, "g1 is served"),
    ],
)
def test_evidence_that_proves_nothing_now_is_refused(changed: dict[str, Any], words: str) -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated(**{"expires_at_ms": 1_900_000_000_000, **changed})
        error = await refusal(here)
        assert error.reason == "evidence"
        assert words in str(error)

    asyncio.run(scenario())


def test_a_clock_that_jumps_either_way_makes_evidence_and_waivers_worthless() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        for jump in (-3600, 2 * 3600):
            here.now += jump
            assert (await refusal(here, retention_s=60)).reason == "evidence"
            here.now -= jump
        here.now += 2 * 3600
        await cutover(here.operator(), "g2", AskedWaiver("seen by ann", 60), retention_s=0)
        await rollback(here.operator())
        for jump in (-120, 61):
            here.now += jump
            assert (await refusal(here, retention_s=60)).reason == "evidence"
            here.now -= jump
        await cutover(here.operator(), "g2")

    asyncio.run(scenario())


def test_a_clock_behind_the_control_log_cuts_nothing_over_on_evidence_that_has_expired() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated(expires_at_ms=1_800_000_000_000 + 600_000)
        here.now += 3600
        await here.operator().hold("g2", "looked at again")
        here.now -= 3300  # evidence would hold again, and retention be over fifty-five minutes early
        error = await refusal(here)
        assert error.reason == "clock"
        assert "3,300 s ahead of the clock of this machine" in str(error)
        assert "--retention" in str(error)
        with pytest.raises(RefusedError, match="set the clock"):
            await plan_cutover(here.operator(), "g2")
        await cutover(here.operator(), "g2", retention_s=7200)
        kept_until = (await here.registry()).generations["g1"].retain_until_ms
        assert kept_until == round(here.now * 1000) + 7_200_000

    asyncio.run(scenario())


def test_failing_or_missing_evidence_is_refused_and_can_be_waived_by_name_and_for_a_time() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated(passed=False, failed=("min_recall",))
        assert await here.states() == {"g1": "serving", "g2": "ready"}
        assert "thresholds not met: min_recall" in str(await refusal(here))
        done = await cutover(here.operator(), "g2", AskedWaiver("evidence: recall is known", 60))
        assert check(done, "evidence").waived
        waiver = (await here.registry()).generations["g2"].waiver
        assert waiver is not None
        assert (waiver.check, waiver.why, waiver.actor) == ("evidence", "recall is known", "ann@desk")
        assert waiver.expires_at_ms == round(here.now * 1000) + 60_000
        assert [record.action for record in here.log.records()][-2:] == ["waive", "cutover"]

    asyncio.run(scenario())


def test_a_generation_not_adopted_or_not_complete_is_refused_and_no_waiver_helps() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.operator().create(policy(), "g2")
        for _ in range(2):
            plan = await plan_cutover(here.operator(), "g2")
            assert {"state", "shards", "evidence"} <= set(failing(plan))
            assert (await refusal(here, AskedWaiver("shards: now", 60))).reason in ("state", "waiver")
            for writer in here.writers.values():
                await writer.tick()

    asyncio.run(scenario())


def test_a_shard_that_lost_its_standing_is_refused_whatever_the_registry_says() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        head = here.writers[DOCUMENTS].head
        standings = {**head.standings, "g2": replace(head.standings["g2"], complete=False)}
        await here.store.commit(Commit(DOCUMENTS, head.fence, head.seq, standings=standings))
        error = await refusal(here)
        assert error.reason == "shards"
        assert "tessera.documents/0" in str(error)
        assert (await refusal(here, AskedWaiver("hurry", 60))).reason == "waiver"

    asyncio.run(scenario())


def test_a_shard_never_claimed_is_refused() -> None:
    async def scenario() -> None:
        here = await Installation().open([DOCUMENTS])
        await here.gated()
        assert check(await plan_cutover(here.operator(), "g2"), "shards").detail.endswith(": tessera.logs/0")

    asyncio.run(scenario())


async def unequal(here: Installation, name: str) -> None:
    head = here.writers[DOCUMENTS].head
    standings = {**head.standings, name: replace(head.standings[name], fingerprint="f" * 32)}
    await here.store.commit(Commit(DOCUMENTS, head.fence, head.seq, standings=standings))


def test_unequal_fingerprints_are_refused_for_cutover_and_rollback() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        await unequal(here, "g2")
        assert (await refusal(here)).reason == "parity"
        await cutover(here.operator(), "g2", AskedWaiver("g1 is the broken one", 60))
        with pytest.raises(RefusedError, match="rollback is refused by parity"):
            await rollback(here.operator())

    asyncio.run(scenario())


def test_lag_and_an_unknown_lag_are_refused(ends: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: object, **_security: object) -> dict[ShardId, int]:
        raise UnavailableError("the broker is away")

    async def scenario() -> None:
        here = await Installation(settings={"cutover_max_lag": 5}).open()
        await here.gated()
        ends["tessera.logs/0"] = 5
        assert (await plan_cutover(here.operator(), "g2")).allowed
        ends["tessera.logs/0"] = 6
        error = await refusal(here)
        assert (error.reason, "tessera.logs/0" in str(error)) == ("lag", True)
        monkeypatch.setattr("tessera.generations.operations.high_watermarks", gone)
        assert "the broker is away" in str(await refusal(here))

    asyncio.run(scenario())


def test_dead_letters_and_parse_failures_above_their_bounds_are_refused(ends: dict[str, int]) -> None:
    async def scenario() -> None:
        here = await Installation(settings={"cutover_max_parse_failures": 0}).open()
        bad = b'{"v": 1, "op": "upsert", "source": "devex", "doc_id": "a", "media_type": "text/x-run-log", '
        values = [b"not JSON", bad + b'"content_base64": "//8K"}']
        records = [Record(LOGS.topic, 0, offset, b"devex/a", value) for offset, value in enumerate(values)]
        await here.writers[LOGS].write(records)
        ends["tessera.logs/0"] = 2
        await here.gated()
        assert failing(await plan_cutover(here.operator(), "g2")) == ["parse_failures", "dead_letters"]
        error = await refusal(here, AskedWaiver("lag: no matter", 60))
        assert "a waiver overrules one check" in str(error)
        here.settings = {"cutover_max_dead_letters": 1, "cutover_max_parse_failures": 1}
        assert (await plan_cutover(here.operator(), "g2")).allowed

    asyncio.run(scenario())


def test_a_waiver_overrules_the_check_it_names_and_no_other() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated(passed=False)
        assert (await refusal(here, AskedWaiver("lag: it will catch up", 60))).reason == "evidence"
        assert (await here.registry()).generations["g2"].waiver is None
        with pytest.raises(RefusedError, match="needs a reason"):
            await cutover(here.operator(), "g2", AskedWaiver("  ", 60))

    asyncio.run(scenario())


def test_a_waiver_nobody_needs_is_not_recorded() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        for move in (plan_cutover, cutover):
            done = await move(here.operator(), "g2", AskedWaiver("to be sure", 60))
            assert "is not recorded" in done.note
        assert (await here.registry()).generations["g2"].waiver is None

    asyncio.run(scenario())


def test_a_waiver_for_a_check_there_is_not_is_refused_and_a_dry_run_shows_all_checks_all_the_same() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated(passed=False)
        error = await refusal(here, AskedWaiver("evidense: measured elsewhere", 60))
        assert "there is no check 'evidense'; name one of state, shards, parity, documents" in str(error)
        shown = await plan_cutover(here.operator(), "g2", AskedWaiver("evidense: measured elsewhere", 60))
        assert (failing(shown), shown.note, shown.allowed) == (["evidence"], str(error), False)
        told = await plan_cutover(here.operator(), "g2", AskedWaiver("we measured this: elsewhere", 60))
        assert (told.note, told.allowed) == ("", True)

    asyncio.run(scenario())


def test_cutover_waits_for_searchers_to_load_the_candidate_and_no_longer_than_it_may() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        await here.announce("fast", "g1", "g2")
        await here.announce("slow", "g1")
        error = await refusal(here)
        assert (error.reason, "1 of 2 searchers" in str(error)) == ("readers", True)
        here.settings = {"cutover_wait_s": 30.0}
        under_way = asyncio.create_task(cutover(here.operator(), "g2"))
        while not under_way.done():
            await here.announce("slow", "g1", "g2")
            await asyncio.sleep(0)
        assert check(await under_way, "readers").detail == "all 2 searchers have loaded it"

    asyncio.run(scenario())


def test_a_searcher_that_answers_one_question_is_not_waited_for() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        await here.announce("once", "g1", in_use=["g1"], follows=False)
        assert check(await cutover(here.operator(), "g2"), "readers").detail == "no searcher runs"

    asyncio.run(scenario())


def test_a_searcher_that_never_loads_it_can_be_waived() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        await here.announce("stuck", "g1")
        await cutover(here.operator(), "g2", AskedWaiver("it is being replaced", 60))
        assert (await here.registry()).release.generation == "g2"

    asyncio.run(scenario())


def test_of_two_operators_cutting_over_at_once_exactly_one_wins() -> None:
    async def scenario() -> None:
        here = await Installation(settings={"max_building": 2}).open()
        await here.gated("g2", 6)
        await here.gated("g3", 7)
        here.log.race = asyncio.Barrier(2)
        moves = (cutover(here.operator("ann"), "g2"), cutover(here.operator("bob"), "g3"))
        outcomes = await asyncio.gather(*moves, return_exceptions=True)
        [won] = [outcome for outcome in outcomes if isinstance(outcome, Move)]
        [lost] = [outcome for outcome in outcomes if isinstance(outcome, RefusedError)]
        winner = "ann" if won.to_release.generation == "g2" else "bob"
        assert lost.reason == "superseded"
        assert winner in str(lost)
        registry = await here.registry()
        assert registry.release == won.to_release
        assert sorted((await here.states()).values()) == ["gated", "retired", "serving"]

    asyncio.run(scenario())


def test_the_other_candidates_evidence_is_of_yesterdays_generation_after_a_cutover() -> None:
    async def scenario() -> None:
        here = await Installation(settings={"max_building": 2}).open()
        await here.gated("g2", 6)
        await here.gated("g3", 7)
        await cutover(here.operator(), "g3")
        assert "compares with g1, and g3 is served" in str(await refusal(here))

    asyncio.run(scenario())


class PointerLosingStore(MemoryStore):
    """Gives back an old pointer once, as a failover would."""

    old: bytes | None = None

    async def release(self) -> bytes | None:
        return self.old or await super().release()


def test_a_cutover_whose_pointer_is_read_back_otherwise_is_not_reported_as_complete() -> None:
    async def scenario() -> None:
        store = PointerLosingStore()
        here = await Installation(store=store).open()
        await here.gated()
        store.old = await store.release()
        with pytest.raises(UnavailableError, match="r1 is read back"):
            await cutover(here.operator(), "g2")

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["g1", "g9"])
def test_cutover_to_what_serves_or_never_was_is_refused(name: str) -> None:
    async def scenario() -> None:
        here = await Installation().open()
        with pytest.raises(RefusedError) as refused:
            await cutover(here.operator(), name, AskedWaiver("hurry", 60))
        assert refused.value.reason in ("already", "unknown")

    asyncio.run(scenario())


def test_evidence_and_waivers_beyond_the_calendar_are_shown_and_hold() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated(expires_at_ms=10**30)
        assert "9999-12-31" in check(await plan_cutover(here.operator(), "g2"), "evidence").detail
        await here.gated("g3", 7, passed=False, failed=("min_recall",))
        waiver = AskedWaiver("evidence: measured elsewhere", 10**30)
        move = await cutover(here.operator(), "g3", waiver)
        assert "waived" in check(move, "evidence").detail

    asyncio.run(scenario())


@pytest.mark.parametrize("lost", ["evidence", "waiver", "shard"])
def test_what_runs_out_while_searchers_are_waited_for_is_refused(lost: str) -> None:
    async def scenario() -> None:
        here = await Installation(settings={"cutover_wait_s": 30.0}).open()
        ends_ms = round(here.now * 1000) + (5_000 if lost == "evidence" else DAY_MS)
        await here.gated(passed=lost != "waiver", expires_at_ms=ends_ms)
        await here.announce("s1", "g1")
        waiver = AskedWaiver("evidence: measured elsewhere", 5) if lost == "waiver" else None
        moving = asyncio.create_task(cutover(here.operator(), "g2", waiver))
        readers, looks, waiting = here.store.readers, count(1), asyncio.Event()

        async def noticed() -> dict[str, bytes]:
            if next(looks) == 2:  # the first look was one of the checks
                waiting.set()
            return await readers()

        here.store.readers = noticed  # type: ignore[method-assign]
        await waiting.wait()
        here.now += 20
        if lost == "shard":
            head = here.writers[DOCUMENTS].head
            standing = replace(head.standings["g2"], complete=False)
            standings = {**head.standings, "g2": standing}
            await here.store.commit(Commit(DOCUMENTS, head.fence, head.seq, standings=standings))
        await here.announce("s1", "g1", "g2")
        with pytest.raises(RefusedError) as refused:
            await moving
        assert refused.value.reason == {"shard": "shards"}.get(lost, "evidence")
        assert (await here.registry()).serving.name == "g1"

    asyncio.run(scenario())
