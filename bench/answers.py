"""Queries asked without a pause, and every answer judged by the model: at its ``as_of``, to the last hit."""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.traffic import Model, Traffic

K = 10
WORD = re.compile(r"[a-z]{4,12}")
RECENT_MARKERS = 400
"""Markers asked for are among the last so many: their documents are those that change."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One query and what came back. Times are monotonic seconds; ``failure`` is empty where it was answered.

    ``marker`` is the word asked for where only one document ever held it, else empty.
    """

    began: float
    ended: float
    marker: str
    failure: str
    release: str = ""
    generation: str = ""
    as_of: Mapping[str, int] = field(default_factory=dict)
    hits: tuple[tuple[str, int, str, int, int, str], ...] = ()
    stale: bool = False

    @property
    def seconds(self) -> float:
        """How long the caller waited."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Moved:
    """A cutover or rollback: when the command began and ended, and the release that it led to."""

    began: float
    ended: float
    release: str
    generation: str


@dataclass(frozen=True, slots=True)
class Away:
    """When something that answers need was away, monotonic seconds: ``"store"`` or ``"searcher"``.

    Queries may be refused meanwhile; behind a store's absence, its last second lost, offsets begin anew.
    """

    since: float
    to: float
    what: str

    def covers(self, asked: Asked) -> bool:
        """Whether the query was under way in that time."""
        return asked.began <= self.to and asked.ended >= self.since


class Asker:
    """Asks one searcher, one question at a time: every other one for a marker, the rest for common words."""

    def __init__(self, url: str, traffic: Traffic, seed: int = 1) -> None:
        self.asked: list[Asked] = []
        self.url = url
        self._traffic = traffic
        self._random = random.Random(seed)
        texts = [each.content.lower() for each in traffic.originals.values()]
        self._words = sorted({word for text in texts for word in WORD.findall(text[:4000])})

    async def run(self, pause_s: float) -> None:
        """Ask until cancelled; ``pause_s`` seconds between an answer and the next question."""
        async with httpx.AsyncClient(base_url=self.url, timeout=30.0) as client:
            while True:
                await self.ask(client)
                await asyncio.sleep(pause_s)

    async def ask(self, client: httpx.AsyncClient) -> None:
        """Ask one question."""
        marker = ""
        if self._random.random() < 0.5 and self._traffic.markers:
            recent = list(self._traffic.markers)[-RECENT_MARKERS:]
            marker = self._random.choice(recent)
        query = marker or " ".join(self._random.choices(self._words, k=3))
        began = time.monotonic()
        try:
            answer = await client.get("/api/search", params={"q": query, "k": K})
        except httpx.HTTPError as error:
            self.asked.append(Asked(began, time.monotonic(), marker, repr(error)))
            return
        ended = time.monotonic()
        if answer.status_code != 200:
            self.asked.append(Asked(began, ended, marker, f"{answer.status_code}: {answer.text[:300]}"))
            return
        self.asked.append(_asked(began, ended, marker, answer.json()))


def _asked(began: float, ended: float, marker: str, value: Mapping[str, Any]) -> Asked:
    hits = tuple(
        (
            f"{hit['source']}/{hit['doc_id']}",
            hit["revision"],
            hit["policy"],
            hit["start"],
            hit["end"],
            hit["text"],
        )
        for hit in value["hits"]
    )
    stale = "stale_s" in value
    return Asked(began, ended, marker, "", value["release"], value["generation"], value["as_of"], hits, stale)


@dataclass(slots=True)
class Verdict:
    """What judging found: ``faults`` counts them by kind, ``told`` holds the first few of each in words.

    ``refused`` counts queries refused by what was away; ``stale`` those answered from the last known release.
    """

    answers: int = 0
    hits: int = 0
    markers_found: int = 0
    markers_absent: int = 0
    stale: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def fault(self, kind: str, told: str) -> None:
        """Count a fault."""
        self.faults[kind] += 1
        if self.faults[kind] <= 5:
            self.told.append(f"{kind}: {told}")


def judge(
    asked: Sequence[Asked],
    traffic: Traffic,
    policies: Mapping[str, str],
    moves: Sequence[Moved] = (),
    away: Sequence[Away] = (),
) -> Verdict:
    """Judge all answers. ``policies`` maps generations to policy ids; ``away`` says what was when."""
    verdict = Verdict()
    for each in sorted(asked, key=lambda each: each.began):
        if each.failure:
            missing = next((span.what for span in away if span.covers(each)), "")
            if missing:
                verdict.refused[missing] += 1
            else:
                verdict.fault("failed query", each.failure)
            continue
        verdict.answers += 1
        verdict.stale += each.stale
        if len({policy for _, _, policy, *_ in each.hits} | {policies[each.generation]}) != 1:
            verdict.fault("mixed generations", f"{each.generation} with {[hit[2] for hit in each.hits]}")
        _judge_hits(each, traffic.model, verdict)
        if each.marker:
            _judge_marker(each, traffic, verdict)
    _judge_order([each for each in asked if not each.failure], away, verdict)
    _judge_release([each for each in asked if not each.failure], moves, verdict)
    return verdict


def _judge_hits(each: Asked, model: Model, verdict: Verdict) -> None:
    for key, revision, _, start, end, text in each.hits:
        verdict.hits += 1
        version = model.at(key, each.as_of)
        if version is None or version.content is None:
            verdict.fault("resurrected", f"{key}@{revision} in {each.generation} at {each.as_of}")
        elif revision != version.revision:
            verdict.fault("wrong revision", f"{key}@{revision}, not {version.revision}, at {each.as_of}")
        elif version.content[start:end] != text:
            verdict.fault("wrong text", f"{key}@{revision} {start} to {end} at {each.as_of}")


def _judge_marker(each: Asked, traffic: Traffic, verdict: Verdict) -> None:
    """The marker's document is found where it holds the marker at ``as_of``, and nothing else ever is."""
    key = traffic.markers[each.marker]
    version = traffic.model.at(key, each.as_of)
    held = version is not None and version.content is not None and each.marker in version.content
    found = {hit[0] for hit in each.hits}
    if held and key not in found:
        verdict.fault("lost", f"{each.marker} of {key} in {each.generation} at {each.as_of}")
    if not held and found:
        verdict.fault("resurrected", f"{each.marker} of {key} in {each.generation} at {each.as_of}")
    if held:
        verdict.markers_found += 1
    else:
        verdict.markers_absent += 1


def _judge_order(answered: Sequence[Asked], away: Sequence[Away], verdict: Verdict) -> None:
    """No answer is of an earlier offset than one that had ended before its query began."""
    ended = sorted(answered, key=lambda each: each.ended)
    losses = [span for span in away if span.what == "store"]
    resets = sorted(span.to for span in losses)
    seen: dict[str, int] = {}
    done = 0
    for each in sorted(answered, key=lambda each: each.began):
        while done < len(ended) and ended[done].ended < each.began:
            if resets and resets[0] <= ended[done].ended:
                resets.pop(0)
                seen = {}
            for shard, offset in ended[done].as_of.items():
                seen[shard] = max(seen.get(shard, -1), offset)
            done += 1
        during = any(span.covers(each) for span in losses)
        reset = bool(resets) and each.ended >= resets[0]
        behind = [shard for shard, offset in each.as_of.items() if offset < seen.get(shard, -1)]
        if behind and not during and not reset:
            verdict.fault("as_of went back", f"{behind} at {each.as_of}, seen {seen}")


def _judge_release(answered: Sequence[Asked], moves: Sequence[Moved], verdict: Verdict) -> None:
    """Once a move has been told done, no query that begins is pinned to another release."""
    for before, after in zip(moves, [*moves, None][1:], strict=True):
        until = math.inf if after is None else after.began
        for each in answered:
            is_old = (each.release, each.generation) != (before.release, before.generation)
            if is_old and before.ended < each.began and each.ended < until:
                verdict.fault("old release", f"{each.release} of {each.generation} after {before}")


def percentile_ms(seconds: Iterable[float], share: float) -> float:
    """The nearest rank, in milliseconds; NaN of nothing."""
    ordered = sorted(seconds)
    return 1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
