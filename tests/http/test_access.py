from __future__ import annotations

import pytest

from tessera.errors import SettingsError
from tessera.http.access import OPERATOR, Caller, check_exposure, identify, is_loopback, narrowed
from tessera.http.failures import RefusedError
from tessera.settings import Settings

READ, OPERATE = "r" * 16, "o" * 16


def settings(**values: object) -> Settings:
    return Settings(broker="b:1", redis="redis://r/0", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_addresses_need_no_token(host: str) -> None:
    assert is_loopback(host)
    check_exposure(settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "localhost.example.org"])  # noqa: S104
def test_other_addresses_are_refused_without_a_token(host: str) -> None:
    with pytest.raises(SettingsError, match="TESSERA_OPERATOR_TOKEN"):
        check_exposure(settings(host=host))
    check_exposure(settings(host=host, read_token=READ))


def test_without_tokens_the_caller_is_the_operator() -> None:
    assert identify(settings(), None) is OPERATOR


def test_each_token_names_its_caller() -> None:
    configured = settings(read_token=READ, operator_token=OPERATE, read_principals=("group:a",))
    assert identify(configured, f"Bearer {OPERATE}") is OPERATOR
    assert identify(configured, f"bearer {READ}") == Caller(frozenset({"*", "group:a"}))


@pytest.mark.parametrize(
    "header", [None, "", READ, f"Basic {READ}", "Bearer ", f"Bearer {READ}x", "Bearer ü" * 9]
)
def test_anything_else_is_unauthorized(header: str | None) -> None:
    for configured in (settings(read_token=READ, operator_token=OPERATE), settings(operator_token=OPERATE)):
        with pytest.raises(RefusedError) as caught:
            identify(configured, header)
        assert caught.value.status == 401


def test_a_caller_can_narrow_but_never_widen_what_it_sees() -> None:
    reader = Caller(frozenset({"*", "group:a", "group:b"}))
    assert narrowed(reader, []) == reader.principals
    assert narrowed(reader, ["group:a"]) == {"*", "group:a"}
    assert narrowed(OPERATOR, ["group:z"]) == {"*", "group:z"}
    with pytest.raises(RefusedError) as caught:
        narrowed(reader, ["group:a", "group:z"])
    assert caught.value.status == 403


@pytest.mark.parametrize("asked", [[""], [" "], ["group:a", ""]])
def test_an_empty_principal_is_refused_not_taken_for_none(asked: list[str]) -> None:
    with pytest.raises(RefusedError) as caught:
        narrowed(OPERATOR, asked)
    assert caught.value.status == 422
