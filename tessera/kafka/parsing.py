"""Every record that a broker hands over is read: what aiokafka cannot decode must stop no partition.

Its fetcher decodes the names of headers as UTF-8, checks batches and uncompresses them. What fails there is
raised from the consumer, and raised again whenever the same place is read: one record would stop its
partition for ever. Here a name that is not UTF-8 is read with backslashes, and a batch that cannot be
decoded gives a record for each offset it held, which the decoder of events refuses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords

from tessera.events.decoding import DAMAGED_HEADER
from tessera.kafka.expansion import require_bounded

_FRAME: Final = struct.Struct(">qi")
"""What every batch begins with, whatever its version: base offset, and how many bytes follow."""

_MAGIC_AT: Final = 16
_LAST_OFFSET_DELTA: Final = struct.Struct(">23xi")
_VERSION_2: Final = 2

_MAX_LOST: Final = 100_000
"""More offsets than this in one batch are not believed of a header that may be damaged itself."""


class DamagedRecord(NamedTuple):
    """Stands for a record that cannot be told any more; the first of a batch carries all its bytes."""

    offset: int
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    key: None = None
    timestamp: int = 0
    timestamp_type: int = 0
    checksum: None = None


class ReadableRecords:
    """The batches of one fetch; stands where aiokafka's fetcher has its ``MemoryRecords``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def size_in_bytes(self) -> int:
        """The size of all that was fetched."""
        return len(self._data)

    def has_next(self) -> bool:
        """Whether another batch is here as a whole."""
        return self._end() is not None

    def next_batch(self) -> ReadableBatch | None:
        """The next batch, decoded; None where none is left."""
        end = self._end()
        if end is None:
            return None
        data = bytes(self._data[self._position : end])
        self._position = end
        return ReadableBatch(data, self._base_offset())

    def _end(self) -> int | None:
        start = self._position + _FRAME.size
        if start > len(self._data):
            return None
        _, length = _FRAME.unpack_from(self._data, self._position)
        end = start + length if length > 0 else len(self._data)
        return end if end <= len(self._data) else None

    def _base_offset(self) -> int | None:
        if self._position + _FRAME.size > len(self._data):
            return None
        offset: int = _FRAME.unpack_from(self._data, self._position)[0]
        return offset


class ReadableBatch:
    """One batch, as aiokafka's fetcher reads it. ``following`` is the base offset after it, where known.

    It is decoded by aiokafka; what raises there, whatever it is, makes the batch a damaged one.
    """

    def __init__(self, data: bytes, following: int | None) -> None:
        self.base_offset: int = _FRAME.unpack_from(data)[0]
        self.producer_id: int | None = None
        self.is_control_batch = False
        self.is_transactional = False
        try:
            self._read(data, following)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - no content of a log may stop its partition
            self._give_up(data, following, f"{type(error).__name__}: {error}")

    def validate_crc(self) -> bool:
        """True: a wrong checksum has made this a damaged batch already."""
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records)

    def _read(self, data: bytes, following: int | None) -> None:
        batch = MemoryRecords(data).next_batch()
        if not batch.validate_crc():
            raise ValueError("its checksum does not match its bytes")
        if data[_MAGIC_AT] == _VERSION_2:
            require_bounded(data)
        self._records = _decoded(batch, data)
        self.next_offset: int = batch.next_offset
        offsets = [record.offset for record in self._records]
        if any(one >= other for one, other in pairwise([*offsets, self.next_offset])):
            raise ValueError("its offsets do not rise")
        if following is not None and self.next_offset > following > self.base_offset:
            raise ValueError("its offsets go beyond the next batch")
        self.producer_id = batch.producer_id
        self.is_control_batch = batch.is_control_batch
        self.is_transactional = batch.is_transactional

    def _give_up(self, data: bytes, following: int | None, why: str) -> None:
        self.next_offset = _lost_until(data, self.base_offset, following)
        headers = ((DAMAGED_HEADER, why.encode(errors="backslashreplace")),)
        self._records = [
            DamagedRecord(offset, data if offset == self.base_offset else None, headers)
            for offset in range(self.base_offset, min(self.next_offset, self.base_offset + _MAX_LOST))
        ]


def read_all_records() -> None:
    """Let aiokafka's consumers in this process parse what they fetch with :class:`ReadableRecords`."""
    fetcher.MemoryRecords = ReadableRecords


class _NamesWithBackslashes(bytearray):
    """A batch whose slices decode whatever they hold."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _NamesWithBackslashes(found) if isinstance(index, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "backslashreplace") -> str:
        return super().decode(encoding, "backslashreplace")


def _decoded(batch: Any, data: bytes) -> list[Any]:
    """All records of a sound batch."""
    try:
        return list(batch)
    except UnicodeDecodeError:
        slow = _DefaultRecordBatchPy(data)
        iter(slow)  # uncompresses
        slow._buffer = _NamesWithBackslashes(slow._buffer)
        return list(slow)


def _lost_until(data: bytes, base_offset: int, following: int | None) -> int:
    """The offset after the last one of a damaged batch: as its header says, where that can be believed."""
    if following is not None and following <= base_offset:
        following = None
    if len(data) >= _LAST_OFFSET_DELTA.size and data[_MAGIC_AT] == _VERSION_2:
        delta: int = _LAST_OFFSET_DELTA.unpack_from(data)[0]
        if 0 <= delta < _MAX_LOST and (following is None or base_offset + delta < following):
            return base_offset + delta + 1
    return base_offset + 1 if following is None else following
