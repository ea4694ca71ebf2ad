"""Tokens of an identity provider: what is good, and every way in which one is not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tessera.callers.caller import Caller
from tessera.callers.directory import Directory
from tessera.errors import SettingsError
from tessera.settings import Settings

ISSUER, AUDIENCE = "https://id.example.org", "tessera"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ELLIPTIC = ec.generate_private_key(ec.SECP256R1())
EDWARDS = ed25519.Ed25519PrivateKey.generate()


def public(algorithm: Any, key: Any, kid: str, alg: str) -> dict[str, Any]:
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "alg": alg}


KEYS = [
    public(RSAAlgorithm, RSA, "r", "RS256"),
    public(ECAlgorithm, ELLIPTIC, "e", "ES256"),
    public(OKPAlgorithm, EDWARDS, "d", "EdDSA"),
]


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(orjson.dumps({"keys": KEYS}))
    return path


def directory(jwks: Path) -> Directory:
    return Directory(
        Settings(
            jwks_file=jwks,
            jwt_issuer=ISSUER,
            jwt_audience=AUDIENCE,
            jwt_operator_groups="ops, more",  # type: ignore[arg-type]
            jwt_monitor_groups=("oncall",),
        )
    )


def signed(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "r", **changed: Any) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 60, "groups": ["legal"]}
    claims = {name: value for name, value in (claims | changed).items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid is not None else {})


def identified(jwks: Path, token: str) -> Caller | None:
    return directory(jwks).identify(token)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(RSA, "RS256", "r"), (ELLIPTIC, "ES256", "e"), (EDWARDS, "EdDSA", "d")]
)
def test_a_signed_token_names_its_user_and_groups(jwks: Path, key: Any, algorithm: str, kid: str) -> None:
    found = identified(jwks, signed(key, algorithm, kid))
    assert found is not None
    assert (found.name, found.role) == ("ann", "reader")
    assert found.principals == {"*", "user:ann", "group:legal"}


def test_groups_give_roles(jwks: Path) -> None:
    roles = {
        group: getattr(identified(jwks, signed(groups=["legal", group])), "role", None)
        for group in ("ops", "more", "oncall", "ops2")
    }
    assert roles == {"ops": "operator", "more": "operator", "oncall": "monitor", "ops2": "reader"}


def test_no_group_is_a_user_or_everyone(jwks: Path) -> None:
    found = identified(jwks, signed(groups=["user:boss", "*"], sub="*"))
    assert found is not None
    assert found.principals == {"*", "user:*", "group:user:boss", "group:*"}


BAD = {
    "expired": lambda: signed(exp=time.time() - 60),
    "without an end": lambda: signed(exp=None),
    "not good yet": lambda: signed(nbf=time.time() + 60),
    "of another issuer": lambda: signed(iss="https://evil.example.org"),
    "without an issuer": lambda: signed(iss=None),
    "for another service": lambda: signed(aud="mail"),
    "for nobody": lambda: signed(aud=None),
    "without a subject": lambda: signed(sub=None),
    "with a blank subject": lambda: signed(sub=""),
    "with a line in its subject": lambda: signed(sub="ann\nrole=operator"),
    "with a subject without end": lambda: signed(sub="a" * 256),
    "by another key": lambda: signed(OTHER),
    "by a key that is not known": lambda: signed(kid="x"),
    "by no named key": lambda: signed(kid=None),
    "by an algorithm that is not the key's": lambda: signed(algorithm="RS512"),
    "with groups that are no list": lambda: signed(groups="ops"),
    "with a group that is no name": lambda: signed(groups=[1]),
    "unsigned": lambda: jwt.encode({"sub": "ann", "iss": ISSUER, "aud": AUDIENCE}, None, "none"),
    "signed by what everybody knows as a secret": lambda: signed(KEYS[0]["n"], "HS256"),
    "changed": lambda: signed()[:-8] + "AAAAAAAA",
    "no token": lambda: "a.b.c",
    "empty": lambda: "..",
}


@pytest.mark.parametrize("name", BAD)
def test_a_token_that_is_not_good_names_nobody(jwks: Path, name: str) -> None:
    assert identified(jwks, signed()) is not None
    assert identified(jwks, BAD[name]()) is None


def test_a_key_that_was_taken_out_is_good_no_more_and_a_new_one_is(jwks: Path) -> None:
    known = directory(jwks)
    old, new = signed(), signed(ELLIPTIC, "ES256", "e2")
    assert known.identify(old) is not None
    assert known.identify(new) is None
    jwks.write_bytes(orjson.dumps({"keys": [public(ECAlgorithm, ELLIPTIC, "e2", "ES256")]}))
    assert known.identify(old) is None
    assert known.identify(new) is not None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"keys": []}, "holds no key"),
        ({}, "is no JSON Web Key Set"),
        ([], "is no JSON Web Key Set"),
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldA", "kid": "o", "alg": "HS256"}]}, "HS256 is not"),
        ({"keys": [{**KEYS[0], "kid": ""}]}, "needs a kid"),
        ({"keys": [KEYS[0], KEYS[0]]}, "needs a kid that is no other's"),
        ({"keys": [{"kty": "RSA", "kid": "r"}]}, "is no JSON Web Key Set"),
    ],
)
def test_keys_that_are_not_as_they_must_be_are_refused(jwks: Path, value: object, message: str) -> None:
    jwks.write_bytes(orjson.dumps(value))
    with pytest.raises(SettingsError, match=message):
        directory(jwks).check()


def test_keys_need_an_issuer_and_an_audience(jwks: Path) -> None:
    for given in ({"jwt_issuer": ISSUER}, {"jwt_audience": AUDIENCE}, {}):
        with pytest.raises(ValueError, match="needs jwt_issuer and jwt_audience"):
            Settings(jwks_file=jwks, **given)  # type: ignore[arg-type]
