"""What the dashboard costs with many sources: the service's CPU time for an update, and the page's load time.

    python -m bench.dashboard [--sources 1000] [--chunks 1000000] [--updates 30] [--busy 1]

Starts the embedded broker and Redis, writes counters as the commits of so many documents would, in 3
generations, and then moves ``--busy`` shards before each update, and reads ``/metrics``. Where Chromium and
Playwright are installed it also measures from the request to the drawn table of sources, and until an update
shows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import orjson

from tessera.embedded.broker import EmbeddedBroker
from tessera.embedded.redis import EmbeddedRedis
from tessera.events.catalog import SourceCatalog
from tessera.events.topics import CHANGE_TOPICS
from tessera.generations.bootstrap import bootstrap
from tessera.generations.control import ControlLog, KafkaLog
from tessera.generations.operations import Operator
from tessera.http.events import Feed
from tessera.http.measures import exposition
from tessera.http.services import Services
from tessera.kafka.admin import ensure_topics
from tessera.policies import BUILT_IN
from tessera.settings import Settings
from tessera.shards.writer import ShardWriter
from tessera.store.base import Commit, ShardId, ShardStore
from tessera.store.connect import connect

PARTITIONS = 4
AT_ONCE = 2_000


def counters(sources: int, chunks: int, generations: list[str]) -> dict[str, int]:
    """A shard's share of what so many sources with so many chunks count."""
    each = max(1, chunks // sources // (PARTITIONS * len(CHANGE_TOPICS)))
    found = {}
    for number in range(sources):
        name = f"team-{number:04}/handbook".replace("/", "-")
        found |= {f"documents:{name}": each // 8 + 1, f"text_bytes:{name}": 400 * each}
        found |= {f"tombstones:{name}": number % 7, f"parse_failures:{name}": number % 13 == 0}
        for generation in generations:
            found |= {f"chunks:{generation}:{name}": each, f"uncovered:{generation}:{name}": number % 11}
    return {name: int(amount) for name, amount in found.items()}


async def fill(
    store: ShardStore, settings: Settings, sources: int, chunks: int
) -> dict[ShardId, ShardWriter]:
    """Three generations, whole, and the counters of all sources in every shard."""
    await bootstrap(store, dict.fromkeys(CHANGE_TOPICS, PARTITIONS))
    operator = Operator(store, settings, "bench", ControlLog(KafkaLog(settings.broker), settings.namespace))
    for name, policy in (("g2", "markdown"), ("g3", "window-200")):
        await operator.create(BUILT_IN[policy], name)
    writers = {}
    for shard in (ShardId(topic, each) for topic in CHANGE_TOPICS for each in range(PARTITIONS)):
        writer = writers[shard] = ShardWriter(store, shard, partitions=PARTITIONS, catalog=SourceCatalog())
        await writer.open()
        for _ in range(2):
            await writer.tick()
        everything = list(counters(sources, chunks, ["g1", "g2", "g3"]).items())
        for begin in range(0, len(everything), AT_ONCE):
            await touch(store, writer, dict(everything[begin : begin + AT_ONCE]))
    return writers


async def touch(store: ShardStore, writer: ShardWriter, added: dict[str, int]) -> None:
    """One commit that only counts."""
    head = writer.head
    await store.commit(Commit(head.shard, head.fence, head.seq, counters=added))
    await writer.open()


async def updates(
    services: Services, store: ShardStore, writers: dict[ShardId, ShardWriter], rounds: int, busy: int
) -> list[tuple[float, float]]:
    """CPU and wall time of each update, in milliseconds: reading, comparing, encoding, handing over."""
    feed = Feed(services.live_overview)
    listener = feed.join()
    while await listener.next(30.0) is None:
        pass
    found = []
    for number in range(rounds):
        for shard in list(writers)[:busy]:
            await touch(store, writers[shard], {f"documents:team-{number:04}-handbook": 1})
        services.forget_overview()
        cpu, wall = time.process_time(), time.perf_counter()
        feed._tell_status(await services.live_overview())
        feed._tell_figures()
        found.append((1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)))
        listener.restart([])
    feed.leave(listener)
    return found


async def browse(settings: Settings, store: ShardStore, writers: dict[ShardId, ShardWriter]) -> None:
    """Load the page in Chromium, served from a process of its own, and wait for what it shows."""
    path = shutil.which("chromium")
    if path is None:
        print("page: not measured, chromium is not installed")
        return
    import sys

    from playwright.async_api import async_playwright

    environment = {"TESSERA_BROKER": settings.broker, "TESSERA_REDIS": settings.redis} | os.environ
    serving = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tessera", "serve", "--port", "0", "--json", env=environment,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        told = b""
        while not told.rstrip().endswith(b"}"):
            told += await serving.stdout.readline()
        url = orjson.loads(told)["http"]
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = await browser.new_page()
            times = []
            for _ in range(5):
                begun = time.perf_counter()
                await page.goto(url, wait_until="commit")
                await page.wait_for_selector("#source-rows tr")
                times.append(1000 * (time.perf_counter() - begun))
            middle, worst = statistics.median(times), max(times)
            print(f"page, until the table of sources is drawn: median {middle:.0f} ms, worst {worst:.0f} ms")
            await browser.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            serving.terminate()
        await serving.wait()


async def scraped(services: Services) -> None:
    """Time and size of ``/metrics``, read anew each time."""
    times = []
    text = b""
    for _ in range(10):
        services.forget_overview()
        began = time.perf_counter()
        text = exposition(await services.overview())
        times.append(1000 * (time.perf_counter() - began))
    middle, worst = statistics.median(times), max(times)
    print(f"/metrics: {len(text):,} bytes, median {middle:.0f} ms, worst {worst:.0f} ms")


async def measure(given: argparse.Namespace, broker: str, redis: str) -> None:
    """Print the figures."""
    settings = Settings(broker=broker, redis=redis, max_building=2)  # type: ignore[arg-type]
    await ensure_topics(broker, PARTITIONS)
    store = connect(settings.redis, settings.namespace)
    writers = await fill(store, settings, given.sources, given.chunks)
    services = Services(settings, store)
    for busy in (0, given.busy, len(writers)):
        found = await updates(services, store, writers, given.updates, busy)
        for name, times in zip(("CPU", "wall"), zip(*found, strict=True), strict=True):
            middle, slow = statistics.median(times), sorted(times)[int(0.95 * len(times))]
            case = f"an update, {busy} of {len(writers)} shards changed, {name}"
            print(f"{case}: median {middle:.1f} ms, p95 {slow:.1f} ms")
    await scraped(services)
    await browse(settings, store, writers)
    await store.close()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=int, default=1_000)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--busy", type=int, default=1)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
        EmbeddedRedis(Path(folder) / "redis") as redis,
    ):
        asyncio.run(measure(given, f"127.0.0.1:{broker.port}", redis.url))


if __name__ == "__main__":
    main()
