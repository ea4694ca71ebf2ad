"""Contraction and abandonment: given up, deleted, done; refused, bounded and resumable."""

from __future__ import annotations

import asyncio
import json

import pytest
from dual_index import DOCUMENTS, SHARDS
from installation import Installation, broker_that_knows, policy

from tessera.errors import RefusedError
from tessera.events.change import Record
from tessera.generations.contraction import abandon, contract, remains
from tessera.generations.cutover import cutover, rollback


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    broker_that_knows(monkeypatch, {})


async def with_documents(here: Installation, first: int = 0) -> None:
    events = [
        {"v": 1, "op": "upsert", "source": "handbook", "doc_id": f"{n}.md", "revision": 1,
         "media_type": "text/plain", "content": "one two three four five six seven\n" * 3}
        for n in range(first, first + 5)
    ]  # fmt: skip
    records = [
        Record(DOCUMENTS.topic, 0, n, f"handbook/{n}.md".encode(), json.dumps(event).encode())
        for n, event in enumerate(events, first)
    ]
    await here.writers[DOCUMENTS].write(records)


async def cut_over() -> Installation:
    here = await Installation().open()
    await with_documents(here)
    await here.gated()
    await cutover(here.operator(), "g2", retention_s=60)
    return here


def test_a_retired_generation_is_removed_once_its_retention_has_passed() -> None:
    async def scenario() -> None:
        here = await cut_over()
        with pytest.raises(RefusedError) as refused:
            await contract(here.operator(), "g1", wait_s=0)
        assert (refused.value.reason, "another 60 s" in str(refused.value)) == ("retention", True)
        here.now += 60
        begun = await contract(here.operator(), "g1", wait_s=0)
        assert (begun.state, begun.done) == ("contracting", False)
        assert [f"shard {shard} writes it" for shard in SHARDS] == list(begun.waits_for)
        with pytest.raises(RefusedError):
            await rollback(here.operator())
        await here.tick()
        done = await contract(here.operator(), "g1", wait_s=0)
        assert (done.state, done.done) == ("contracted", True)
        assert await contract(here.operator(), "g1", wait_s=0) == done
        assert not [name for shard in SHARDS for name in await here.store.counters(shard) if ":g1:" in name]
        assert [record.action for record in here.log.records()][-2:] == ["contract", "contracted"]

    asyncio.run(scenario())


def test_nothing_is_deleted_while_a_searcher_reads_it() -> None:
    async def scenario() -> None:
        here = await cut_over()
        here.now += 60
        await here.announce("s1", "g1", "g2", in_use=["g1", "g2"])
        await contract(here.operator(), "g1", wait_s=0)
        await here.tick()
        waiting = await contract(here.operator(), "g1", wait_s=0)
        assert waiting.waits_for[0] == "searcher s1 reads it"
        assert (await here.store.counters(DOCUMENTS))["chunks:g1:handbook"] == 5
        await here.announce("s1", "g2", in_use=["g2"])
        assert (await contract(here.operator(), "g1", wait_s=0)).done

    asyncio.run(scenario())


def test_the_wait_ends_as_soon_as_nothing_is_left() -> None:
    async def scenario() -> None:
        here = await cut_over()
        here.now += 60
        told: list[int] = []
        begun = asyncio.Event()

        def on_progress(left: tuple[str, ...]) -> None:
            told.append(len(left))
            begun.set()

        under_way = asyncio.create_task(contract(here.operator(), "g1", 30, on_progress))
        await begun.wait()
        await here.tick()
        assert (await under_way).done
        assert told[0] == 2
        assert told[-1] == 0

    asyncio.run(scenario())


def test_contraction_of_what_is_served_or_held_is_refused() -> None:
    async def scenario() -> None:
        here = await cut_over()
        here.now += 60
        await here.operator().hold("g1", "audit")
        for remove, name, reason in (
            (contract, "g1", "held"),
            (contract, "g2", "served"),
            (abandon, "g2", "served"),
        ):
            with pytest.raises(RefusedError) as refused:
                await remove(here.operator(), name, wait_s=0)
            assert refused.value.reason == reason
        await here.operator().release_hold("g1")
        assert (await contract(here.operator(), "g1", wait_s=0)).state == "contracting"

    asyncio.run(scenario())


def test_a_candidate_is_abandoned_in_whatever_state_and_its_name_stays_used() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await with_documents(here)
        await here.operator().create(policy(), "g2")
        await here.tick()
        assert await remains(here.store, "g2")
        begun = await abandon(here.operator(), "g2", "wrong size", wait_s=0)
        assert (begun.state, begun.done) == ("abandoned", False)
        await here.tick()
        assert (await abandon(here.operator(), "g2", wait_s=0)).done
        assert [record.action for record in here.log.records()] == ["create", "abandon"]
        with pytest.raises(RefusedError, match="never used again"):
            await here.operator().create(policy(7), "g2")
        assert (await here.operator().create(policy())).name == "g3"

    asyncio.run(scenario())


def test_a_rolled_back_generation_can_be_abandoned_at_once() -> None:
    async def scenario() -> None:
        here = await cut_over()
        await rollback(here.operator())
        await abandon(here.operator(), "g2", wait_s=0)
        await here.tick()
        assert (await abandon(here.operator(), "g2", wait_s=0)).done
        assert await here.states() == {"g1": "serving", "g2": "abandoned"}

    asyncio.run(scenario())


@pytest.mark.parametrize("skew_s", [-7200.0, 61.0, 7200.0])
def test_a_clock_that_jumped_makes_no_step_and_deletes_nothing(skew_s: float) -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        await cutover(here.operator(), "g2", retention_s=3600)
        here.skew_s = skew_s
        with pytest.raises(RefusedError, match=r"this machine is .* s (ahead of|behind) .*set the"):
            await contract(here.operator(), "g1")
        assert (await here.states())["g1"] == "retired"
        with pytest.raises(RefusedError, match="at most 60 s"):
            await here.operator().create(policy(), "g3")
        here.skew_s = 59.0
        with pytest.raises(RefusedError, match="kept for a rollback for another"):
            await contract(here.operator(), "g1")

    asyncio.run(scenario())


def test_what_is_left_is_removed_in_bounded_steps_even_while_the_worker_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tessera.generations.contraction.STEP_SEGMENTS", 1)

    async def scenario() -> None:
        here = await cut_over()
        await with_documents(here, 5)
        here.now += 60
        await here.announce("s1", in_use=["g1"])
        await contract(here.operator(), "g1", wait_s=0)
        await here.tick()
        await here.store.announce(
            "s1", b'{"release": "r2", "generations": [], "in_use": [], "follows": true}', 1.0
        )
        first = await contract(here.operator(), "g1", wait_s=0)
        assert first.waits_for == ("shard tessera.documents/0 holds 1 segments of it",)
        assert (await contract(here.operator(), "g1", wait_s=0)).done

    asyncio.run(scenario())
