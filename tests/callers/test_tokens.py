from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from tessera.callers.directory import Directory
from tessera.callers.tokens import PREFIX, Token, add_token, parse_tokens, read_tokens, revoke_token
from tessera.cli import main as entry
from tessera.errors import SettingsError
from tessera.settings import Settings

HASH = "0" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def directory(file: Path, now: float = 1_000.0) -> Directory:
    return Directory(Settings(tokens_file=file), clock=lambda: now)


def test_a_token_names_its_holder_until_it_is_revoked(file: Path) -> None:
    token = add_token(file, "ui", "reader", ["group:b", "group:a"])
    other = add_token(file, "ann", "operator", ["group:a"])
    known = directory(file)
    found = known.identify(token)
    assert found is not None
    assert (found.name, found.role, found.principals) == ("ui", "reader", {"*", "group:a", "group:b"})
    operator = known.identify(other)
    assert operator is not None
    assert (operator.role, operator.principals) == ("operator", None)
    revoke_token(file, "ui")
    assert known.identify(token) is None
    assert known.identify(other) == operator


def test_the_file_holds_no_token_and_is_its_owners_alone(file: Path) -> None:
    token = add_token(file, "ui", "reader", [])
    assert token.startswith(PREFIX)
    assert len(token) > 40
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_is_good_until_it_expires(file: Path) -> None:
    token = add_token(file, "ui", "reader", [], expires_at=1_000)
    assert directory(file, 999.9).identify(token) is not None
    assert directory(file, 1_000.0).identify(token) is None


def test_the_hash_is_no_token(file: Path) -> None:
    add_token(file, "ui", "operator", [])
    [held] = read_tokens(file)
    assert directory(file).identify(held) is None


def test_tokens_added_at_once_are_all_there(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: add_token(file, f"n{number}", "reader", []), range(24)))
    known = directory(file)
    found = [known.identify(token) for token in made]
    assert [each and each.name for each in found] == [f"n{number}" for number in range(24)]
    assert {path.name for path in file.parent.iterdir()} == {"tokens.json", "tokens.json.lock"}


def test_a_name_is_given_once_and_an_unknown_one_cannot_be_revoked(file: Path) -> None:
    add_token(file, "ui", "reader", [])
    before = file.read_bytes()
    with pytest.raises(SettingsError, match="there is a token named 'ui'"):
        add_token(file, "ui", "operator", [])
    with pytest.raises(SettingsError, match="no token named 'other'; there are: ui"):
        revoke_token(file, "other")
    with pytest.raises(SettingsError, match="must be 1 to 64 letters"):
        add_token(file, "new\nline", "reader", [])
    with pytest.raises(SettingsError, match="a principal is not empty"):
        add_token(file, "new", "reader", [" "])
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"tokens": [{"name": "a"}]}, "tokens.0.sha256: "),
        ({"tokens": [{"name": "a", "sha256": "x"}]}, "tokens.0.sha256: must be 64 hex digits"),
        ({"tokens": [{"name": "a", "sha256": HASH, "role": "root"}]}, "tokens.0.role: Input should be"),
        ({"tokens": [{"name": "a", "sha256": HASH, "principal": []}]}, "tokens.0.principal: "),
        ({"tokens": [{"name": "a", "sha256": HASH}, {"name": "b", "sha256": HASH}]}, "tokens.1.sha256"),
        ({"tokens": [{"name": "a", "sha256": HASH}, {"name": "a", "sha256": "1" * 64}]}, "tokens.1.name"),
        ({"token": []}, "f.json: token: "),
        ([], "f.json: the file: "),
    ],
)
def test_a_file_that_is_not_as_it_must_be_is_refused_by_its_place(value: object, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_tokens(orjson.dumps(value), "f.json")
    assert message in str(caught.value)


def test_a_file_that_is_not_there_lets_nobody_in(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"tokens\.json: cannot be read"):
        directory(file).check()
    with pytest.raises(SettingsError, match=r"tokens\.json: cannot be read"):
        directory(file).identify("t" * 20)


def test_the_commands_make_list_and_revoke_tokens(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_TOKENS_FILE", str(file))
    assert entry.run(["token", "add", "ui", "--principal", "group:a", "--expires", "90d"]) == 0
    token = capsys.readouterr().out.strip()
    assert Directory(Settings(tokens_file=file)).identify(token) is not None
    assert entry.run(["token", "add", "ann", "--role", "operator", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["token"].startswith(PREFIX)
    assert entry.run(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert "ann  operator  everything\n" in listed
    assert "ui  reader  *, group:a  until 20" in listed
    assert token not in listed
    assert entry.run(["token", "revoke", "ui"]) == 0
    assert [each.name for each in read_tokens(file).values()] == ["ann"]
    assert entry.run(["token", "revoke", "ui"]) == 2
    monkeypatch.delenv("TESSERA_TOKENS_FILE")
    assert entry.run(["token", "list"]) == 2
    assert "give --file, or TESSERA_TOKENS_FILE" in capsys.readouterr().err


def test_an_entry_says_whom_it_names() -> None:
    assert Token("m", HASH, "monitor").caller().principals == {"*"}
