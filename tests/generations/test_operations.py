"""Creating and steering generations, and their progress."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from dual_index import DOCUMENTS, LOGS, SHARDS
from installation import Installation, policy

from tessera.errors import RefusedError
from tessera.generations.description import described, detail
from tessera.generations.operations import parse_duration_s
from tessera.generations.progress import progress
from tessera.policies import ChunkPolicy, TextPolicy, load_policy
from tessera.shards.status import read_status
from tessera.store.base import Head, ShardId, Standing


def head(shard: ShardId, **standings: Standing) -> Head:
    return Head(shard, 1, 1, 9, "d", 0, tuple(standings), standings)


def test_a_name_is_the_next_that_was_never_used_and_shards_adopt_by_themselves() -> None:
    async def scenario() -> None:
        here = await Installation(settings={"max_building": 3}).open()
        assert (await here.operator().create(policy(5), "g3")).name == "g3"
        assert (await here.operator().create(policy(6))).name == "g4"
        await here.tick()
        _, found = await here.operator().progress("g4")
        assert (found.done, found.complete, found.missing) == (True, 2, ())
        assert set(here.writers[LOGS].head.live) == {"g1", "g3", "g4"}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"policy": load_policy("paragraph")}, "same_contract"),
        ({"name": "g1"}, "name_used"),
        ({"name": "a/b"}, "name"),
        ({"rate": -1.0}, "rate"),
    ],
)
def test_create_refuses_what_cannot_be(values: dict[str, Any], reason: str) -> None:
    async def scenario() -> None:
        here = await Installation().open()
        with pytest.raises(RefusedError) as refused:
            await here.operator().create(**{"policy": policy(), **values})
        assert refused.value.reason == reason

    asyncio.run(scenario())


def test_a_second_building_generation_is_refused_beyond_the_number_that_is_configured() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.operator().create(policy(5))
        with pytest.raises(RefusedError, match="max_building"):
            await here.operator().create(policy(6))
        here.settings = {"max_building": 2}
        await here.operator().create(policy(6))

    asyncio.run(scenario())


def test_rate_pause_and_resume_are_in_the_registry_that_writers_follow() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        operator = here.operator()
        await operator.create(policy(), "g2", rate=10)
        assert (await operator.set_rate("g2", None)).rate is None
        assert (await operator.pause("g2")).paused
        with pytest.raises(RefusedError, match="paused already"):
            await operator.pause("g2")
        assert not (await operator.resume("g2")).paused
        with pytest.raises(RefusedError, match="not paused already"):
            await operator.resume("g2")
        steps = (await here.registry()).generations["g2"].steps
        assert [step.action for step in steps] == ["create", "rate", "pause", "resume"]

    asyncio.run(scenario())


def test_a_proof_against_what_no_longer_serves_is_not_recorded() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.operator().create(policy(), "g2")
        with pytest.raises(RefusedError, match="no longer 'g0'"):
            await here.operator().record_verified("g2", "g0", "")
        with pytest.raises(RefusedError, match="no longer 'g0'"):
            await here.operator().record_compared("g2", await here.evidence("g2", baseline="g0"))

    asyncio.run(scenario())


def test_progress_counts_documents_and_shards_and_tells_the_time_left() -> None:
    serving = Standing(0, True, 100)
    heads = [
        head(DOCUMENTS, g1=serving, g2=Standing(0, False, 40, started_at_ms=1_000, note="waits for lag")),
        head(LOGS, g1=serving, g2=Standing(0, True, 100)),
    ]
    found = progress(SHARDS, heads, "g2", "g1", 15_000)
    assert (found.documents, found.of, found.complete, found.shards) == (140, 200, 1, 2)
    assert (found.missing, found.notes) == ((DOCUMENTS,), {str(DOCUMENTS): "waits for lag"})
    assert found.eta_s == pytest.approx(60 * 14 / 40)
    assert progress(SHARDS, heads, "g2", "g1", 500).eta_s is None  # the clock went back
    unclaimed = progress(SHARDS, [heads[0], None], "g3", "g1", 15_000)
    assert (unclaimed.done, unclaimed.eta_s) == (False, None)
    assert list(unclaimed.notes.values()) == ["not adopted yet", "no worker has claimed the shard"]
    whole = replace(heads[1].standings["g2"])
    assert progress([LOGS], [head(LOGS, g1=serving, g2=whole)], "g2", "g1", 0).done


def test_descriptions_tell_state_shards_and_every_step() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        await here.gated()
        registry, index = await here.registry(), await read_status(here.store)
        listed = described(registry, index, round(here.now * 1000))
        assert [(each["generation"], each["state"]) for each in listed] == [
            ("g1", "serving"),
            ("g2", "gated"),
        ]
        shown = detail(registry.generations["g2"], registry, index, round(here.now * 1000))
        assert [step["action"] for step in shown["steps"]] == ["create", "verified", "compared"]
        assert shown["shards"].keys() == {str(shard) for shard in SHARDS}
        assert shown["evidence"]["passed"]
        assert shown["progress"]["shards_complete"] == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86400), (" 7d ", 604800)])
def test_durations_are_given_with_a_unit(given: str, seconds: int) -> None:
    assert parse_duration_s(given) == seconds


@pytest.mark.parametrize("given", ["", "24", "h", "-1h", "1.5h", "1w", "9999999999s"])
def test_what_is_no_duration_is_refused(given: str) -> None:
    with pytest.raises(RefusedError, match="is not a duration"):
        parse_duration_s(given)


@pytest.mark.parametrize("given", ["999999999d", "3651d"])
def test_what_lasts_longer_than_any_installation_is_refused(given: str) -> None:
    with pytest.raises(RefusedError, match="is too long"):
        parse_duration_s(given)


def test_a_policy_that_repeats_each_token_in_thousands_of_chunks_is_refused() -> None:
    async def scenario() -> None:
        here = await Installation().open()
        for overlap, refused in ((1999, True), (1876, True), (1875, False)):
            rule = TextPolicy("window", size=2000, overlap=overlap)
            creating = here.operator().create(ChunkPolicy(f"overlap-{overlap}", documents=rule))
            if refused:
                with pytest.raises(RefusedError, match=f"size 2000 and overlap {overlap}"):
                    await creating
                assert not here.log.values
            else:
                await creating

    asyncio.run(scenario())
