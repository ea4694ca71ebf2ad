"""Policies as contracts keep them: from an identity and its canonical values back to rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.errors import PolicyError
from tessera.policies.policy import REVISIONS, WITH_CONTEXT, ChunkPolicy, TextPolicy


def policy_from_canonical(policy_id: str, canonical: Mapping[str, Any]) -> ChunkPolicy:
    """The policy whose identity and canonical values these are.

    PolicyError where this build would not give it the same identity: it must not cut under that name; and
    where it names a tokenizer whose file is not here.
    """
    names = {revision: name for name, revision in (*REVISIONS.items(), *WITH_CONTEXT.items())}
    try:
        tables = {table: _rule(values, names) for table, values in canonical.items()}
        policy = ChunkPolicy(policy_id.rpartition("@")[0], **tables)
    except (KeyError, TypeError) as error:
        raise _unknown(policy_id, str(error)) from error
    if policy.id != policy_id:
        raise _unknown(policy_id, f"it would be {policy.id} here")
    return policy.require_tokenizers()


def _rule(values: Mapping[str, Any], names: Mapping[str, str]) -> TextPolicy:
    parser, context = names[values["parser"]], names[values["parent_context"]]
    return TextPolicy(**{**values, "parser": parser, "parent_context": context})


def _unknown(policy_id: str, reason: str) -> PolicyError:
    return PolicyError(
        f"this build cannot cut by policy {policy_id!r} ({reason}): use the build that made the generation, "
        "or create a new generation"
    )
