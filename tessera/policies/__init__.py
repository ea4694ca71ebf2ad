"""How text becomes chunks, per media type: policies, their identity and their files."""

from __future__ import annotations

from tessera.policies.file import BUILT_IN, load_policy, parse_policy
from tessera.policies.policy import ChunkPolicy, Cut, TextPolicy
from tessera.policies.tokenizer_files import TOKENIZERS
from tessera.policies.windows import token_windows

__all__ = [
    "BUILT_IN",
    "TOKENIZERS",
    "ChunkPolicy",
    "Cut",
    "TextPolicy",
    "load_policy",
    "parse_policy",
    "token_windows",
]
