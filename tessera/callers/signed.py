"""JSON Web Tokens of an identity provider, checked against its public keys in a JWKS file.

A caller's principals are ``user:<sub>``, and ``group:<name>`` for each name in the claim of groups. So a
group named ``user:ann`` is no user, and none is everyone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from tessera.callers.caller import Caller, Role, caller
from tessera.callers.watched import Watched
from tessera.errors import SettingsError

if TYPE_CHECKING:
    import jwt

LEEWAY_S: Final = 30
"""Clocks of two machines may differ by this much."""

MAX_SUBJECT: Final = 255
"""Characters of a name, as OpenID Connect has it: it stands in logs and in records of an operator's steps."""

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures by a private key alone: whoever can check one of the others can make it."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whose tokens are taken. ``monitors`` and ``operators`` are groups whose members have that role."""

    issuer: str
    audience: str
    groups_claim: str
    monitors: frozenset[str]
    operators: frozenset[str]


class SignedTokens:
    """Checks tokens by the keys of a file, which is read again when it was changed."""

    def __init__(self, jwks: Path, issuer: Issuer) -> None:
        self._library = _library()
        self._issuer = issuer
        self._keys = Watched(jwks, self._parse)

    def check(self) -> None:
        """Raise :class:`~tessera.errors.SettingsError` where the keys cannot be read."""
        self._keys.read()

    def identify(self, token: str) -> Caller | None:
        """The caller that the token names; None where it is not one of this issuer's, or no longer good.

        :class:`~tessera.errors.SettingsError` where the keys cannot be read.
        """
        keys = self._keys.read()
        try:
            header = self._library.get_unverified_header(token)
            key = keys.get(header.get("kid", ""))
            if key is None or header.get("alg") != key.algorithm_name:
                return None
            claims = self._library.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._issuer.audience,
                issuer=self._issuer.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except self._library.PyJWTError:
            return None
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller | None:
        subject, groups = claims["sub"], claims.get(self._issuer.groups_claim, [])
        if not subject or len(subject) > MAX_SUBJECT or not subject.isprintable():
            return None
        if not isinstance(groups, list) or not all(isinstance(each, str) and each for each in groups):
            return None
        principals = frozenset({f"user:{subject}", *(f"group:{each}" for each in groups)})
        role: Role = "reader"
        if self._issuer.operators & {*groups}:
            role = "operator"
        elif self._issuer.monitors & {*groups}:
            role = "monitor"
        return caller(subject, role, principals)

    def _parse(self, encoded: bytes, where: str) -> dict[str, jwt.PyJWK]:
        """The keys by their ids."""
        try:
            listed = orjson.loads(encoded)["keys"]
            keys = [self._library.PyJWK(each) for each in listed]
        except (
            self._library.PyJWTError,
            orjson.JSONDecodeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            raise SettingsError(f"{where}: is no JSON Web Key Set that can be used: {error}") from None
        found = {}
        for number, key in enumerate(keys):
            if key.algorithm_name not in ALGORITHMS:
                raise SettingsError(
                    f"{where}: keys.{number}: {key.algorithm_name} is not taken: give public keys of "
                    f"{', '.join(sorted(ALGORITHMS))}"
                )
            if not key.key_id or key.key_id in found:
                raise SettingsError(f"{where}: keys.{number}: needs a kid that is no other's")
            found[key.key_id] = key
        if not found:
            raise SettingsError(f"{where}: holds no key")
        return found


def _library() -> Any:
    try:
        import jwt
    except ImportError:
        raise SettingsError("jwks_file: needs PyJWT: pip install 'tessera-indexer[jwt]'") from None
    return jwt
