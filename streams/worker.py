"""One worker process: checks its servers, joins the consumer group, stops cleanly or at once.

Exit status: 0 after SIGTERM or SIGINT, 1 where it could not start (one line says why), 70 where something
unknown happened; a supervisor starts it again then, and it reads again from the applied offsets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from faust.types import TP
from prometheus_client import start_http_server

from streams.app import StreamApp, build_app
from streams.deadletters import DeadLetterProducer
from streams.reports import ReportProducer, Reports, Send
from streams.upkeep import Upkeep
from tessera.errors import SettingsError, TesseraError
from tessera.events.topics import CHANGE_TOPICS
from tessera.generations.bootstrap import bootstrap
from tessera.generations.control import ControlLog, KafkaLog
from tessera.kafka.admin import ensure_topics
from tessera.kafka.probe import LogState, probe_log
from tessera.kafka.security import security_of
from tessera.limits import Limits
from tessera.logs import configure_logging, stack_of
from tessera.policies import TOKENIZERS
from tessera.settings import Settings, load_settings
from tessera.shards.writer import ShardWriter
from tessera.store.base import Head, ShardId, ShardStore
from tessera.store.connect import connect
from tessera.tracing import start_tracing

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_UNKNOWN = 70
STOP_TIMEOUT_S = 5.0
"""A broker that is away cannot be told that the worker leaves; what is not finished is read again."""


def main() -> int:
    """Run a worker with the settings found in the environment and the settings file."""
    try:
        settings = load_settings()
        configure_logging(settings.log_format)
        return asyncio.run(run(settings))
    except TesseraError as error:
        print(f"tessera worker: {error}", file=sys.stderr)
        return EXIT_FAILED


def end_process(error: BaseException) -> NoReturn:
    """Log where the error was raised and end the process without committing anything further."""
    logger.critical("unknown error, ending the process\n%s", stack_of(error))
    logging.shutdown()
    os._exit(EXIT_UNKNOWN)


async def run(settings: Settings) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit status."""
    stop_tracing = start_tracing("tessera-worker")
    TOKENIZERS.folder = settings.tokenizers_folder
    store = connect(settings.redis, settings.namespace)
    try:
        await store.ping()
        kafka = logging.getLogger("aiokafka")
        kafka.setLevel(logging.CRITICAL)  # a broker that is not there is reported once, by what follows
        topics = await ensure_topics(
            settings.broker,
            settings.partitions,
            replication_factor=settings.replication_factor,
            security=security_of(settings),
        )
        kafka.setLevel(logging.WARNING)
        partitions = {topic: topics[topic] for topic in CHANGE_TOPICS}
        await bootstrap(store, partitions)
        _serve_metrics(settings)
        return await _work(settings, store, partitions)
    finally:
        await store.close()
        stop_tracing()


async def _work(settings: Settings, store: ShardStore, partitions: Mapping[str, int]) -> int:
    limits = Limits(
        max_document_bytes=settings.max_document_bytes, tombstone_horizon_s=settings.tombstone_horizon_s
    )

    def make_writer(shard: ShardId) -> ShardWriter:
        return ShardWriter(
            store, shard, partitions=partitions[shard.topic], catalog=settings.catalog, limits=limits
        )

    control = ControlLog(KafkaLog(settings.broker, security_of(settings)), settings.namespace)

    async def prepare() -> None:
        await bootstrap(store, partitions)
        await control.reapply(store)

    async def check_logs(heads: Mapping[ShardId, Head]) -> Mapping[ShardId, LogState]:
        return await probe_log(
            settings.broker,
            {shard: (head.applied, head.record_digest) for shard, head in heads.items()},
            security=security_of(settings),
        )

    app = build_app(
        settings.broker,
        settings.namespace,
        embedded=settings.embedded,
        limits=limits,
        prepare=prepare,
        make_writer=make_writer,
        check_logs=check_logs,
        fatal=end_process,
        security=security_of(settings),
    )
    produce = DeadLetterProducer(settings.broker, security_of(settings))
    upkeep = Upkeep(app.ownership, store, check_logs, produce, partial(_highwater, app))
    stop = _stop_on_signals()
    start = asyncio.create_task(app.start())
    rounds = asyncio.create_task(upkeep.run())
    report = ReportProducer(settings.broker, security_of(settings))
    reporting = asyncio.create_task(_report(settings, app, store, report))
    try:
        await _until_stopped(app, start, stop)
    finally:
        rounds.cancel()
        reporting.cancel()
        await _stop(app)
        start.cancel()
        await asyncio.gather(start, rounds, reporting, return_exceptions=True)
        await produce.close()
        await report.close()
    if app.crash_reason is not None:
        end_process(app.crash_reason)
    logger.info("stopped")
    return 0


async def _report(settings: Settings, app: StreamApp, store: ShardStore, send: Send) -> None:
    if settings.report_s:
        ends = partial(_highwater, app)
        await Reports(app.ownership, store, send, ends, settings.report_s).run()


async def _stop(app: StreamApp) -> None:
    stopping = asyncio.create_task(app.stop())
    # Not wait_for: services swallow its cancellation, and it would wait on.
    await asyncio.wait({stopping}, timeout=STOP_TIMEOUT_S)
    if stopping.done():
        await stopping
    else:
        logger.warning("stopped without telling the broker, which does not answer")
        logging.shutdown()
        os._exit(0)  # the client's own thread would wait for the broker


async def _until_stopped(app: StreamApp, start: asyncio.Task[Any], stop: asyncio.Event) -> None:
    crashed = asyncio.create_task(app._crashed.wait())
    stopped = asyncio.create_task(stop.wait())
    waiting = {crashed, stopped, start}
    try:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if done == {start}:
            await start
            logger.info("ready")
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        crashed.cancel()
        stopped.cancel()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _highwater(app: StreamApp, shard: ShardId) -> int | None:
    tp = TP(*shard)
    if tp not in app.consumer.assignment():
        return None
    highwater: int | None = app.consumer.highwater(tp)
    return highwater


def _serve_metrics(settings: Settings) -> None:
    if not settings.metrics_port:
        return
    try:
        start_http_server(settings.metrics_port, addr=settings.host)
    except OSError as error:
        raise SettingsError(
            f"{settings.host}:{settings.metrics_port}: cannot serve metrics there ({error.strerror}): "
            "choose another TESSERA_METRICS_PORT, or unset it"
        ) from None
