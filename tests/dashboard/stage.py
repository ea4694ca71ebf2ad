"""A service for a browser: a store in memory, a broker that knows what it is told, workers by hand."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import uvicorn

from tessera.errors import UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Record
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS, LOGS
from tessera.generations.bootstrap import bootstrap, read_registry
from tessera.generations.control import ControlLog
from tessera.generations.operations import Operator
from tessera.generations.registry import Evidence
from tessera.http.app import create_app
from tessera.policies import BUILT_IN
from tessera.settings import Settings
from tessera.shards.writer import ShardWriter
from tessera.sources.kinds import media_type
from tessera.store.base import Commit, ShardId
from tessera.store.memory import MemoryStore

CORPORA = Path(__file__).parents[2] / "tessera" / "sources" / "corpora"
DEADLINE_S = 30.0
HOUR_MS = 3_600_000


class MemoryLog:
    """Stands for the control topic."""

    def __init__(self, *_: object) -> None:
        self.values: list[bytes | None] = []

    async def append(self, key: bytes, value: bytes) -> None:
        self.values.append(value)

    async def read(self) -> Sequence[bytes | None]:
        return list(self.values)


class BreakableStore(MemoryStore):
    """A store that can be told to be unavailable."""

    broken = False

    async def heads(self, shards: Sequence[ShardId]) -> Any:
        if self.broken:
            raise UnavailableError("Redis at r:6379 is not available; check that it runs")
        return await super().heads(shards)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.config.app.state.feed.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


class Stage:
    """The service in a thread of its own. Methods may be called from the test's thread."""

    def __init__(self, **changed: Any) -> None:
        self.settings = Settings(broker="kafka:9092", redis="redis://valkey:6379/0", **changed)
        self.store = BreakableStore()
        self.ahead = 0
        self.broker_trouble = ""
        self._writers: dict[str, ShardWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: _Server | None = None
        self._serving: Any = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run it where the service runs, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def start(self) -> None:
        """Serve, on the port of before where there was one."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]

        async def begin() -> None:
            app = create_app(self.settings, lambda: self.store)
            self._server = _Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
            self._serving = asyncio.ensure_future(self._server.serve(sockets=[listening]))
            async with asyncio.timeout(DEADLINE_S):
                while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(0.01)

        self.do(begin())

    def stop(self) -> None:
        """Serve no more; the store stays as it is."""

        async def end() -> None:
            assert self._server is not None
            self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving

        self.do(end())

    def close(self) -> None:
        """Stop everything."""
        if self._serving is not None and not self._serving.done():
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def ends(self, _: str, shards: Sequence[ShardId], **_security: object) -> dict[ShardId, int]:
        """The ends of the logs: ``ahead`` records of the documents are not applied yet."""
        if self.broker_trouble:
            raise UnavailableError(self.broker_trouble)
        heads = await MemoryStore.heads(self.store, shards)
        applied = {head.shard: head.applied for head in heads if head is not None}
        return {
            shard: applied.get(shard, -1) + 1 + self.ahead * (shard.topic == DOCUMENTS) for shard in shards
        }

    async def open(self) -> None:
        """What the first worker does."""
        await bootstrap(self.store, dict.fromkeys(CHANGE_TOPICS, 1))
        for topic in CHANGE_TOPICS:
            self._writers[topic] = ShardWriter(
                self.store, ShardId(topic, 0), partitions=1, catalog=SourceCatalog()
            )
            await self._writers[topic].open()

    async def put(self, *events: dict[str, Any]) -> None:
        """Apply these changes."""
        for topic in CHANGE_TOPICS:
            writer = self._writers[topic]
            mine = [event for event in events if (event["source"] in ("devex", "github")) == (topic == LOGS)]
            first = writer.head.applied + 1
            records = [
                Record(
                    topic, 0, first + n, f"{event['source']}/{event['doc_id']}".encode(), orjson.dumps(event)
                )
                for n, event in enumerate(mine)
            ]
            if records:
                await writer.write(records)

    async def count(self, topic: str, counters: dict[str, int]) -> None:
        """Add to a shard's counters, as a commit of many documents would."""
        head = self._writers[topic].head
        await self.store.commit(Commit(head.shard, head.fence, head.seq, counters=counters))
        await self._writers[topic].open()

    async def adopt(self) -> None:
        """Adopt generations, and backfill what their rate allows at once."""
        for writer in self._writers.values():
            await writer.tick()
            await writer.backfill(0, 0.1)

    async def tick(self) -> None:
        """What the workers do in a while: adopt generations, backfill them."""
        for writer in self._writers.values():
            await writer.tick()
            while await writer.backfill(0, 5.0):
                pass
            await writer.tick()

    def operator(self) -> Operator:
        control = ControlLog(MemoryLog(""), self.settings.namespace)
        return Operator(self.store, self.settings, "ann@desk", control)

    async def candidate(self, name: str = "g2", policy: str = "markdown", rate: float | None = None) -> None:
        """A new generation, not filled yet; ``rate`` documents a second and shard."""
        await self.operator().create(BUILT_IN[policy], name, rate)

    async def proven(self, name: str = "g2") -> None:
        """Fill it, verify it, and give it evidence that lasts an hour."""
        operator = self.operator()
        await operator.set_rate(name, None)
        await self.tick()
        registry = await read_registry(self.store)
        await operator.record_verified(name, registry.serving.name, "equal")
        now_ms = operator.now_ms()
        evidence = Evidence(
            registry.serving.name,
            registry.serving.contract.digest,
            registry.generations[name].contract.digest,
            "sha256:0",
            {},
            passed=True,
            failed=(),
            figures={},
            at_ms=now_ms,
            expires_at_ms=now_ms + HOUR_MS,
        )
        await operator.step(await read_registry(self.store), "compared", name, evidence=evidence)


def bundled() -> list[dict[str, Any]]:
    """The corpora of the package as changes, and some of what goes wrong in real ones."""
    events = []
    for source, kind in (("handbook", "documents"), ("devex", "devex"), ("github", "github")):
        folder = CORPORA / kind
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            doc_id = str(path.relative_to(folder))
            media = media_type(kind, doc_id)  # type: ignore[arg-type]
            if media is not None:
                events.append(upsert(source, doc_id, path.read_text(encoding="utf-8"), media))
    unreadable = upsert("notes", "minutes/2031-04.md", "", "text/markdown")
    del unreadable["content"]
    unreadable["content_base64"] = base64.b64encode(
        b"# Minutes\n\nThe caf\xe9 moves to B\xfcro 4.\n"
    ).decode()
    gap = {"v": 1, "op": "append", "source": "devex", "doc_id": "run_R-2000.log", "first_line": 41}
    return [
        *events,
        unreadable,
        gap | {"content": "line 41 of the run\nline 42 of the run\n", "access": ["*"]},
    ]


def upsert(source: str, doc_id: str, content: str, media: str = "text/markdown") -> dict[str, Any]:
    return {
        "v": 1,
        "op": "upsert",
        "source": source,
        "doc_id": doc_id,
        "media_type": media,
        "content": content,
        "access": ["*"],
    }
