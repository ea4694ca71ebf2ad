"""The compose file, the image and the Makefile name what really is there."""

from __future__ import annotations

import itertools
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from hatchling.builders.wheel import WheelBuilder

from tessera.cli.main import app
from tessera.errors import SettingsError
from tessera.http.access import check_exposure
from tessera.settings import Settings

ROOT = Path(__file__).parents[2]

STRINGS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}
SERVICE = {
    "type": "object",
    "additionalProperties": False,
    "anyOf": [{"required": ["image"]}, {"required": ["build"]}],
    "properties": {
        "image": {"type": "string", "pattern": r"^[a-z0-9/._-]+:[A-Za-z0-9._-]+$"},
        "build": {
            "type": "object",
            "additionalProperties": False,
            "required": ["context", "dockerfile"],
            "properties": {"context": {"type": "string"}, "dockerfile": {"type": "string"}},
        },
        "command": STRINGS,
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
        "volumes": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^([a-z0-9-]+:/[^:]+|\./[^:]+:/[^:]+:ro)$"},
        },
        "profiles": STRINGS,
        "secrets": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["source", "target"],
                "properties": {"source": {"type": "string"}, "target": {"type": "string"}},
            },
        },
        "depends_on": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["condition"],
                "properties": {"condition": {"const": "service_healthy"}},
            },
        },
        "healthcheck": {
            "type": "object",
            "additionalProperties": False,
            "required": ["test", "interval", "timeout", "retries"],
            "properties": {
                "test": {"type": "array", "prefixItems": [{"const": "CMD"}], "items": {"type": "string"}},
                "interval": DURATION,
                "timeout": DURATION,
                "start_period": DURATION,
                "retries": {"type": "integer", "minimum": 1},
            },
        },
        "stop_grace_period": DURATION,
    },
    "required": ["healthcheck"],
}
COMPOSE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "services", "volumes"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": ["null", "object"]}},
        "secrets": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["environment"],
                "properties": {"environment": {"type": "string"}},
            },
        },
    },
    "patternProperties": {"^x-": True},
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def ours(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in compose["services"].items() if "build" in each}


def test_the_compose_file_keeps_to_the_compose_specification(compose: dict[str, Any]) -> None:
    jsonschema.validate(compose, COMPOSE)
    for service in compose["services"].values():
        assert service.get("depends_on", {}).keys() <= compose["services"].keys()
        mounted = {volume.split(":")[0] for volume in service.get("volumes", [])}
        folders = {name for name in mounted if name.startswith("./")}
        assert mounted - folders <= compose["volumes"].keys()
        assert all((ROOT / folder).exists() for folder in folders)
        assert {secret["source"] for secret in service.get("secrets", [])} <= compose["secrets"].keys()


def test_commands_in_containers_are_the_very_entry_points(compose: dict[str, Any]) -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["tessera"]' in dockerfile
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    defaults = re.findall(r'^CMD \["(\w+)"\]$', dockerfile, re.MULTILINE)
    named = [service["command"][0] for service in ours(compose).values()]
    assert named == ["worker", "serve"]
    assert set(named + defaults) <= commands.keys()
    for service in ours(compose).values():
        assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_variables_in_containers_are_settings(compose: dict[str, Any]) -> None:
    for service in ours(compose).values():
        names = {name.removeprefix("TESSERA_").lower() for name in service["environment"]}
        assert names <= Settings.model_fields.keys()


def test_the_service_in_a_container_needs_its_tokens(compose: dict[str, Any]) -> None:
    environment = compose["services"]["service"]["environment"]
    for name in ("TESSERA_OPERATOR_TOKEN", "TESSERA_READ_TOKEN"):
        assert environment[name].startswith(f"${{{name}:?")
    with pytest.raises(SettingsError):
        check_exposure(Settings(broker="b:1", redis="redis://r/0", host=environment["TESSERA_HOST"]))


def test_prometheus_finds_in_the_network_what_the_containers_serve(compose: dict[str, Any]) -> None:
    services, targets = compose["services"], ROOT / "deploy" / "prometheus" / "targets"
    [service] = yaml.safe_load((targets / "service.yml").read_text())
    assert service["targets"] == [f"service:{services['service']['environment']['TESSERA_PORT']}"]
    [worker] = yaml.safe_load((targets / "workers.yml").read_text())
    own = services["worker"]["environment"]
    assert worker["targets"] == [f"worker:{own['TESSERA_METRICS_PORT']}"]
    assert own["TESSERA_HOST"] == services["service"]["environment"]["TESSERA_HOST"] == "0.0.0.0"  # noqa: S104
    [secret] = services["prometheus"]["secrets"]
    configured = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    [token] = [
        job["authorization"]["credentials_file"]
        for job in configured["scrape_configs"]
        if "authorization" in job
    ]
    assert secret["target"] == f"/etc/prometheus/{token}"
    source = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


def test_what_the_image_copies_is_there_and_let_through() -> None:
    let_through = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    for line in re.findall(
        r"^COPY (?!--)(.+) \S+$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE
    ):
        for name in line.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in let_through


def test_the_lock_names_no_host_and_covers_every_direct_requirement() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    pinned = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert {re.split(r"[\[<>=!~]", each)[0] for each in asked} <= pinned


def test_what_the_package_needs_beside_its_code_is_packed(tmp_path: Path) -> None:
    """Files that are no Python are in the wheel, which is what the image installs."""

    [built] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        packed = set(wheel.namelist())
    for package in ("tessera", "streams"):
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert str(path.relative_to(ROOT)) in packed
