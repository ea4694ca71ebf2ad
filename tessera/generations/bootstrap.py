"""The registry at its beginning, and reading it."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from tessera.errors import CorruptionError, PartitionCountError, SettingsError
from tessera.generations.registry import Generation, Registry
from tessera.index.analyzer import DEFAULT_ANALYZER, analyzer_named
from tessera.policies import ChunkPolicy, load_policy
from tessera.releases import Contract, Release
from tessera.store.base import ShardStore

FIRST_GENERATION = "g1"
FIRST_RELEASE = "r1"
FIRST_POLICY = "paragraph"


def contract_of(policy: ChunkPolicy, analyzer: str = DEFAULT_ANALYZER) -> Contract:
    """The contract that a generation cut by this policy and analyzed so has in this build.

    :class:`~tessera.errors.SettingsError` where there is no analyzer of that name, PolicyError where a
    tokenizer's file cannot be read here.
    """
    policy.require_tokenizers()
    identity = analyzer_named(analyzer).identity
    return Contract(policy.id, orjson.loads(policy.canonical_json), analyzer=identity)


def first_registry() -> Registry:
    """Version 1. It holds no times: whoever makes it makes the same, and the control log fits on it."""
    first = Generation(FIRST_GENERATION, contract_of(load_policy(FIRST_POLICY)), "serving")
    return Registry(1, Release(FIRST_RELEASE, FIRST_GENERATION), generations={FIRST_GENERATION: first})


async def bootstrap(store: ShardStore, partitions: Mapping[str, int]) -> None:
    """Record partition counts and the first registry, where they are not there yet.

    Raises PartitionCountError where a topic is recorded with another count.
    """
    for topic, count in partitions.items():
        recorded = await store.record_topic(topic, count)
        if recorded != count:
            raise PartitionCountError(
                f"topic {topic} has {count} partitions, its index was made with {recorded}: keys would move "
                "and deletes would miss a copy; give back the old topic, or start a new namespace and rebuild"
            )
    version, _ = await store.control()
    if version == 0:
        first = first_registry()
        await store.put_control(0, first.to_json(), first.release.to_json())


async def read_registry(store: ShardStore) -> Registry:
    """The registry; SettingsError where nothing was set up yet."""
    version, encoded = await store.control()
    if encoded is None:
        raise SettingsError("no release is set: start `tessera worker` or `tessera up` on this server once")
    registry = Registry.from_json(encoded)
    if registry.version != version:
        raise CorruptionError(
            f"the registry of generations says version {registry.version} and is kept as {version}: "
            "restore Redis from a backup"
        )
    return registry
