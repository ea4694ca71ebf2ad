"""The Faust app: two agents over the change topics, and nothing that keeps state in Faust."""

from __future__ import annotations

import logging
from typing import Any

import faust
import mode
from faust.app.base import BootStrategy
from faust.tables.manager import TableManager
from faust.types import TP

from streams.agents import documents, logs
from streams.ownership import CheckLogs, Fatal, MakeWriter, Ownership, Prepare
from streams.transport import Transport
from tessera.events.topics import CHANGE_TOPICS
from tessera.kafka.connection import NO_SECURITY, Security
from tessera.limits import Limits
from tessera.store.base import ShardId

BUFFER_RECORDS = 1024
"""Two batches: while one is written the next is there. The bound in bytes is the transport's."""

POLL_RECORDS = 200
"""At most a fifth of the buffer: with larger polls a slow topic fills the drain that both topics share."""

EMBEDDED_TIMEOUTS_S = {"rebalance": 3.0, "session": 4.0, "heartbeat": 0.5}
"""A join on the embedded broker lasts half the session timeout, whoever else is there."""

EMBEDDED_FETCH_WAIT_MS = 50
"""It answers a fetch that finds nothing after half of this: the freshness of a single change."""

KAFKA_TIMEOUTS_S = {"rebalance": 60.0, "session": 30.0, "heartbeat": 3.0}
KAFKA_FETCH_WAIT_MS = 500
"""It answers at once when there is a record; this bounds how often an idle worker asks."""


class ConsumerOnly(BootStrategy):  # type: ignore[misc]
    """Consumer and agents only: nothing is produced through Faust, and nothing is served."""

    enable_kafka_producer = False
    enable_web = False


class NoTables(TableManager):  # type: ignore[misc]
    """Faust waits a second here for tables to be declared; there are none to wait for."""

    logger = logging.getLogger("faust.tables")

    async def on_start(self) -> None:
        """Begin with the first assignment at once."""
        await self._update_channels()
        await self.recovery.start()


class StreamApp(faust.App):  # type: ignore[misc]
    """The app as the owner of shards sees it: a member of the consumer group."""

    BootStrategy = ConsumerOnly
    logger = logging.getLogger("faust.app")
    ownership: Ownership
    fetch_wait_ms: int

    @property
    def stopping(self) -> bool:
        """Whether the app has been told to stop, or has crashed."""
        return bool(self.should_stop)

    @property
    def term(self) -> int:
        """Rises with every rebalance."""
        return int(self.rebalancing_count)

    async def rejoin(self) -> None:
        """Ask the group for a new assignment."""
        await self.consumer.request_rejoin()

    async def seek(self, shard: ShardId, offset: int) -> None:
        """Read the shard's partition from ``offset`` on."""
        await self.consumer.seek_shard(shard, offset)

    async def take_shards(self, *_: Any, **__: Any) -> None:
        """Claim what has been assigned; awaited by Faust just before it seeks."""
        await self.ownership.take({ShardId(*tp) for tp in self.consumer.assignment() if _is_change(tp)})

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        # Faust's data folder holds tables; there are none.
        return


def build_app(
    broker: str,
    group: str,
    *,
    embedded: bool,
    limits: Limits,
    prepare: Prepare,
    make_writer: MakeWriter,
    check_logs: CheckLogs,
    fatal: Fatal,
    security: Security = NO_SECURITY,
) -> StreamApp:
    """An app that is not started yet.

    ``broker`` lists bootstrap servers (host:port, separated by commas), ``group`` names the consumer group,
    ``embedded`` says that the broker is the embedded one, ``security`` is what clients are given. ``fatal``
    ends the process.
    """
    timeouts_s = EMBEDDED_TIMEOUTS_S if embedded else KAFKA_TIMEOUTS_S
    app = StreamApp(
        group,
        broker=[f"kafka://{server.strip()}" for server in broker.split(",")],
        broker_credentials=_credentials(security),
        broker_rebalance_timeout=timeouts_s["rebalance"],
        broker_session_timeout=timeouts_s["session"],
        broker_heartbeat_interval=timeouts_s["heartbeat"],
        broker_max_poll_records=POLL_RECORDS,
        stream_buffer_maxsize=BUFFER_RECORDS,
        stream_wait_empty=True,
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        TableManager=NoTables,
        topic_allow_declare=False,
        topic_disable_leader=True,
        agent_supervisor=mode.CrashingSupervisor,
        autodiscover=False,
    )
    app.fetch_wait_ms = EMBEDDED_FETCH_WAIT_MS if embedded else KAFKA_FETCH_WAIT_MS
    app.ownership = Ownership(app, prepare, make_writer, check_logs, fatal)
    app.on_rebalance_complete.connect(app.take_shards)
    documents.attach(app, app.ownership, limits)
    logs.attach(app, app.ownership, limits)
    return app


def _credentials(security: Security) -> faust.auth.Credentials | None:
    """The same in Faust's words, which it takes back into the client's own."""
    if "sasl_mechanism" in security:
        return faust.SASLCredentials(
            username=security["sasl_plain_username"],
            password=security["sasl_plain_password"],
            mechanism=security["sasl_mechanism"],
            ssl_context=security.get("ssl_context"),
        )
    return faust.SSLCredentials(security["ssl_context"]) if "ssl_context" in security else None


def _is_change(tp: TP) -> bool:
    return tp.topic in CHANGE_TOPICS
