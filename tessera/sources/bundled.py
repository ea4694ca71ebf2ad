"""The corpora that come with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from tessera.events.change import SourceKind

BUNDLED: Final[dict[str, SourceKind]] = {"handbook": "documents", "devex": "devex", "github": "github"}
"""Bundled sources by name; the folder of each is named after its kind."""


def bundled_folder(name: str) -> Path:
    """The folder of the bundled source of this name; KeyError where there is none."""
    return Path(str(files("tessera.sources"))) / "corpora" / BUNDLED[name]
