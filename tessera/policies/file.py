"""Policies by name, and policies from TOML files."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from tessera.errors import PolicyError
from tessera.policies.policy import ChunkPolicy, TextPolicy
from tessera.policies.tokenizer_files import TOKENIZERS

_WINDOW_200: Final = TextPolicy("window", size=200, overlap=20)
_SENTENCE: Final = TextPolicy("sentence", size=130, overlap=90)
"""Nearly every passage of up to ninety words is whole in some chunk, and a chunk is still short enough for
its words to say what it is about (`bench/chunking_evaluation`)."""


_MARKDOWN: Final = TextPolicy("markdown", size=400, parent_context="headings")

BUILT_IN: Final = {
    "paragraph": ChunkPolicy("paragraph"),
    "window-200": ChunkPolicy("window-200", documents=_WINDOW_200, run_logs=_WINDOW_200),
    "sentence": ChunkPolicy("sentence", documents=_SENTENCE),
    "markdown": ChunkPolicy("markdown", documents=_MARKDOWN),
}
"""The policies that can be named instead of a file."""

_KEYS: Final = tuple(key.name for key in fields(TextPolicy))
_DEFAULTS: Final = {
    table.name: getattr(BUILT_IN["paragraph"], table.name)
    for table in fields(ChunkPolicy)
    if table.name != "name"
}


def load_policy(source: str | Path) -> ChunkPolicy:
    """Return the policy with this built-in name, or from this TOML file.

    PolicyError where there is neither, or where the file is not a policy: it names file, table and key, and
    what is allowed there.
    """
    if isinstance(source, str) and source in BUILT_IN:
        return BUILT_IN[source]
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise PolicyError(
            f"policy {str(source)!r} is neither built in ({', '.join(BUILT_IN)}) nor a file"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read as TOML: {error}") from error
    return parse_policy(text, str(path), path.parent)


def parse_policy(text: str, where: str, folder: Path | None = None) -> ChunkPolicy:
    """Return the policy in the text of a TOML file; ``where`` begins the message of a PolicyError.

    The paths of tokenizers count from ``folder``; None where the text may name none.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{where}: cannot be read as TOML: {error}") from error
    return _policy(values, where, folder)


def _policy(values: dict[str, Any], where: str, folder: Path | None) -> ChunkPolicy:
    _only(values, ("name", *_DEFAULTS), where)
    if "name" not in values:
        raise PolicyError(f"{where}: name is missing; give the policy one")
    tables = {
        table: _rule(values[table], default, f"{where}: [{table}]", folder)
        for table, default in _DEFAULTS.items()
        if table in values
    }
    try:
        return ChunkPolicy(values["name"], **tables)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None


def _rule(values: object, default: TextPolicy, where: str, folder: Path | None) -> TextPolicy:
    if not isinstance(values, dict):
        raise PolicyError(f"{where} is {values!r}; it must be a table with keys out of {', '.join(_KEYS)}")
    _only(values, _KEYS, where)
    try:
        tokenizer = values.get("tokenizer")
        if isinstance(tokenizer, str) and tokenizer.endswith(".json"):
            values = {**values, "tokenizer": _tokenizer(tokenizer, folder)}
        return replace(default, **values)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None


def _tokenizer(path: str, folder: Path | None) -> str:
    """The identity of a tokenizer's file."""
    if folder is None:
        raise PolicyError(
            f"tokenizer is {path!r}; no file of yours can be read here: put it into tokenizers_dir, and give "
            "tokenizers@sha256:<64 hex digits>"
        )
    return TOKENIZERS.add(folder / path)


def _only(values: dict[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in allowed:
            raise PolicyError(f"{where}: unknown key {key!r}; allowed are {', '.join(allowed)}")
