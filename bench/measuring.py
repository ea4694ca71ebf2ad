"""What measuring costs a worker: the same records applied with all measurements, and with none of them.

    python -m bench.measuring [PAIRS]

Both go through the real agents into a store in memory, which makes the share of measuring as large as it can
be: with Redis there is more work for the same figures. The two take turns within a pair, and which is first
alternates; CPU time of the process is compared. As other processes disturb that by more than measuring costs,
the time inside the functions that measure is taken as well, in runs of their own: its share of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import orjson

from streams import batches
from streams.driver import Driver
from tessera.events.change import Record
from tessera.events.topics import DOCUMENTS
from tessera.shards import building
from tessera.shards.building import CutFigures
from tessera.sources.bundled import BUNDLED, bundled_folder
from tessera.sources.scan import scan
from tessera.store.memory import MemoryStore

PAIRS = 21
REVISIONS = 80
FED = 500
"""Records at once: a batch, and no more than the stream's queue takes."""


def records() -> list[Record]:
    """The bundled handbook in so many revisions, each other than the one before."""
    found = []
    folder, kind = bundled_folder("handbook"), BUNDLED["handbook"]
    for revision in range(REVISIONS):
        for name, file in sorted(scan(folder, kind).files.items()):
            event = {"v": 1, "op": "upsert", "source": "handbook", "doc_id": name, "access": ["*"]}
            content = f"{(folder / file.path).read_text(encoding='utf-8')}\n\nRevision {revision}.\n"
            event |= {"media_type": file.media_type, "content": content}
            found.append(
                Record(DOCUMENTS, 0, len(found), f"handbook/{name}".encode(), orjson.dumps(event), (), 1)
            )
    return found


MEASURING = (
    (batches, "_count"),
    (building, "samples_of"),
    (CutFigures, "add"),
    (CutFigures, "add_samples"),
)
"""The functions that measure, by where they are looked up."""


@contextmanager
def unmeasured() -> Iterator[None]:
    """Nothing is counted, observed or sampled."""
    with contextlib.ExitStack() as stack:
        for place, name in MEASURING:
            stack.enter_context(patch.object(place, name, lambda *_: []))
        yield


@contextmanager
def timed() -> Iterator[list[float]]:
    """Seconds of each call of what measures."""
    found: list[float] = []

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def timing(*given: Any) -> Any:
            began = time.perf_counter()
            made = call(*given)
            found.append(time.perf_counter() - began)
            return made

        return timing

    with contextlib.ExitStack() as stack:
        for place, name in MEASURING:
            stack.enter_context(patch.object(place, name, wrapped(getattr(place, name))))
        yield found


def cpu_s(made: list[Record]) -> float:
    """CPU time that applying the records takes."""

    async def run() -> float:
        async with Driver(MemoryStore(), partitions=1) as driver:
            began = time.process_time()
            for first in range(0, len(made), FED):
                await driver.feed(made[first : first + FED])
            return time.process_time() - began

    return asyncio.run(run())


def main() -> None:
    """Run it."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    made = records()
    cpu_s(made)  # caches, imports
    taken: dict[bool, list[float]] = {True: [], False: []}
    shares = []
    for number in range(pairs):
        for measured in (True, False) if number % 2 else (False, True):
            with contextlib.nullcontext() if measured else unmeasured():
                taken[measured].append(cpu_s(made))
        with timed() as inside:
            whole = cpu_s(made)
            shares.append(sum(inside) / whole)
        print(f"pair {number + 1}: {taken[True][-1]:.3f} s and {taken[False][-1]:.3f} s", flush=True)
    ratio = statistics.median(one / other for one, other in zip(taken[True], taken[False], strict=True))
    print(f"{len(made)} records, {pairs} pairs")
    print(f"CPU time with measuring and without: {100 * (ratio - 1):+.1f} %, median of the pairs")
    print(
        f"time inside what measures: {100 * statistics.median(shares):.1f} % of all, median of {pairs} runs"
    )


if __name__ == "__main__":
    main()
