"""The generations a writer must write, as the registry describes them."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.errors import CorruptionError
from tessera.generations.bootstrap import read_registry
from tessera.index.analyzer import require_analyzer
from tessera.policies.stored import policy_from_canonical
from tessera.shards.building import LiveGeneration
from tessera.store.base import ShardStore


async def load_generations(store: ShardStore, names: Sequence[str]) -> list[LiveGeneration]:
    """Policies and analyzers of these generations; raises where this build cannot write one of them."""
    known = (await read_registry(store)).generations
    generations = []
    for name in names:
        if name not in known:
            raise CorruptionError(
                f"generation {name!r} is live in a shard but not in the registry: restore it"
            )
        contract = known[name].contract
        policy = policy_from_canonical(contract.policy_id, contract.policy_canonical)
        generations.append(LiveGeneration(name, policy, require_analyzer(contract.analyzer, name)))
    return generations
