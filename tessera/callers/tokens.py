"""Bearer tokens in a file, which holds their hashes: whoever reads the file has none of them.

    {"tokens": [{"name": "search-ui", "sha256": "…", "role": "reader", "principals": ["group:legal"]}]}

A token is 256 random bits, so that a plain SHA-256 of it cannot be searched for; passwords would need more.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from tessera.callers.caller import Caller, Role, caller
from tessera.errors import SettingsError

PREFIX: Final = "tessera_"
"""Lets scanners of repositories and logs know a token that got there."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Token:
    """An entry of the file. ``expires_at`` is Unix time in seconds, None for never."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    name: str
    sha256: str
    role: Role = "reader"
    principals: tuple[str, ...] = ()
    expires_at: int | None = None

    def caller(self) -> Caller:
        """Whom it names."""
        return caller(self.name, self.role, frozenset(self.principals))


@dataclass(frozen=True, slots=True)
class TokensFile:
    """The file as it stands."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    tokens: tuple[Token, ...] = ()


Tokens = Mapping[str, Token]
"""Entries by the hash of their token."""


def digest(token: str) -> str:
    """The hash that the file holds of a token."""
    return sha256(token.encode()).hexdigest()


def parse_tokens(encoded: bytes, where: str) -> Tokens:
    """The entries of a file's bytes. :class:`~tessera.errors.SettingsError` names file, entry and field."""
    try:
        found = _adapter().validate_json(encoded)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise SettingsError(f"{where}: {place}: {first['msg']}") from None
    by_hash = {}
    names = set()
    for number, each in enumerate(found.tokens):
        at = f"{where}: tokens.{number}"
        if not _NAME.fullmatch(each.name) or each.name in names:
            rule = "must be 1 to 64 letters, digits, '.', '_', '@' or '-', and no other's"
            raise SettingsError(f"{at}.name: {each.name!r} {rule}")
        if not _HASH.fullmatch(each.sha256) or each.sha256 in by_hash:
            raise SettingsError(f"{at}.sha256: must be 64 hex digits, lower case, and no other's")
        if not all(map(str.strip, each.principals)):
            raise SettingsError(f"{at}.principals: a principal is not empty")
        names.add(each.name)
        by_hash[each.sha256] = each
    return by_hash


def add_token(
    path: Path, name: str, role: Role, principals: Iterable[str], expires_at: int | None = None
) -> str:
    """Add an entry to the file, which is made where it is not there, and return the token, kept nowhere.

    :class:`~tessera.errors.SettingsError` where the name is taken or something is not as it must be.
    """
    token = PREFIX + secrets.token_urlsafe(32)
    with _changing(path) as tokens:
        if any(each.name == name for each in tokens.values()):
            raise SettingsError(f"{path}: there is a token named {name!r}: revoke it, or choose another name")
        tokens[digest(token)] = Token(name, digest(token), role, tuple(sorted(set(principals))), expires_at)
    return token


def revoke_token(path: Path, name: str) -> None:
    """Take an entry out of the file. :class:`~tessera.errors.SettingsError` where there is none."""
    with _changing(path) as tokens:
        named = [key for key, each in tokens.items() if each.name == name]
        if not named:
            known = ", ".join(sorted(each.name for each in tokens.values())) or "none"
            raise SettingsError(f"{path}: there is no token named {name!r}; there are: {known}")
        del tokens[named[0]]


def read_tokens(path: Path) -> Tokens:
    """The entries of the file; none where it is not there."""
    try:
        return parse_tokens(path.read_bytes(), str(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, Token]]:
    """The entries to change; written at the end, all of them or none. One at a time changes them."""
    try:
        with path.with_name(f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = dict(read_tokens(path))
            yield tokens
            encoded = orjson.dumps(
                {"tokens": [asdict(each) for each in tokens.values()]}, option=orjson.OPT_INDENT_2
            )
            parse_tokens(encoded, str(path))
            _replace(path, encoded + b"\n")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written ({error.strerror})") from None


def _replace(path: Path, encoded: bytes) -> None:
    """A new file in its place, for its owner alone."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(encoded)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@cache
def _adapter() -> TypeAdapter[TokensFile]:
    return TypeAdapter(TokensFile)
