from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.addresses import Address, read_address, remove_address, write_address
from tessera.errors import SettingsError
from tessera.events.catalog import SourceDeclaration
from tessera.settings import Settings, load_settings, redacted


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TESSERA_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str, name: str = "tessera.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def running_up(**changed: object) -> Address:
    values = {"pid": os.getpid(), "broker": "up:1", "redis": "redis://up:2/0", "http": "http://up:3"}
    return Address(**{**values, **changed})  # type: ignore[arg-type]


def test_flags_win_over_environment_over_file_over_address_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".tessera").mkdir()
    write_address(Path(".tessera"), running_up())
    assert (load_settings().broker, load_settings().redis) == ("up:1", "redis://up:2/0")
    written('redis = "redis://file:1/0"')
    assert load_settings().redis == "redis://file:1/0"
    monkeypatch.setenv("TESSERA_REDIS", "redis://environment:1/0")
    assert load_settings().redis == "redis://environment:1/0"
    assert load_settings({"redis": "redis://flag:1/0", "broker": None}).redis == "redis://flag:1/0"
    assert load_settings().broker == "up:1"


def test_an_empty_variable_is_as_if_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_PORT", "")
    assert load_settings(require=()).port == 8765


def test_a_server_that_nothing_names_is_an_error_that_says_how_to_name_it() -> None:
    with pytest.raises(SettingsError, match=r"no Redis is named.*tessera up.*--redis.*TESSERA_REDIS"):
        load_settings(require=("redis",))


def test_the_settings_file_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    path = written("port = 1111", "other.toml")
    assert load_settings(config=path, require=()).port == 1111
    monkeypatch.setenv("TESSERA_CONFIG", str(path))
    assert load_settings(require=()).port == 1111
    with pytest.raises(SettingsError, match=r"missing\.toml: cannot be read"):
        load_settings(config=Path("missing.toml"), require=())


def test_sources_are_declared_in_tables() -> None:
    written(
        '[sources.handbook]\nkind = "documents"\nrevision_from = "event"\naccess = ["group:b", "group:a"]\n'
        "[sources.github]\n"
    )
    catalog = load_settings(require=()).catalog
    assert catalog["handbook"] == SourceDeclaration("handbook", "documents", "event", ("group:a", "group:b"))
    assert catalog["github"].kind == "github"
    assert catalog["undeclared"] == SourceDeclaration("undeclared")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "tessera.toml: key 'prot' at the top level: unknown key"),
        ("port = 70000", "tessera.toml: key 'port' at the top level: Input should be less than"),
        ("port = [", "tessera.toml: not valid TOML"),
        ("sources = 1", "tessera.toml: 'sources' must hold tables"),
        ("[sources.a]\nknd = 1", "tessera.toml: [sources.a]: unknown key 'knd'"),
        (
            '[sources.a]\nkind = "wiki"',
            "tessera.toml: [sources.a]: key 'kind' must be one of documents, devex",
        ),
        ("[sources.a]\nkind = []", "tessera.toml: [sources.a]: key 'kind' must be one of documents, devex"),
        ('[sources.a]\naccess = "*"', "tessera.toml: [sources.a]: key 'access' must be a list"),
        ('[sources."a/b"]', "tessera.toml: [sources.a/b]: a source's name is not empty and has no '/'"),
        ('[sources.devex]\nrevision_from = "event"', 'always "log"'),
        ('operator_token = "short"', "a token has at least 16 characters"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(text: str, words: str) -> None:
    written(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(require=())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_in_a_variable_or_flag_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"^--metrics-port: "):
        load_settings({"metrics_port": -1}, require=())
    monkeypatch.setenv("TESSERA_PARTITIONS", "0")
    with pytest.raises(SettingsError, match=r"^TESSERA_PARTITIONS: "):
        load_settings(require=())


def test_everyone_is_always_among_the_read_tokens_principals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_READ_PRINCIPALS", "group:b, group:a")
    assert load_settings(require=()).read_principals == ("*", "group:a", "group:b")


def test_settings_survive_the_way_through_a_childs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_settings(
        {"broker": "b:1", "redis": "redis://:pw@r:1/0", "read_principals": "x,y", "read_token": "t" * 16}
    )
    for name, value in first.environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings().model_dump() == first.model_dump()


def test_no_secret_is_shown() -> None:
    settings = load_settings(
        {"broker": "b:1", "redis": "redis://:hunter2@r/0", "operator_token": "hunter2hunter2hunter2"}
    )
    assert "hunter2" not in repr(settings) + str(settings)


@given(
    user=st.text("abc", max_size=3),
    password=st.text("hunter2@:#", min_size=4).filter(lambda text: "#" not in text and "h" in text),
    scheme=st.sampled_from(["redis", "rediss"]),
)
def test_redacted_urls_hold_no_password(user: str, password: str, scheme: str) -> None:
    shown = redacted(f"{scheme}://{user}:{password}@host:6379/0?password={password.replace('&', '')}")
    assert password not in shown.replace("host:6379", "")
    assert "host:6379/0" in shown


def test_urls_without_a_password_are_shown_as_they_are() -> None:
    for url in ("localhost:9092,other:9092", "redis://host:1/0", "unix:///run/redis.sock?db=1"):
        assert redacted(url) == url


def test_a_killed_up_leaves_no_address_behind(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    write_address(tmp_path, running_up(pid=int(child.stdout)))
    assert read_address(tmp_path) is None
    write_address(tmp_path, running_up())
    assert read_address(tmp_path) == running_up()
    assert (tmp_path / "address.json").stat().st_mode & 0o077 == 0
    remove_address(tmp_path)
    assert read_address(tmp_path) is None


def test_an_address_file_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "address.json").write_text('{"version": 99}')
    with pytest.raises(SettingsError, match=r"address\.json: written by another version"):
        read_address(tmp_path)


def test_sources_of_a_running_up_are_known_unless_another_index_is_named() -> None:
    Path(".tessera").mkdir()
    notes = SourceDeclaration("notes", "devex", "log", ("*",))
    write_address(Path(".tessera"), running_up(sources={"notes": notes}))
    assert load_settings().catalog["notes"] == notes
    assert load_settings({"redis": "redis://other/0"}).catalog["notes"] == SourceDeclaration("notes")
    written('[sources.notes]\nkind = "github"')
    assert load_settings().catalog["notes"].kind == "github"


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())
