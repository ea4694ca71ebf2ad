"""A real installation that has gone through a migration, and a real Prometheus that scrapes it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from aiokafka import AIOKafkaProducer

from tessera.addresses import Address, read_address
from tessera.events.topics import DOCUMENTS

ROOT = Path(__file__).parents[2]
PROMETHEUS_FILES = ROOT / "deploy" / "prometheus"
CASES = ROOT / "docs" / "examples" / "cases.json"
DEADLINE_S = 60.0
WATCH, OPERATE = "monitor-token-of-16-characters", "operate-token-of-16-characters"
PROMTOOL, PROMETHEUS = shutil.which("promtool") or "", shutil.which("prometheus") or ""

with_prometheus = pytest.mark.skipif(
    not (PROMTOOL and PROMETHEUS), reason="promtool is not there (Debian: apt install prometheus)"
)


class Running(NamedTuple):
    """The service's address, the port of its worker's metrics, and where the servers are."""

    service: str
    metrics_port: int
    address: Address


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(done: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture(scope="package")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, metrics_port = tmp_path_factory.mktemp("installation"), free_port()
    own = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    own |= {
        "TESSERA_METRICS_PORT": str(metrics_port),
        "TESSERA_MONITOR_TOKEN": WATCH,
        "TESSERA_OPERATOR_TOKEN": OPERATE,
        "TESSERA_CASES_FILE": str(CASES),
        "TESSERA_CASES_S": "1",
        "TESSERA_SHADOW_SHARE": "1",
    }
    log = folder / "up.log"
    with log.open("w") as stream:
        up = subprocess.Popen(
            [sys.executable, "-m", "tessera", "up", "--json", "--port", "0"],
            cwd=folder,
            env=own,
            stdout=stream,
            stderr=stream,
        )
    try:
        until(lambda: up.poll() is not None or '"indexed"' in log.read_text(), log.read_text())
        address = read_address(folder / ".tessera")
        assert address is not None, log.read_text()
        assert address.http is not None
        yield Running(address.http.removeprefix("http://"), metrics_port, address)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(30)


@pytest.fixture(scope="package")
def operator(installation: Running) -> Iterator[httpx.Client]:
    """Somebody who may do everything."""
    headers = {"Authorization": f"Bearer {OPERATE}"}
    with httpx.Client(base_url=f"http://{installation.service}", headers=headers, timeout=60) as client:
        yield client


def use(operator: httpx.Client) -> str:
    """What users do; returns the uid of a hit."""
    [hit, *_] = operator.get("/api/search", params={"q": "renewal notice"}).json()["hits"]
    assert operator.get("/api/search", params={"q": "notice", "k": 0}).status_code == 422
    assert operator.get("/api/context", params={"q": "renewal notice", "budget": 200}).status_code == 200
    quotes = {"quotes": [{"uid": hit["uid"], "quote": hit["text"][:40]}]}
    assert operator.post("/api/ground", json=quotes).json()["evidence"]
    assert operator.post("/api/outcomes", json={"outcomes": ["supported"]}).status_code == 204
    return str(hit["uid"])


@pytest.fixture(scope="package")
def played(installation: Running, operator: httpx.Client) -> Running:
    """The installation after all that leaves a trace in metrics: faults, searches, a gated generation."""
    asyncio.run(_damage(installation.address.broker))
    event = {
        "v": 1,
        "op": "upsert",
        "source": "handbook",
        "doc_id": "latin.md",
        "media_type": "text/markdown",
    }
    event |= {
        "revision": 1,
        "access": ["*"],
        "content_base64": base64.b64encode("# Caf\xe9\n".encode("latin-1")).decode(),
    }
    published = operator.post("/api/changes", json=[event])
    assert published.status_code == 202, published.text
    until(lambda: operator.get("/api/status").json()["totals"]["dead_letters"], "no dead letter")
    use(operator)
    made = operator.post("/api/generations", json={"policy": "window-200", "name": "g2"})
    assert made.status_code == 201, made.text
    until(lambda: _filled(operator), "the backfill is not done")
    assert operator.post("/api/generations/g2/verify", json={}).status_code == 200
    compared = operator.post("/api/generations/g2/compare", json={"cases": json.loads(CASES.read_text())})
    assert compared.status_code == 200, compared.text
    use(operator)
    return installation


def _filled(operator: httpx.Client) -> bool:
    progress = operator.get("/api/generations/g2").json()["progress"]
    return bool(progress["shards"]) and progress["shards_complete"] == progress["shards"]


async def _damage(broker: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
        await producer.send_and_wait(DOCUMENTS, b"{", b"handbook/damaged.md", partition=0)


@pytest.fixture(scope="package")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of Prometheus' files, with a token where one belongs."""
    copied = tmp_path_factory.mktemp("configuration") / "prometheus"
    shutil.copytree(PROMETHEUS_FILES, copied)
    (copied / "monitor_token").write_text(WATCH)
    return copied


class Server:
    """Prometheus, as its API shows it."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def query(self, expression: str) -> list[Any]:
        """The series that the expression gives now."""
        answer = self.client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", (expression, answer)
        return list(answer["data"]["result"])

    def without_data(self, wanted: dict[str, str], known: set[str], operator: httpx.Client) -> set[str]:
        """Which of the queries, by name, give nothing while people search; ``known`` are not waited for."""
        absent, deadline = set(wanted), time.monotonic() + DEADLINE_S
        while absent - known and time.monotonic() < deadline:
            use(operator)
            time.sleep(0.5)
            try:
                absent = {name for name in absent if not self.query(wanted[name])}
            except httpx.TransportError:
                continue  # it is still starting
        return absent


@pytest.fixture(scope="package")
def server(
    configuration: Path, played: Running, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A real Prometheus that scrapes the installation every second."""
    targets, folder = configuration / "targets", tmp_path_factory.mktemp("prometheus")
    (targets / "service.yml").write_text(f'- targets: ["{played.service}"]\n')
    (targets / "workers.yml").write_text(f'- targets: ["127.0.0.1:{played.metrics_port}"]\n')
    settings = (configuration / "prometheus.yml").read_text().replace("_interval: 15s", "_interval: 1s")
    (configuration / "prometheus.yml").write_text(settings)
    port = free_port()
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={configuration / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield Server(client)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
