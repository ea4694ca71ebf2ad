"""The address file: where a running ``tessera up`` can be found, kept in its data folder.

It lets every other command of the same folder find the servers without being told.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from tessera.errors import SettingsError
from tessera.events.catalog import SourceDeclaration

ADDRESS_FILE = "address.json"
ADDRESS_VERSION = 1


@dataclass(frozen=True, slots=True)
class Address:
    """Where the servers of one ``tessera up`` listen, and the sources it declared.

    ``kept`` maps the sources that it keeps in step with a folder to that folder's path.
    """

    pid: int
    broker: str
    redis: str
    http: str
    sources: Mapping[str, SourceDeclaration] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)


def write_address(data_dir: Path, address: Address) -> None:
    """Write the address file whole or not at all; only its owner may read it, for URLs can hold passwords."""
    temporary = data_dir / f"{ADDRESS_FILE}.{os.getpid()}"
    encoded = orjson.dumps({"version": ADDRESS_VERSION, **asdict(address)}, option=orjson.OPT_INDENT_2)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(encoded)
    temporary.replace(data_dir / ADDRESS_FILE)


def remove_address(data_dir: Path) -> None:
    """Remove the address file, if there is one."""
    (data_dir / ADDRESS_FILE).unlink(missing_ok=True)


def read_address(data_dir: Path) -> Address | None:
    """The address of the ``tessera up`` that runs in this folder; None where none does.

    A file that a killed process left is ignored. Raises :class:`~tessera.errors.SettingsError` where the
    file is not one this version wrote.
    """
    path = data_dir / ADDRESS_FILE
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, orjson.JSONDecodeError) as error:
        raise SettingsError(
            f"{path}: cannot be read ({error}): stop `tessera up` and remove the file"
        ) from None
    if not isinstance(document, dict) or document.pop("version", None) != ADDRESS_VERSION:
        raise SettingsError(f"{path}: written by another version: stop that `tessera up` and remove the file")
    sources = {
        name: SourceDeclaration(**{**source, "access": tuple(source["access"])})
        for name, source in document.pop("sources").items()
    }
    address = Address(**document, sources=sources)
    return address if _runs(address.pid) else None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
