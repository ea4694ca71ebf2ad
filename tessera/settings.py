"""What an installation is told: flags, environment, a settings file, and a running ``tessera up``.

Every setting has one name. It can be given as a flag (``--redis``), in the environment (``TESSERA_REDIS``)
or as a top-level key of the settings file (``redis = "…"`` in ``tessera.toml``), looked up in this order;
``broker`` and ``redis`` are then looked up in the address file of a running ``tessera up``.
Sources are declared in the settings file, one table each: ``[sources.NAME]``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from tessera.addresses import read_address
from tessera.errors import SettingsError
from tessera.events.catalog import LOG_KINDS, RevisionFrom, SourceCatalog, SourceDeclaration
from tessera.events.change import SourceKind

ENVIRONMENT_PREFIX = "TESSERA_"
SETTINGS_FILE = "tessera.toml"
CONFIG_VARIABLE = "TESSERA_CONFIG"
DEFAULT_DATA_DIR = Path(".tessera")

Server = Literal["broker", "redis"]
BOTH: tuple[Server, ...] = ("broker", "redis")


def _separated(given: object) -> object:
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",") if name.strip()]
    return tuple(given) if isinstance(given, (list, set, frozenset)) else given


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_separated)]


class Settings(BaseSettings):
    """All settings of one process. Made by :func:`load_settings`; ``catalog`` holds the declared sources."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True
    )

    broker: str = Field("", repr=False, description="Kafka bootstrap servers, host:port[,host:port]…")
    kafka_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how brokers are spoken to"
    )
    kafka_ca_file: Path | None = Field(
        None, description="certificates of authorities that brokers' are checked by; unset: the system's"
    )
    kafka_cert_file: Path | None = Field(None, description="certificate that clients show, PEM")
    kafka_key_file: Path | None = Field(None, description="its key, where it is not in the same file")
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="how clients log in with SASL"
    )
    kafka_username: str = Field("", description="name that clients log in with")
    kafka_password: SecretStr | None = Field(None, description="its password")
    redis: str = Field("", repr=False, description="URL of a Redis-compatible server, 6.2 or newer")
    namespace: str = Field(
        "tessera", pattern=r"^[A-Za-z0-9._-]{1,64}$", description="prefix of all Redis keys"
    )
    data_dir: Path = Field(DEFAULT_DATA_DIR, description="folder of `tessera up`: address file, logs, lock")
    tokenizers_dir: Path | None = Field(
        None, description="folder of the tokenizers that policies name; unset: `tokenizers` in data_dir"
    )
    partitions: int = Field(
        4, ge=1, le=1024, description="partitions of each change topic when it is created"
    )
    replication_factor: int = Field(
        1, ge=1, le=99, description="copies of each topic that is created, on as many brokers"
    )
    host: str = Field(
        "127.0.0.1", min_length=1, description="address the HTTP service, and a worker's /metrics, bind to"
    )
    port: int = Field(8765, ge=0, le=65535, description="port of the HTTP service; 0 takes a free one")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="port of the worker's /metrics; unset: none"
    )
    read_token: SecretStr | None = Field(None, description="bearer token that may search and read")
    monitor_token: SecretStr | None = Field(
        None, description="bearer token that may see metrics, status and generations, and no document"
    )
    operator_token: SecretStr | None = Field(None, description="bearer token that may do everything")
    read_principals: Names = Field(
        ("*",), description='principals of the read token, separated by commas; "*" is always among them'
    )
    tokens_file: Path | None = Field(
        None, description="file of further tokens, kept as hashes (`tessera token add`)"
    )
    jwt_issuer: str = Field("", description="`iss` of an identity provider's tokens")
    jwt_audience: str = Field("", description="`aud` of its tokens that are meant for this service")
    jwks_file: Path | None = Field(
        None, description="its public keys, a JSON Web Key Set; with it its tokens are taken"
    )
    jwt_groups_claim: str = Field("groups", min_length=1, description="claim that lists a caller's groups")
    jwt_monitor_groups: Names = Field((), description="groups that are monitors, separated by commas")
    jwt_operator_groups: Names = Field((), description="groups that are operators, separated by commas")
    embedded: bool = Field(False, description="the servers are embedded: short consumer group timeouts")
    max_document_bytes: int = Field(32 * 2**20, ge=1024, description="largest document, in bytes of UTF-8")
    tombstone_horizon_s: int = Field(
        7 * 24 * 3600, ge=60, description="seconds for which a deleted document's revision is remembered"
    )
    max_building: int = Field(1, ge=1, le=16, description="generations that may be building at once")
    retention_s: int = Field(
        24 * 3600, ge=0, description="seconds for which a generation is kept for a rollback after its cutover"
    )
    evidence_ttl_s: int = Field(
        24 * 3600, ge=1, description="seconds for which a passed comparison allows a cutover"
    )
    cutover_max_lag: int = Field(
        100, ge=0, description="records a shard may be behind its log when another generation is served"
    )
    cutover_max_parse_failures: int = Field(
        100, ge=0, description="documents not in UTF-8 with which another generation may be served"
    )
    cutover_max_dead_letters: int = Field(
        0, ge=0, description="waiting dead letters with which another generation may be served"
    )
    cutover_wait_s: float = Field(
        30.0, ge=0, le=3600, description="seconds to wait until every searcher has loaded what comes"
    )

    pointer_staleness_s: float = Field(
        5.0, ge=0, le=10, description="seconds for which searching goes on where the release cannot be read"
    )
    cases_file: Path | None = Field(
        None, description="query cases that the service asks again and again of what it serves"
    )
    cases_s: float = Field(300.0, ge=1, description="seconds between two runs of these cases")
    report_s: float = Field(
        30.0,
        ge=0,
        le=3600,
        description="seconds between a shard's records on tessera.metrics; 0: none",
    )
    log_format: Literal["text", "json"] = Field("text", description="lines for people, or JSON for machines")
    shadow_share: float = Field(
        0.0, ge=0, le=1, description="share of queries that are also run on the next generation, to compare"
    )

    _catalog: SourceCatalog = PrivateAttr(default_factory=SourceCatalog)

    @property
    def tokenizers_folder(self) -> Path:
        """Where the files of tokenizers are."""
        return self.tokenizers_dir or self.data_dir / "tokenizers"

    @property
    def catalog(self) -> SourceCatalog:
        """The declared sources."""
        return self._catalog

    @field_validator("read_principals")
    @classmethod
    def _with_everyone(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({"*", *given}))

    @field_validator("jwks_file")
    @classmethod
    def _issuer_named(cls, path: Path | None, given: ValidationInfo) -> Path | None:
        # Without an audience a token that was made for another service would be good here.
        if path is not None and not (given.data.get("jwt_issuer") and given.data.get("jwt_audience")):
            raise ValueError("needs jwt_issuer and jwt_audience beside it")
        return path

    @field_validator("read_token", "monitor_token", "operator_token")
    @classmethod
    def _long_enough(cls, token: SecretStr | None) -> SecretStr | None:
        # A token that can be tried out in minutes guards nothing.
        if token is not None and len(token.get_secret_value()) < 16:
            raise ValueError("a token has at least 16 characters")
        return token

    def environment(self) -> dict[str, str]:
        """These settings as environment variables, for a child process; defaults are left out."""
        variables = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            elif isinstance(value, tuple):
                value = ",".join(value)
            variables[f"{ENVIRONMENT_PREFIX}{name.upper()}"] = str(value)
        return variables


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    require: tuple[Server, ...] = BOTH,
    extra_sources: Iterable[SourceDeclaration] = (),
    join_running: bool = True,
) -> Settings:
    """Settings from ``flags`` (None values are as if not given), environment, file and address file.

    ``config`` names the settings file (else ``TESSERA_CONFIG``, else ``tessera.toml`` in the current folder,
    where it exists). ``require`` lists the servers that must be known. ``extra_sources`` hold unless the
    file declares a source of the same name. ``join_running`` False leaves the address file unread.
    Raises :class:`~tessera.errors.SettingsError` naming the file, table and key, variable or flag at fault.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    path, document = _read_file(config)
    tables = document.pop("sources", {})
    environment = dict(EnvSettingsSource(Settings)())
    layers = [("flag", given), ("variable", environment), (str(path), document)]
    settings = _validated(layers)
    declared = _declarations(tables, path)

    address = read_address(settings.data_dir) if join_running else None
    if address is not None:
        found: dict[str, str] = {name: getattr(address, name) for name in BOTH if not getattr(settings, name)}
        settings = settings.model_copy(update=found)
        if settings.redis == address.redis:
            declared = {**address.sources, **declared}
    for server in require:
        if not getattr(settings, server):
            raise SettingsError(_not_named(server, settings.data_dir))
    settings._catalog = SourceCatalog({**{each.name: each for each in extra_sources}, **declared}.values())
    return settings


def redacted(url: str) -> str:
    """The URL with every password it holds replaced by ``***``: for messages and logs."""
    url = re.sub(r"(?<=://)([^:/?#]*):[^/?#]*@", r"\1:***@", url)
    return re.sub(r"(?i)(?<=password=)[^&]*", "***", url)


def _not_named(server: Server, data_dir: Path) -> str:
    what = "Kafka broker" if server == "broker" else "Redis"
    return (
        f"no {what} is named and no `tessera up` keeps its address in {data_dir.absolute()}: "
        f"start `tessera up` there, or give --{server} or TESSERA_{server.upper()}"
    )


def _read_file(config: Path | None) -> tuple[Path, dict[str, Any]]:
    named = config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    path = named or Path(SETTINGS_FILE)
    if named is None and not path.exists():
        return path, {}
    try:
        with path.open("rb") as stream:
            return path, tomllib.load(stream)
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}): check --config or {CONFIG_VARIABLE}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


def _validated(layers: Sequence[tuple[str, Mapping[str, Any]]]) -> Settings:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in reversed(layers):
        values.update(layer)
        origins.update(dict.fromkeys(layer, origin))
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0])
        raise SettingsError(f"{_place(name, origins[name])}: {_reason(name, first)}") from None


def _place(name: str, origin: str) -> str:
    if origin == "flag":
        return f"--{name.replace('_', '-')}"
    if origin == "variable":
        return f"{ENVIRONMENT_PREFIX}{name.upper()}"
    return f"{origin}: key {name!r} at the top level"


def _reason(name: str, error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key; known are {', '.join(sorted(Settings.model_fields))} and tables [sources.NAME]"
    return str(error["msg"]).removeprefix("Value error, ")


def _declarations(tables: object, path: Path) -> dict[str, SourceDeclaration]:
    if not isinstance(tables, dict):
        raise SettingsError(f"{path}: 'sources' must hold tables: write [sources.NAME]")
    return {name: declaration(name, table, f"{path}: [sources.{name}]") for name, table in tables.items()}


def declaration(name: str, table: object, place: str) -> SourceDeclaration:
    """The declaration that a ``[sources.NAME]`` table makes; ``place`` begins the message of an error."""
    if not name or "/" in name:
        raise SettingsError(f"{place}: a source's name is not empty and has no '/'")
    if not isinstance(table, dict):
        raise SettingsError(f"{place}: must be a table with kind, revision_from, access")
    unknown = sorted(set(table) - {"kind", "revision_from", "access"})
    if unknown:
        raise SettingsError(f"{place}: unknown key {unknown[0]!r}; known are kind, revision_from, access")
    kind: SourceKind = _choice(
        table, "kind", get_args(SourceKind), name if name in LOG_KINDS else "documents", place
    )
    revision_from: RevisionFrom = _choice(table, "revision_from", get_args(RevisionFrom), "log", place)
    if kind in LOG_KINDS and revision_from == "event":
        raise SettingsError(f'{place}: key \'revision_from\' is always "log" for kind "{kind}": leave it out')
    access = table.get("access", [])
    if not isinstance(access, list) or not all(isinstance(each, str) and each for each in access):
        raise SettingsError(f"{place}: key 'access' must be a list of principals, such as [\"group:staff\"]")
    return SourceDeclaration(name, kind, revision_from, tuple(sorted(set(access))))


def _choice(table: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str, place: str) -> Any:
    value = table.get(key, default)
    if value not in allowed:
        raise SettingsError(f"{place}: key {key!r} must be one of {', '.join(allowed)}, not {value!r}")
    return value
