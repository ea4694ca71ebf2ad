"""A steady load of changes over real texts, and the model that says what every offset of it leads to."""

from __future__ import annotations

import asyncio
import os
import random
import tarfile
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Append, Change, Delete, MediaType, Upsert, document_key
from tessera.kafka.publisher import Publisher
from tessera.store.base import ShardId

DATA_VARIABLE = "TESSERA_DATA"
ARCHIVE = Path("markdown") / "rust-rfcs.tar.gz"
DOCUMENT_SOURCES = ("handbook", "rfcs")
CATALOG = SourceCatalog(
    [
        *(SourceDeclaration(name, "documents", "event") for name in DOCUMENT_SOURCES),
        SourceDeclaration("devex", "devex"),
        SourceDeclaration("github", "github"),
    ]
)
SETTINGS = "".join(
    f'[sources.{each.name}]\nkind = "{each.kind}"\nrevision_from = "{each.revision_from}"\n\n'
    for each in CATALOG.declared
)
PUBLISH_TOGETHER = 4
"""Changes sent at once by the steady load: enough for one batch to change several shards."""


@dataclass(frozen=True, slots=True)
class Original:
    """A document as a corpus has it."""

    source: str
    doc_id: str
    media_type: MediaType
    content: str

    @property
    def key(self) -> str:
        """Its Kafka key."""
        return document_key(self.source, self.doc_id)


@dataclass(frozen=True, slots=True)
class Version:
    """What a document is from ``offset`` on; ``content`` None: deleted."""

    offset: int
    revision: int
    content: str | None


def corpora(archive: bool = True) -> list[Original]:
    """The bundled corpora, and the RFCs where ``TESSERA_DATA`` names a folder that holds them."""
    bundled = Path(str(files("tessera.sources"))) / "corpora"
    kinds: list[tuple[str, str, MediaType]] = [
        ("documents", "handbook", "text/markdown"),
        ("devex", "devex", "text/x-run-log"),
        ("github", "github", "text/x-ci-log"),
    ]
    found = [
        Original(source, path.relative_to(bundled / kind).as_posix(), media_type, _lines(path.read_text()))
        for kind, source, media_type in kinds
        for path in sorted((bundled / kind).rglob("*"))
        if path.suffix in (".md", ".log")
    ]
    data = os.environ.get(DATA_VARIABLE)
    return found + list(_rfcs(Path(data) / ARCHIVE)) if data and archive else found


def _rfcs(path: Path) -> Iterator[Original]:
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".md") else None
            if content is not None:
                yield Original("rfcs", member.name, "text/markdown", _lines(content.read().decode()))


def _lines(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


@dataclass(slots=True)
class Model:
    """Every version of every document, by key, in the order of offsets."""

    versions: dict[str, list[Version]] = field(default_factory=dict)
    shards: dict[str, ShardId] = field(default_factory=dict)
    ends: dict[ShardId, int] = field(default_factory=dict)

    def note(self, key: str, shard: ShardId, version: Version) -> None:
        """Add a document's next version."""
        self.versions.setdefault(key, []).append(version)
        self.shards[key] = shard
        self.ends[shard] = version.offset + 1

    def at(self, key: str, as_of: Mapping[str, int]) -> Version | None:
        """The document's version once its shard has applied that offset; None before the first."""
        versions = self.versions.get(key, [])
        applied = as_of[str(self.shards[key])] if versions else -1
        index = bisect_right(versions, applied, key=lambda version: version.offset)
        return versions[index - 1] if index else None

    def live(self) -> dict[str, Version]:
        """The documents that are there in the end, by key."""
        return {key: found[-1] for key, found in self.versions.items() if found[-1].content is not None}


@dataclass(frozen=True, slots=True)
class Sent:
    """A change that the broker has: when it was handed over (monotonic seconds), and where it is."""

    at: float
    shard: ShardId
    offset: int


class Traffic:
    """Makes changes, publishes them and keeps the model. ``markers`` maps a word to the only document that
    ever held it."""

    def __init__(self, originals: list[Original], publisher: Publisher, seed: int = 1) -> None:
        self._publisher = publisher
        self.model = Model()
        self.sent: list[Sent] = []
        self.markers: dict[str, str] = {}
        self.originals = {each.key: each for each in originals}
        self._random = random.Random(seed)
        self._contents: dict[str, str | None] = {}
        self._revisions: dict[str, int] = {}
        self._number = 0

    async def load(self) -> None:
        """Publish all originals once."""
        await self._publish([self._begin(each) for each in self.originals.values()])

    async def run(self, per_second: float) -> None:
        """Publish random changes at a steady rate until cancelled."""
        due = time.monotonic()
        while True:
            due = max(due + PUBLISH_TOGETHER / per_second, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self.publish_some()

    async def publish_some(self, count: int = PUBLISH_TOGETHER) -> None:
        """Publish the next random changes, each of another document."""
        keys = self._random.sample(sorted(self.originals), count)
        publishing = asyncio.ensure_future(self._publish([self._change(self.originals[key]) for key in keys]))
        try:
            await asyncio.shield(publishing)
        except asyncio.CancelledError:
            # What the broker has, or is about to have, must be in the model before the caller goes on.
            await publishing
            raise

    async def _publish(self, changes: list[Change]) -> None:
        at = time.monotonic()
        for change, position in zip(changes, await self._publisher.publish_many(changes), strict=True):
            key = document_key(change.source, change.doc_id)
            shard = ShardId(position.topic, position.partition)
            self.sent.append(Sent(at, shard, position.offset))
            self.model.note(key, shard, self._version(key, change, position.offset))

    def _version(self, key: str, change: Change, offset: int) -> Version:
        if isinstance(change, Append):
            if change.first_line == 1:
                self._revisions[key] = offset
            held = self.model.versions.get(key)
            before = "" if change.first_line == 1 or held is None else held[-1].content or ""
            return Version(offset, self._revisions[key], before + change.content)
        revision = offset if change.revision is None else change.revision
        return Version(offset, revision, change.content if isinstance(change, Upsert) else None)

    def _change(self, original: Original) -> Change:
        content = self._contents[original.key]
        if content is None:
            return self._begin(original)
        if self._random.random() < 0.12:
            return self._delete(original)
        if original.source in DOCUMENT_SOURCES:
            return self._edit(original, content)
        lines = f"{self._marked(original.key)} step {self._number} begins\nworking on {self._number}\n\n"
        self._contents[original.key] = content + lines
        return Append(original.source, original.doc_id, content.count("\n") + 1, lines, original.media_type)

    def _begin(self, original: Original) -> Change:
        content = f"{self._marked(original.key)} is new\n\n{original.content}"
        self._contents[original.key] = content
        if original.source not in DOCUMENT_SOURCES:
            return Append(original.source, original.doc_id, 1, content, original.media_type)
        return self._upsert(original, content)

    def _edit(self, original: Original, content: str) -> Change:
        """Mostly shrinking: some paragraphs go, and now and then the whole text comes back."""
        whole = self._random.random() < 0.25
        paragraphs = (original.content if whole else content).split("\n\n")
        kept = [part for part in paragraphs if whole or self._random.random() < 0.8]
        kept.insert(self._random.randint(0, len(kept)), f"{self._marked(original.key)} was edited here")
        self._contents[original.key] = content = "\n\n".join(kept).rstrip("\n") + "\n"
        return self._upsert(original, content)

    def _upsert(self, original: Original, content: str) -> Change:
        revision = self._next_revision(original.key)
        return Upsert(original.source, original.doc_id, revision, original.media_type, content, None)

    def _delete(self, original: Original) -> Change:
        self._contents[original.key] = None
        brings = original.source in DOCUMENT_SOURCES
        revision = self._next_revision(original.key) if brings else None
        return Delete(original.source, original.doc_id, revision)

    def _next_revision(self, key: str) -> int:
        self._revisions[key] = self._revisions.get(key, 0) + self._random.randint(1, 3)
        return self._revisions[key]

    def _marked(self, key: str) -> str:
        self._number += 1
        marker = f"marker{self._number}x"
        self.markers[marker] = key
        return marker
