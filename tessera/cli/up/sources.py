"""The folders that ``tessera up`` publishes: the bundled corpora and the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from tessera.cli.feeds import check_folder
from tessera.errors import SettingsError
from tessera.events.catalog import LOG_KINDS, SourceDeclaration
from tessera.events.change import SourceKind
from tessera.sources.bundled import BUNDLED, bundled_folder

EVERYONE = ("*",)


class Folder(NamedTuple):
    """One watched folder and the declaration of its source."""

    path: Path
    declaration: SourceDeclaration


def bundled_folders() -> list[Folder]:
    """The corpora that come with the package."""
    return [Folder(bundled_folder(name), _declared(name, kind)) for name, kind in BUNDLED.items()]


def user_folders(given: Sequence[str]) -> list[Folder]:
    """The folders given as ``NAME=PATH[,KIND]``. Raises :class:`SettingsError` or SourceError."""
    folders = [_parsed(each) for each in given]
    names = [folder.declaration.name for folder in folders]
    for name in names:
        if names.count(name) > 1 or name in BUNDLED:
            raise SettingsError(f"--source: the name {name!r} is taken: give each folder a name of its own")
    return folders


def _parsed(given: str) -> Folder:
    name, separator, rest = given.partition("=")
    path, _, kind = rest.rpartition(",")
    if not path or kind not in get_args(SourceKind):
        path, kind = rest, "documents"
    if not separator or not name or "/" in name or not path:
        raise SettingsError(
            f"--source: {given!r} is not NAME=PATH[,KIND], such as notes=~/notes or ci=logs,github"
        )
    folder = Path(path).expanduser()
    before, comma, wrong = path.rpartition(",")
    if comma and not folder.is_dir() and Path(before).expanduser().is_dir():
        raise SettingsError(
            f"--source: {given!r} asks for kind {wrong!r}; the kinds are {', '.join(get_args(SourceKind))}"
        )
    return Folder(check_folder(folder), _declared(name, kind))


def _declared(name: str, kind: str) -> SourceDeclaration:
    found: SourceKind = next(each for each in get_args(SourceKind) if each == kind)
    return SourceDeclaration(name, found, "log" if found in LOG_KINDS else "event", EVERYONE)
