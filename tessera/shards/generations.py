"""The generations a writer must write, as the registry describes them; the first one, where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from tessera.errors import CorruptionError, PartitionCountError, SettingsError
from tessera.index.analyzer import WordsAnalyzer, require_analyzer
from tessera.policies import load_policy
from tessera.policies.stored import policy_from_canonical
from tessera.releases import Contract, GenerationDescription, Release
from tessera.shards.building import LiveGeneration
from tessera.store.base import ShardStore

FIRST_GENERATION = "g1"
FIRST_RELEASE = "r1"
FIRST_POLICY = "paragraph"


async def bootstrap(store: ShardStore, partitions: Mapping[str, int]) -> None:
    """Record partition counts, the first generation and the first release, where they are not there yet.

    Raises PartitionCountError where a topic is recorded with another count.
    """
    for topic, count in partitions.items():
        recorded = await store.record_topic(topic, count)
        if recorded != count:
            raise PartitionCountError(
                f"topic {topic} has {count} partitions, its index was made with {recorded}: keys would move "
                "and deletes would miss a copy; give back the old topic, or start a new namespace and rebuild"
            )
    policy = load_policy(FIRST_POLICY)
    contract = Contract(policy.id, orjson.loads(policy.canonical_json), analyzer=WordsAnalyzer.identity)
    await store.register(FIRST_GENERATION, GenerationDescription(FIRST_GENERATION, contract).to_json())
    await store.set_release(None, Release(FIRST_RELEASE, FIRST_GENERATION).to_json())


async def served_generation(store: ShardStore) -> str:
    """The generation that the release pointer names; SettingsError where nothing was set up yet."""
    encoded = await store.release()
    if encoded is None:
        raise SettingsError("no release is set: start `tessera worker` or `tessera up` on this server once")
    return Release.from_json(encoded).generation


async def load_generations(store: ShardStore, names: Sequence[str]) -> list[LiveGeneration]:
    """Policies and analyzers of these generations; raises where this build cannot write one of them."""
    registry = await store.registry()
    generations = []
    for name in names:
        if name not in registry:
            raise CorruptionError(
                f"generation {name!r} is live in a shard but not in the registry: restore it"
            )
        contract = GenerationDescription.from_json(registry[name]).contract
        policy = policy_from_canonical(contract.policy_id, contract.policy_canonical)
        generations.append(LiveGeneration(name, policy, require_analyzer(contract.analyzer, name)))
    return generations
