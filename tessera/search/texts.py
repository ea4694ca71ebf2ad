"""Texts of hits: blocks read from the store, decompressed once, kept within a bound of bytes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tessera.documents.record import DocumentRecord, Gap
from tessera.documents.text import BLOCK_BYTES, block_ids, decompress
from tessera.errors import CorruptionError, StaleSnapshotError
from tessera.index.segment import DocumentEntry
from tessera.search.snapshot import Found
from tessera.store.base import ShardId, ShardStore

BlockKey = tuple[ShardId, str]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a document's text: bytes ``start`` to ``end``, half-open, and its length in code points."""

    shard: ShardId
    entry: DocumentEntry
    start: int
    end: int
    characters: int

    @classmethod
    def of(cls, hit: Found) -> Stretch:
        """The chunk's."""
        values = hit.values()
        characters = values["end"] - values["start"]
        return cls(hit.shard, hit.document, values["start_byte"], values["end_byte"], characters)

    @property
    def blobs(self) -> list[str]:
        """Ids of the blocks that hold it."""
        return block_ids(self.entry.text_id, self.entry.size_bytes, self.start, self.end)

    def text(self, blocks: Sequence[bytes]) -> str:
        """Its text, of its blocks; CorruptionError where they hold something else."""
        data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        offset = self.start - self.start % BLOCK_BYTES
        try:
            text = data[self.start - offset : self.end - offset].decode()
        except UnicodeDecodeError:
            text = ""
        if len(text) != self.characters:
            raise CorruptionError(
                f"bytes {self.start} to {self.end} of {self.entry.key} are not the text that was indexed: "
                "publish the document again"
            )
        return text


class TextReader:
    """Reads the texts of chunks. A block's id fixes its bytes, so a kept block is never out of date.

    Only chunks of a snapshot can be asked for: a text whose document is gone cannot be reached.
    """

    def __init__(self, store: ShardStore, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self.size_bytes = 0

    async def texts(self, found: Sequence[Found]) -> list[str]:
        """The chunks' texts, in order.

        Raises :class:`~tessera.errors.StaleSnapshotError` where a block is gone, and
        :class:`~tessera.errors.CorruptionError` where the bytes are not the text that was indexed.
        """
        return await self.stretches([Stretch.of(hit) for hit in found])

    async def stretches(self, stretches: Sequence[Stretch]) -> list[str]:
        """The texts of stretches of a snapshot's documents, in order; raises as :meth:`texts` does."""
        blobs = [(each, each.blobs) for each in stretches]
        blocks = await self._read({(each.shard, blob): None for each, ids in blobs for blob in ids})
        return [each.text([blocks[each.shard, blob] for blob in ids]) for each, ids in blobs]

    async def missing_lines(
        self, shard: ShardId, documents: Sequence[DocumentEntry]
    ) -> dict[str, tuple[Gap, ...] | None]:
        """The missing lines of a snapshot's logs by key, up to the lines that the snapshot holds.

        None where the log has another revision by now: filling a gap makes one.
        """
        found = await self._store.documents(shard, [entry.key for entry in documents])
        gaps: dict[str, tuple[Gap, ...] | None] = {}
        for entry, encoded in zip(documents, found, strict=True):
            record = DocumentRecord.decode(encoded, entry.key) if encoded is not None else None
            is_same = record is not None and not record.deleted and record.revision == entry.revision
            gaps[entry.key] = record.gaps if record is not None and is_same else None
        return gaps

    async def _read(self, keys: Iterable[BlockKey]) -> dict[BlockKey, bytes]:
        blocks: dict[BlockKey, bytes] = {}
        missing: dict[ShardId, list[str]] = {}
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                missing.setdefault(key[0], []).append(key[1])
            else:
                self._blocks.move_to_end(key)
                blocks[key] = block
        read = await asyncio.gather(*(self._store.blobs(shard, ids) for shard, ids in missing.items()))
        for (shard, ids), blobs in zip(missing.items(), read, strict=True):
            for blob_id, blob in zip(ids, blobs, strict=True):
                if blob is None:
                    raise StaleSnapshotError(
                        f"shard {shard}: {blob_id} is gone from the store: ask again; if it stays, "
                        "publish its document again"
                    )
                blocks[shard, blob_id] = decompress(blob, blob_id)
                self._keep((shard, blob_id), blocks[shard, blob_id])
        return blocks

    def _keep(self, key: BlockKey, block: bytes) -> None:
        if key not in self._blocks:
            self._blocks[key] = block
            self.size_bytes += len(block)
        while self.size_bytes > self._max_bytes:
            _, dropped = self._blocks.popitem(last=False)
            self.size_bytes -= len(dropped)
