"""Apache Kafka without a container: its jars from Maven Central, KRaft, one process per node on loopback.

``make test-kafka`` copies the jars into a folder and names it in ``TESSERA_KAFKA_LIBS``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tessera.embedded.process import HOST, DataLock, ServerProcess, free_port
from tessera.errors import SettingsError

LIBS_VARIABLE: Final = "TESSERA_KAFKA_LIBS"
START_S: Final = 60.0
STOP_S: Final = 20.0

_CLUSTER_ID: Final = "dGVzc2VyYS10ZXN0cy0wMQ"
_HEAP: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Quick to start; a test asks little of a broker."""


@dataclass
class Node:
    """One broker that is a controller too."""

    number: int
    folder: Path
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    peer_port: int = field(default_factory=free_port)
    lock: DataLock | None = None
    process: ServerProcess | None = None

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"


class LocalKafka:
    """A cluster of ``size`` nodes, as a context manager or by :meth:`start` and :meth:`stop`.

    Clients speak ``protocol`` (``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT``, ``SASL_SSL``), nodes plain text
    among themselves. ``settings`` are further lines of each ``server.properties``, ``scram`` passwords
    of SCRAM-SHA-512 by user.
    """

    def __init__(
        self,
        folder: Path,
        size: int = 1,
        *,
        protocol: str = "PLAINTEXT",
        settings: Mapping[str, str] | None = None,
        scram: Mapping[str, str] | None = None,
    ) -> None:
        self._scram = dict(scram or {})
        self._jars = _jars()
        self._protocol = protocol
        self._settings = dict(settings or {})
        self.nodes = [Node(number, folder / f"node-{number}") for number in range(1, size + 1)]

    @property
    def address(self) -> str:
        """The addresses of all nodes."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> Self:
        """Start all nodes, formatted where they are new; return once each takes connections."""
        try:
            for node in self.nodes:
                self._prepare(node)
                self.start_node(node)
            for node in self.nodes:
                self.wait_ready(node)
        except BaseException:
            self.stop()
            raise
        return self

    def start_node(self, node: Node) -> None:
        """Start one node with the data it left; return before it answers."""
        node.lock = node.lock or DataLock(node.folder / "lock")
        node.process = ServerProcess(
            f"node {node.number} of Apache Kafka",
            [*self._java(), "kafka.Kafka", str(node.folder / "server.properties")],
            node.folder / "server.log",
            node.lock,
            parent_death_signal=signal.SIGKILL,
        )

    def wait_ready(self, node: Node) -> None:
        """Wait until the node takes connections."""
        assert node.process is not None
        node.process.wait_ready(lambda: _listens(node.port), START_S)

    def stop(self) -> None:
        """Stop every node that runs."""
        for node in reversed(self.nodes):
            if node.process is not None:
                node.process.stop(STOP_S)
                node.process = None
            if node.lock is not None:
                node.lock.release()
                node.lock = None

    def begin_anew(self) -> None:
        """Stop, forget everything, and start again on the same ports."""
        self.stop()
        for node in self.nodes:
            shutil.rmtree(node.folder)
        self.start()

    def kill(self, node: Node) -> None:
        """SIGKILL one node."""
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGKILL)
        node.process.stop(STOP_S)
        node.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self, node: Node) -> None:
        properties = node.folder / "server.properties"
        if properties.exists():
            return
        (node.folder / "data").mkdir(parents=True)
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties(node).items()))
        command = [
            *self._java(),
            "kafka.tools.StorageTool",
            "format",
            "-t",
            _CLUSTER_ID,
            "-c",
            str(properties),
        ]
        for user, password in self._scram.items():
            command += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
        if done.returncode:
            raise SettingsError(f"Apache Kafka cannot format {node.folder}: {done.stdout}{done.stderr}")

    def _java(self) -> list[str]:
        return [shutil.which("java") or "java", *_HEAP, "-cp", f"{self._jars}/*"]

    def _properties(self, node: Node) -> dict[str, str]:
        copies = str(min(3, len(self.nodes)))
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.number),
            "controller.quorum.voters": ",".join(
                f"{each.number}@{HOST}:{each.controller_port}" for each in self.nodes
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CLIENT://{node.address},CONTROLLER://{HOST}:{node.controller_port},"
            f"NODES://{HOST}:{node.peer_port}",
            "listener.security.protocol.map": f"CLIENT:{self._protocol},CONTROLLER:PLAINTEXT,NODES:PLAINTEXT",
            "inter.broker.listener.name": "NODES",
            "log.dirs": str(node.folder / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            # As it was before Kafka 4, and is where somebody needs it: any time is taken.
            "log.message.timestamp.after.max.ms": str(2**63 - 1),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
        } | self._settings


def _jars() -> Path:
    named = os.environ.get(LIBS_VARIABLE, "")
    if not named or not any(Path(named).glob("kafka_*.jar")):
        raise SettingsError(f"{LIBS_VARIABLE} names no folder with Kafka's jars: run `make test-kafka`")
    if shutil.which("java") is None:
        raise SettingsError(
            "Apache Kafka needs Java 17 or newer (Debian: apt install openjdk-17-jre-headless)"
        )
    return Path(named)


def _listens(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=1):
        return True
