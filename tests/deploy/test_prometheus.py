"""Prometheus' files: sound, alerts that fire where they should, queries that find what processes expose."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tessera.addresses import read_address

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
DEADLINE_S = 60.0
READ, OPERATE = "read-token-of-16-characters", "operate-token-of-16-characters"

NOT_ON_A_FRESH_INSTALLATION = {
    "TesseraMissingEmbeddings": "no generation has an embedding contract yet",
    "TesseraParityBroken": "nothing but the serving generation",
    "TesseraEvidenceExpiring": "no comparison was made",
    "TesseraBackfillStalled": "no backfill",
    "TesseraLogGap": "counters of what never happened have no series",
    "TesseraParseFailures": "counters of what never happened have no series",
    "TesseraSearchesFail": "no search failed",
    "tessera:backfill_documents:rate_5m": "no backfill",
}
"""What finds no series on a healthy installation, and why."""

PROMTOOL, PROMETHEUS = shutil.which("promtool") or "", shutil.which("prometheus") or ""

pytestmark = pytest.mark.skipif(
    not (PROMTOOL and PROMETHEUS), reason="promtool is not there (Debian: apt install prometheus)"
)


def rules() -> list[dict[str, Any]]:
    found = []
    for path in sorted((DEPLOY / "rules").glob("*.yml")):
        groups = yaml.safe_load(path.read_text())["groups"]
        found += [rule for group in groups for rule in group["rules"]]
    return found


def promtool(*arguments: object) -> None:
    done = subprocess.run(
        [PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A copy of the files, with a token where one belongs."""
    copied = tmp_path / "prometheus"
    shutil.copytree(DEPLOY, copied)
    (copied / "targets" / "read_token").write_text(READ)
    return copied


def test_configuration_and_rules_are_sound(configuration: Path) -> None:
    promtool("check", "config", configuration / "prometheus.yml")


def test_every_alert_fires_where_it_should_and_stays_silent_where_not() -> None:
    promtool("test", "rules", DEPLOY / "tests" / "alerts.yml")
    tests = {each["name"] for each in yaml.safe_load((DEPLOY / "tests" / "alerts.yml").read_text())["tests"]}
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert tests == {f"{alert} {kind}" for alert in alerts for kind in ("fires", "stays silent")}


def test_every_alert_has_its_section_in_the_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    alerts = [rule for rule in rules() if "alert" in rule]
    assert sections == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A running installation: the service's address, and the port of its worker's metrics."""
    metrics_port = free_port()
    own = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    own |= {
        "TESSERA_METRICS_PORT": str(metrics_port),
        "TESSERA_READ_TOKEN": READ,
        "TESSERA_OPERATOR_TOKEN": OPERATE,
    }
    with (tmp_path / "up.log").open("w") as log:
        up = subprocess.Popen(
            [sys.executable, "-m", "tessera", "up", "--json", "--port", "0"],
            cwd=tmp_path,
            env=own,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while '"indexed"' not in (tmp_path / "up.log").read_text():
            assert up.poll() is None, (tmp_path / "up.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "up.log").read_text()
            time.sleep(0.1)
        address = read_address(tmp_path / ".tessera")
        assert address is not None
        assert address.http is not None
        yield address.http.removeprefix("http://"), metrics_port
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(30)


@pytest.fixture
def server(configuration: Path, installation: tuple[str, int], tmp_path: Path) -> Iterator[httpx.Client]:
    """A real Prometheus that scrapes the installation every second."""
    service, metrics_port = installation
    targets = configuration / "targets"
    (targets / "service.yml").write_text(f'- targets: ["{service}"]\n')
    (targets / "workers.yml").write_text(f'- targets: ["127.0.0.1:{metrics_port}"]\n')
    settings = (configuration / "prometheus.yml").read_text().replace("_interval: 15s", "_interval: 1s")
    (configuration / "prometheus.yml").write_text(settings)
    port = free_port()
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={configuration / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def query(server: httpx.Client, expression: str) -> list[Any]:
    answer = server.get("/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", (expression, answer)
    return list(answer["data"]["result"])


def operand(expression: str) -> str:
    """The series that an alert looks at, without what it compares them with."""
    return re.split(r"\s(?:==|>|>=|<)\s", expression)[0]


@pytest.mark.servers
def test_every_rule_finds_data_on_a_real_installation(
    server: httpx.Client, installation: tuple[str, int]
) -> None:
    """Real processes scraped by a real server; what finds nothing is on a list, with the reason."""
    service, _ = installation
    wanted = {rule.get("record", rule.get("alert")): operand(rule["expr"]) for rule in rules()}
    absent = dict.fromkeys(wanted)
    deadline = time.monotonic() + DEADLINE_S
    while set(absent) - set(NOT_ON_A_FRESH_INSTALLATION) and time.monotonic() < deadline:
        httpx.get(f"http://{service}/api/search?q=notice", headers={"Authorization": f"Bearer {READ}"})
        time.sleep(0.5)
        try:
            absent = {name: each for name, each in wanted.items() if not query(server, each)}
        except httpx.TransportError:
            continue  # it is still starting
    assert not set(absent) - set(NOT_ON_A_FRESH_INSTALLATION), absent
    states = server.get("/api/v1/rules").json()["data"]["groups"]
    unhealthy = [rule for group in states for rule in group["rules"] if rule["health"] == "err"]
    assert not unhealthy
