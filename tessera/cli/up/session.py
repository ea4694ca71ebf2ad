"""One run of ``tessera up``, from servers that answer to the last child's end.

The order of the start: topics, registry and release; logs adopted where the broker is embedded; address
file; children; then all folders at once. The order of the stop: folders, HTTP service, workers, address
file; the embedded servers come after them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.addresses import Address, remove_address, write_address
from tessera.cli.feeds import Feed, Published, skipped_files, unpublished
from tessera.cli.servers import opened_publisher, opened_store
from tessera.cli.shard import adopt_known_logs
from tessera.cli.terminal import counted
from tessera.cli.up.children import Child
from tessera.cli.up.freshness import FreshnessWatch
from tessera.cli.up.screen import Announcer
from tessera.cli.up.servers import keep_serving
from tessera.cli.up.sources import Folder
from tessera.embedded.process import DataLock
from tessera.embedded.server import EmbeddedServer
from tessera.errors import TesseraError, UnavailableError
from tessera.events.change import Delete
from tessera.events.topics import CHANGE_TOPICS
from tessera.generations.bootstrap import bootstrap
from tessera.generations.control import ControlLog, KafkaLog
from tessera.kafka.admin import ensure_topics
from tessera.kafka.publisher import Publisher
from tessera.kafka.security import security_of
from tessera.overview import read_overview
from tessera.settings import CONFIG_VARIABLE, Settings, redacted
from tessera.store.base import Head, ShardId, ShardStore

STATUS_EVERY_S = 1.0
POLL_S = 0.1

CANCEL_AGAIN_S = 1.0

FAULT_PAUSE_S = 5.0
"""Before a folder is compared again after a fault nobody expected, which may come back at once."""

READY_S = 90.0
"""After this a worker or service that has not come up is reported; it goes on trying."""

SERVICE_GRACE_S = 8.0
WORKER_GRACE_S = 25.0
"""Longer than each gives itself, so that it is killed only when it hangs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run. ``servers`` are the embedded ones, which have been started."""

    settings: Settings
    folders: tuple[Folder, ...]
    workers: int
    config: Path | None
    servers: tuple[EmbeddedServer, ...]

    @property
    def adopts_logs(self) -> bool:
        """Whether the broker has forgotten what it held."""
        return any(not server.keeps_data for server in self.servers)

    @property
    def http(self) -> str:
        """The address of the HTTP service."""
        host = self.settings.host.strip("[]")
        return f"http://{f'[{host}]' if ':' in host else host}:{self.settings.port}"


class Session:
    """Runs a plan until it is told to stop."""

    def __init__(self, plan: Plan, lock: DataLock, announce: Announcer) -> None:
        self._plan = plan
        self._lock = lock
        self._announce = announce
        self._children: list[Child] = []
        self._feeds: list[Feed] = []
        self._freshness = FreshnessWatch(self._searchable)
        self._overview: dict[str, Any] = {}
        self._indexed = False
        self._told: set[str] = set()

    def state(self) -> dict[str, Any]:
        """What the screen shows."""
        fresh = self._freshness
        settings = self._plan.settings
        return {
            "http": self._plan.http,
            "broker": settings.broker,
            "redis": redacted(settings.redis),
            "processes": {child.name: child.state for child in self._children},
            "overview": self._overview,
            "problems": {feed.declaration.name: len(feed.report.problems) for feed in self._feeds},
            "freshness_p50": fresh.quantile(0.5),
            "freshness_p95": fresh.quantile(0.95),
        }

    async def run(self) -> None:
        """Start everything, keep it running until SIGTERM, SIGINT or SIGHUP, stop everything."""
        stop = _stop_on_signals()
        settings = self._plan.settings
        async with opened_store(settings) as store:
            before = await self._set_up(store)
            try:
                await self._run_parts(store, before, stop)
            finally:
                # Where the terminal is gone nobody can be told, and all the rest has to be done.
                with contextlib.suppress(OSError):
                    self._announce("stopping", "the service and the workers")
                await self._stop_children()
                remove_address(settings.data_dir)
        with contextlib.suppress(OSError):
            self._announce("stopped", "everything; the index is kept in " + str(settings.data_dir))

    async def _set_up(self, store: ShardStore) -> list[Head | None]:
        """Topics, registry, release, adopted logs, address file; returns the heads as they are then."""
        settings = self._plan.settings
        counts = await ensure_topics(
            settings.broker,
            settings.partitions,
            replication_factor=settings.replication_factor,
            security=security_of(settings),
        )
        await bootstrap(store, {topic: counts[topic] for topic in CHANGE_TOPICS})
        log = KafkaLog(settings.broker, security_of(settings))
        await ControlLog(log, settings.namespace).reapply(store)
        if self._plan.adopts_logs:
            await adopt_known_logs(store)
        declared = {source.name: source for source in settings.catalog.declared}
        address = Address(
            pid=os.getpid(),
            broker=settings.broker,
            redis=settings.redis,
            http=self._plan.http,
            sources=declared,
            kept={folder.declaration.name: str(folder.path) for folder in self._plan.folders},
        )
        write_address(settings.data_dir, address)
        return await store.heads(await _shards(store))

    async def _run_parts(self, store: ShardStore, before: Sequence[Head | None], stop: asyncio.Event) -> None:
        self._start_children()
        async with opened_publisher(self._plan.settings, store) as publisher:
            parts: list[Coroutine[Any, Any, None]] = [child.keep_running() for child in self._children]
            parts += [keep_serving(server, self._announce) for server in self._plan.servers]
            parts += [self._follow(folder, store, publisher) for folder in self._plan.folders]
            parts += [
                self._tell_when_ready(store, before),
                self._watch_freshness(store),
                self._watch_status(store),
            ]
            tasks = [asyncio.create_task(part) for part in parts]
            await _until_stopped(stop, tasks)

    def _start_children(self) -> None:
        settings = self._plan.settings
        logs = settings.data_dir / "logs"
        environment = {**settings.environment()}
        if self._plan.config is not None:
            environment[CONFIG_VARIABLE] = str(self._plan.config.resolve())
        service = [sys.executable, "-m", "tessera", "serve"]
        self._add_child("service", service, logs / "service.log", environment)
        for number in range(1, self._plan.workers + 1):
            name = "worker" if self._plan.workers == 1 else f"worker-{number}"
            own = dict(environment)
            if settings.metrics_port:
                own["TESSERA_METRICS_PORT"] = str(settings.metrics_port + number - 1)
            self._add_child(name, [sys.executable, "-m", "streams"], logs / f"{name}.log", own)

    def _add_child(self, name: str, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        def changed(message: str) -> None:
            self._announce("child", message, name=name)

        child = Child(name, command, log, self._lock, environment, changed)
        child.start()
        self._children.append(child)

    async def _stop_children(self) -> None:
        """The service first: whoever asks it while workers stop would wait for nothing."""
        for service in self._children[:1]:
            await service.stop(SERVICE_GRACE_S)
        await asyncio.gather(*(worker.stop(WORKER_GRACE_S) for worker in self._children[1:]))

    async def _follow(self, folder: Folder, store: ShardStore, publisher: Publisher) -> None:
        settings = self._plan.settings
        feed = Feed(
            folder.path,
            settings.catalog[folder.declaration.name],
            store,
            publisher,
            settings.max_document_bytes,
            self._freshness.sent,
        )
        self._feeds.append(feed)
        while True:
            try:
                await self._tell_of(feed)
            except Exception as error:  # noqa: BLE001 - one folder's trouble must not end all the others
                self._tell_of_fault(feed, error)
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _tell_of(self, feed: Feed) -> None:
        """Follow one folder without end; tell each problem of it once, and once what is skipped."""
        tells_skipped = True
        async for report in feed.forever():
            if tells_skipped and (skipped := skipped_files(report, feed.declaration.kind)):
                tells_skipped = False
                self._announce("skipped", skipped, source=report.source, files=report.skipped)
            for problem in (*unpublished([report]), *filter(None, [report.trouble])):
                if problem not in self._told:
                    self._told.add(problem)
                    self._announce("problem", problem, source=report.source)

    def _tell_of_fault(self, feed: Feed, error: Exception) -> None:
        source = feed.declaration.name
        log_path = self._plan.settings.data_dir / "logs" / "up.log"
        with contextlib.suppress(OSError), log_path.open("a") as log:  # a full disk ends nothing either
            traceback.print_exception(error, file=log)
        self._announce(
            "trouble",
            f"{source}: unexpected {error!r}, its folder is compared again in {FAULT_PAUSE_S:g} s "
            f"(log: {log_path})",
            source=source,
        )

    def _searchable(self, published: Published, seconds: float) -> None:
        if not self._indexed:
            return  # the first load is told once, as a whole
        change = published.change
        op = "deleted" if isinstance(change, Delete) else "changed"
        name = f"{change.source}/{change.doc_id}"
        self._announce(
            op, f"{name}, searchable after {seconds:.2f} s", document=name, seconds=round(seconds, 3)
        )

    async def _watch_freshness(self, store: ShardStore) -> None:
        while True:
            with contextlib.suppress(UnavailableError):
                await self._freshness.follow(store)
            await asyncio.sleep(STATUS_EVERY_S)

    async def _watch_status(self, store: ShardStore) -> None:
        """Keep the overview current, and tell of trouble once when it begins and once when it ends."""
        trouble = ""
        dead_letters = 0
        while True:
            try:
                self._overview = await read_overview(self._plan.settings, store)
                now = self._overview["broker"]["trouble"] or ""
            except TesseraError as error:
                now = str(error)
            if now != trouble:
                self._announce("trouble" if now else "recovered", now or "the servers answer again")
                trouble = now
            waiting = self._overview.get("totals", {}).get("dead_letters", 0)
            if waiting > dead_letters:
                letters = counted(waiting, "dead letter")
                self._announce("trouble", f"{letters}: see `tessera deadletter list`", waiting=waiting)
            dead_letters = waiting
            await asyncio.sleep(STATUS_EVERY_S)

    async def _tell_when_ready(self, store: ShardStore, before: Sequence[Head | None]) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(READY_S):
                await self._until_claimed(store, before)
                await _until_answering(self._plan.settings)
        except TimeoutError:
            logs = self._plan.settings.data_dir / "logs"
            self._announce("trouble", f"not everything is up after {READY_S:g} s: see the logs in {logs}")
            await self._until_claimed(store, before)
            await _until_answering(self._plan.settings)
        seconds = time.monotonic() - started
        pids = {child.name: child.pid for child in self._children}
        self._announce("ready", self._plan.http, http=self._plan.http, seconds=round(seconds, 2), pids=pids)
        await self._until_indexed()
        self._overview = await self._read_overview(store)
        totals = self._overview["totals"]
        self._indexed = True
        self._freshness.seconds.clear()  # the first load waited for a worker to start
        self._announce(
            "indexed",
            f"{counted(totals['documents'], 'document')}, {counted(totals['chunks'], 'chunk')}, "
            f"{time.monotonic() - started:.1f} s",
            documents=totals["documents"],
            chunks=totals["chunks"],
        )

    async def _read_overview(self, store: ShardStore) -> dict[str, Any]:
        while True:
            with contextlib.suppress(UnavailableError):
                return await read_overview(self._plan.settings, store)
            await asyncio.sleep(POLL_S)

    async def _until_claimed(self, store: ShardStore, before: Sequence[Head | None]) -> None:
        """Wait until a worker of this run has taken every shard."""
        while True:
            with contextlib.suppress(UnavailableError):
                now = await store.heads(await _shards(store))
                if all(
                    head and head.fence > (old.fence if old else 0)
                    for head, old in zip(now, before, strict=True)
                ):
                    return
            await asyncio.sleep(POLL_S)

    async def _until_indexed(self) -> None:
        """Wait until each folder has been compared once and nothing of it is on its way."""
        await asyncio.gather(*(feed.compared.wait() for feed in self._feeds))
        await self._freshness.all_searchable()


def _stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM, SIGINT and, unless it is ignored as under nohup, SIGHUP set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    return stop


async def _shards(store: ShardStore) -> list[ShardId]:
    topics = await store.topics()
    return [ShardId(topic, number) for topic in CHANGE_TOPICS for number in range(topics.get(topic, 0))]


async def _until_answering(settings: Settings) -> None:
    """Wait until the HTTP service says that it is ready."""
    while True:
        if await _is_ready(settings.host.strip("[]"), settings.port):
            return
        await asyncio.sleep(POLL_S)


async def _is_ready(host: str, port: int) -> bool:
    # Bound to every address, it is reached at loopback.
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not bound
    name = f"[{target}]" if ":" in target else target
    try:
        reader, writer = await asyncio.open_connection(target, port)
    except OSError:
        return False
    try:
        request = f"GET /readyz HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()


async def _until_stopped(stop: asyncio.Event, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for the signal; a task that fails ends the wait with its error."""
    stopping = asyncio.create_task(stop.wait())
    waiting: set[asyncio.Task[Any]] = {stopping, *tasks}
    try:
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        await _cancel({stopping, *tasks})


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for their end, whatever they end with.

    A Kafka client that is being closed can swallow a cancellation; its task is asked again then.
    """
    pending = tasks
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
