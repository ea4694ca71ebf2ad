"""What an operator may get wrong: each refused with a reason and a next step, and nothing moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import pytest
from installation import Installation, broker_that_knows, policy

from tessera.cli import main as entry
from tessera.errors import RefusedError
from tessera.generations.contraction import abandon, contract
from tessera.generations.cutover import AskedWaiver, cutover, rollback


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    broker_that_knows(monkeypatch, {})


async def refused(here: Installation, step: Awaitable[object]) -> RefusedError:
    """The refusal; neither registry nor control log has moved."""
    before, records = await here.registry(), len(here.log.values)
    with pytest.raises(RefusedError) as caught:
        await step
    assert caught.value.next_step
    assert str(caught.value).endswith(caught.value.next_step)
    assert (await here.registry(), len(here.log.values)) == (before, records)
    return caught.value


async def cut_over(retention_s: int = 0) -> Installation:
    here = await Installation().open()
    await here.gated()
    await cutover(here.operator(), "g2", retention_s=retention_s)
    return here


def test_a_contract_equal_to_a_live_one_is_refused_and_one_equal_to_a_removed_one_is_not() -> None:
    async def scenario() -> None:
        here = await Installation(settings={"max_building": 2}).open()
        await here.operator().create(policy(), "g2")
        same = replace(policy(), name="win-6")
        error = await refused(here, here.operator().create(same, "g3"))
        assert (error.reason, "'g2' (building) has the very same contract" in str(error)) == (
            "same_contract",
            True,
        )
        await abandon(here.operator(), "g2", wait_s=0)
        assert (await here.operator().create(same, "g3")).state == "building"

    asyncio.run(scenario())


def test_a_generation_by_an_unknown_policy_is_refused_before_any_server_is_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nowhere = ["--broker", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0"]
    assert entry.run(["generation", "create", "--policy", "bogus", *nowhere]) == 2
    told = capsys.readouterr().err
    assert "bogus" in told
    assert "give a built-in name or a TOML file" in told


def test_a_name_used_before_is_refused_even_where_its_generation_is_gone() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.operator().create(policy(), "g2")
        await abandon(here.operator(), "g2", wait_s=0)
        for name in ("g1", "g2"):
            error = await refused(here, here.operator().create(policy(7), name))
            assert (error.reason, error.next_step) == ("name_used", "give another --name")

    asyncio.run(scenario())


def test_cutover_to_a_generation_that_is_not_ready_is_refused() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.put("first.md", "something to serve\n")
        await here.operator().create(policy(), "g2")
        assert (await refused(here, cutover(here.operator(), "g2"))).reason == "state"
        await here.tick()
        await here.operator().record_verified("g2", "g1", "equal")
        error = await refused(here, cutover(here.operator(), "g2"))
        assert (error.reason, "tessera generation compare g1 g2" in str(error)) == ("evidence", True)

    asyncio.run(scenario())


def test_cutover_on_expired_evidence_is_refused() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        here.now += 3600
        error = await refused(here, cutover(here.operator(), "g2"))
        assert (error.reason, "it expired at" in str(error)) == ("evidence", True)

    asyncio.run(scenario())


def test_a_waiver_without_a_reason_is_refused() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated(passed=False)
        for why in ("", "  ", "evidence:", "evidence:  "):
            error = await refused(here, cutover(here.operator(), "g2", AskedWaiver(why, 60)))
            assert (error.reason, error.next_step) == ("waiver", "say why: --waive WHY")

    asyncio.run(scenario())


def test_rollback_with_nothing_to_go_back_to_is_refused() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        assert (await refused(here, rollback(here.operator()))).reason == "no_previous"
        here = await cut_over()
        await contract(here.operator(), "g1", wait_s=0)
        assert (await refused(here, rollback(here.operator()))).reason == "no_previous"

    asyncio.run(scenario())


def test_contraction_of_what_is_served_or_within_its_retention_or_held_is_refused() -> None:
    async def scenario() -> None:
        here = await cut_over(retention_s=60)
        assert (await refused(here, contract(here.operator(), "g2"))).reason == "served"
        assert (await refused(here, contract(here.operator(), "g1"))).reason == "retention"
        here.now += 60
        await here.operator().hold("g1", "audit")
        error = await refused(here, contract(here.operator(), "g1"))
        assert (error.reason, "audit" in str(error)) == ("held", True)

    asyncio.run(scenario())


def test_a_step_by_a_clock_that_jumped_is_refused_whichever_way() -> None:
    async def scenario() -> None:
        here = await cut_over(retention_s=3600)
        for here.skew_s in (-3 * 3600.0, 3 * 3600.0):
            error = await refused(here, contract(here.operator(), "g1"))
            assert (error.reason, "set the one that is wrong" in str(error)) == ("clock", True)

    asyncio.run(scenario())


def test_a_removal_under_a_lease_tells_who_reads_and_removes_nothing() -> None:
    async def scenario() -> None:
        here = await cut_over()
        await here.announce("s1", "g1", "g2", in_use=["g1"])
        removal = await contract(here.operator(), "g1", wait_s=0)
        assert (removal.done, removal.waits_for[0]) == (False, "searcher s1 reads it")
        await here.tick()
        again = await contract(here.operator(), "g1", wait_s=0)
        assert (again.state, again.waits_for[0]) == ("contracting", "searcher s1 reads it")
        await here.announce("s1", "g2", in_use=["g2"])
        assert (await contract(here.operator(), "g1", wait_s=0)).done

    asyncio.run(scenario())
