"""Which servers benches and tests run on: the embedded ones, or those that users run.

``TESSERA_TEST_SERVERS=real`` takes Apache Kafka (:mod:`bench.local_kafka`) and Debian's ``redis-server``, as
``make test-kafka`` does.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from bench.local_kafka import LocalKafka
from tessera.embedded.broker import EmbeddedBroker
from tessera.embedded.redis import EmbeddedRedis
from tessera.errors import SettingsError

VARIABLE: Final = "TESSERA_TEST_SERVERS"
ARE_REAL: Final = os.environ.get(VARIABLE, "embedded") == "real"

Broker = EmbeddedBroker | LocalKafka


class DebianRedis(EmbeddedRedis):
    """``redis-server`` as it is installed, with the settings of the embedded one."""

    name = "redis-server"

    def _command(self) -> tuple[list[str], bytes]:
        (_, *arguments), configuration = super()._command()
        return [redis_binary(), *arguments], configuration


def redis_binary() -> str:
    """The program's path."""
    found = shutil.which("redis-server")
    if found is None:
        raise SettingsError("redis-server is not installed (Debian: apt install redis-server)")
    return found


def new_broker(folder: Path) -> Broker:
    """A broker with nothing in it, not started yet."""
    return LocalKafka(folder) if ARE_REAL else EmbeddedBroker(folder)


def begin_anew(broker: Broker) -> None:
    """Start a broker again, at the same address, that has forgotten everything."""
    if isinstance(broker, LocalKafka):
        broker.begin_anew()
    else:
        broker.stop()
        broker._fixed_port = broker.port
        broker.start()


def new_redis(folder: Path, port: int = 0) -> EmbeddedRedis:
    """A Redis-compatible server that keeps its data in ``folder``, not started yet."""
    return DebianRedis(folder, port) if ARE_REAL else EmbeddedRedis(folder, port)
