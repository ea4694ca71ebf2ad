"""Dead letters: records that could not be applied, kept until they are replayed or discarded."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from tessera.errors import CorruptionError, InputError
from tessera.events.parts import PART_HEADER
from tessera.events.topics import partition_of
from tessera.shards.records import REPLAY_HEADER
from tessera.store.base import ShardId, ShardStore, deadletter_blob

Headers = tuple[tuple[str, bytes], ...]
Republish = Callable[[str, bytes | None, bytes | None, Headers], Awaitable[object]]
"""Publishes (topic, key, value, headers), split where it is large; returns once the broker has it."""

MAX_HEADER_BYTES = 1024
"""Headers on the dead-letter topic are for people; the whole of the reason is kept in the store."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter without its bytes. ``timestamp_ms`` is the record's own, in Unix milliseconds."""

    id: str
    topic: str
    partition: int
    epoch: int
    offset: int
    log_revision: int
    reason: str
    field: str
    message: str
    key: bytes | None
    headers: Headers
    has_value: bool
    size_bytes: int
    timestamp_ms: int

    @property
    def shard(self) -> ShardId:
        """The shard that holds it."""
        return ShardId(self.topic, self.partition)


class Outgoing(NamedTuple):
    """A dead letter as it is produced to its topic."""

    id: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_deadletter(deadletter_id: str, data: bytes) -> DeadLetter:
    """Read a stored description; raises CorruptionError naming the dead letter."""
    try:
        fields = orjson.loads(data)
        key = fields.pop("key_base64")
        headers = tuple((name, b64decode(value)) for name, value in fields.pop("headers"))
        return DeadLetter(
            id=deadletter_id, key=None if key is None else b64decode(key), headers=headers, **fields
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"dead letter {deadletter_id} cannot be read ({error}): discard it and publish its document again"
        ) from error


async def list_deadletters(store: ShardStore, shards: Iterable[ShardId] | None = None) -> list[DeadLetter]:
    """All dead letters, by shard and within one in order of arrival."""
    letters = []
    for shard in await all_shards(store) if shards is None else shards:
        stored = await store.deadletters(shard)
        letters += [decode_deadletter(letter_id, data) for letter_id, data in stored.items()]
    return sorted(letters, key=lambda letter: (letter.topic, letter.partition, letter.epoch, letter.offset))


async def all_shards(store: ShardStore) -> list[ShardId]:
    """Every shard of every recorded topic."""
    topics = await store.topics()
    return [ShardId(topic, number) for topic in sorted(topics) for number in range(topics[topic])]


async def find_deadletter(store: ShardStore, deadletter_id: str) -> tuple[DeadLetter, bytes | None]:
    """One dead letter and the record's value (None for a null value); InputError where there is none."""
    topic, _, rest = deadletter_id.partition(":")
    number = rest.partition(":")[0]
    if number.isascii() and number.isdigit():
        shard = ShardId(topic, int(number))
        stored = (await store.deadletters(shard)).get(deadletter_id)
        if stored is not None:
            letter = decode_deadletter(deadletter_id, stored)
            return letter, await _value(store, letter)
    raise InputError(
        f"there is no dead letter {deadletter_id!r}: `tessera deadletter list` shows those there are"
    )


async def replay_deadletter(store: ShardStore, republish: Republish, deadletter_id: str) -> None:
    """Publish a dead letter to its topic again and take it off the list once the broker has it.

    The record carries the log revision it had at first, so that it is refused where its document has
    applied a later change since. InputError where there is no such dead letter.
    """
    letter, value = await find_deadletter(store, deadletter_id)
    headers = tuple((n, v) for n, v in letter.headers if n not in (REPLAY_HEADER,))
    if await _belongs_here(store, letter):
        origin = {"log_revision": letter.log_revision, "offset": letter.offset}
        headers += ((REPLAY_HEADER, orjson.dumps(origin)),)
    await republish(letter.topic, letter.key, value, headers)
    await store.discard_deadletter(letter.shard, letter.id)


async def discard_deadletter(store: ShardStore, deadletter_id: str) -> None:
    """Remove a dead letter for good; InputError where there is none."""
    letter, _ = await find_deadletter(store, deadletter_id)
    await store.discard_deadletter(letter.shard, letter.id)


async def outgoing(store: ShardStore, shard: ShardId) -> list[Outgoing]:
    """The dead letters of a shard's outbox as they are to be produced, oldest first."""
    waiting = await store.outbox(shard)
    if not waiting:
        return []
    stored = await store.deadletters(shard)
    letters = [decode_deadletter(name, stored[name]) for name in waiting if name in stored]
    return [await _outgoing(store, letter) for letter in letters]


async def _outgoing(store: ShardStore, letter: DeadLetter) -> Outgoing:
    headers = _headers(letter)
    try:
        value = await _value(store, letter)
    except CorruptionError:
        value, headers = b"", (*headers, ("tessera-lost", b"the value"))
    return Outgoing(letter.id, letter.key, value, headers)


async def _value(store: ShardStore, letter: DeadLetter) -> bytes | None:
    """The record's value, None for a null value; CorruptionError where its bytes are gone."""
    if not letter.has_value:
        return None
    [value] = await store.blobs(letter.shard, [deadletter_blob(letter.id)])
    if value is None:
        raise CorruptionError(
            f"the bytes of dead letter {letter.id} are gone: it was replayed or discarded meanwhile, "
            "or the server lost them"
        )
    return value


async def _belongs_here(store: ShardStore, letter: DeadLetter) -> bool:
    """Whether the key's partition is the one it came from: only there does its log revision mean anything."""
    partitions = (await store.topics()).get(letter.topic)
    return bool(
        letter.key is not None and partitions and partition_of(letter.key, partitions) == letter.partition
    )


def _headers(letter: DeadLetter) -> Headers:
    described = {
        "tessera-deadletter-id": letter.id,
        "tessera-reason": letter.reason,
        "tessera-message": letter.message,
        "tessera-topic": letter.topic,
        "tessera-partition": str(letter.partition),
        "tessera-offset": str(letter.offset),
    }
    own = tuple((name, text.encode()[:MAX_HEADER_BYTES]) for name, text in described.items())
    return tuple(pair for pair in letter.headers if pair[0] == PART_HEADER) + own
