from __future__ import annotations

from pathlib import Path

import pytest

from tessera.callers.caller import OPERATOR, Caller
from tessera.callers.directory import Directory
from tessera.callers.tokens import add_token
from tessera.errors import SettingsError
from tessera.http.access import check_exposure, identify, is_loopback, narrowed
from tessera.http.failures import RefusedError
from tessera.settings import Settings

READ, WATCH, OPERATE = "r" * 16, "m" * 16, "o" * 16


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


def identified(configured: Settings, header: str | None) -> Caller:
    return identify(Directory(configured), header)


def test_without_tokens_the_caller_is_the_operator() -> None:
    assert identified(settings(), None) is OPERATOR


def test_each_token_of_the_settings_names_its_caller() -> None:
    configured = settings(
        read_token=READ, monitor_token=WATCH, operator_token=OPERATE, read_principals=("group:a",)
    )
    assert identified(configured, f"Bearer {OPERATE}") is OPERATOR
    reader = identified(configured, f"bearer {READ}")
    assert (reader.role, reader.principals) == ("reader", {"*", "group:a"})
    watcher = identified(configured, f"Bearer {WATCH}")
    assert (watcher.role, watcher.principals) == ("monitor", frozenset())


@pytest.mark.parametrize(
    "header", [None, "", READ, f"Basic {READ}", "Bearer ", f"Bearer {READ}x", "Bearer ü" * 9, "Bearer a.b.c"]
)
def test_anything_else_is_unauthorized(header: str | None, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    add_token(tokens, "ann", "operator", ())
    for configured in (
        settings(read_token=READ, operator_token=OPERATE),
        settings(operator_token=OPERATE),
        settings(tokens_file=tokens),
    ):
        with pytest.raises(RefusedError) as caught:
            identified(configured, header)
        assert caught.value.status == 401


def test_what_cannot_be_checked_is_refused_without_saying_where_the_file_is(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token = add_token(tokens, "ann", "reader", ())
    directory = Directory(settings(tokens_file=tokens, operator_token=OPERATE))
    assert identify(directory, f"Bearer {token}").name == "ann"
    tokens.write_text("{")
    with pytest.raises(RefusedError) as caught:
        identify(directory, f"Bearer {token}")
    assert (caught.value.status, "tokens.json" in str(caught.value)) == (503, False)
    assert identify(directory, f"Bearer {OPERATE}") is OPERATOR


def test_a_caller_can_narrow_but_never_widen_what_it_sees() -> None:
    reader = Caller("r", "reader", frozenset({"*", "group:a", "group:b"}))
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
