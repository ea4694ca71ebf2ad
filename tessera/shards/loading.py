"""What a batch needs to read before it can be applied: unfinished parts, records, texts of logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.documents.draft import Draft, needs_whole_text
from tessera.documents.log import LogText
from tessera.documents.record import DocumentRecord, decoded_records
from tessera.documents.storage import DIGEST_BYTES, HeldText
from tessera.documents.text import BLOCK_BYTES, block_ids, decompress
from tessera.errors import CorruptionError, EventError
from tessera.events.catalog import SourceCatalog, SourceDeclaration
from tessera.events.change import Append, Change, Record
from tessera.events.decoding import check_routing, decode_joined
from tessera.events.parts import PART_HEADER
from tessera.limits import Limits
from tessera.shards.counting import Recount, recount
from tessera.shards.parts import Assembly, JoinError
from tessera.shards.records import Arrival, PartArrival, Poison
from tessera.store.base import Head, ShardId, ShardStore


@dataclass(slots=True)
class Assembled:
    """A batch's changes once its parts are put together. ``stored_parts`` are blob ids kept earlier."""

    arrivals: list[Arrival] = field(default_factory=list)
    poison: list[Poison] = field(default_factory=list)
    assemblies: dict[str, Assembly] = field(default_factory=dict)
    stored_parts: set[str] = field(default_factory=set)


async def load_assemblies(store: ShardStore, shard: ShardId, keys: Sequence[str]) -> dict[str, Assembly]:
    """The unfinished events of these keys, with the bytes of their parts.

    An event with a part that is gone cannot be finished: it is given up.
    """
    states = await store.parts(shard, keys)
    assemblies = {key: Assembly.decode(state) for key, state in zip(keys, states, strict=True)}
    groups = [group for assembly in assemblies.values() for group in assembly.groups.values()]
    wanted = [(group, index, blob) for group in groups for index, blob in group.stored.items()]
    blobs = await store.blobs(shard, [blob for _, _, blob in wanted])
    for (group, index, _), blob in zip(wanted, blobs, strict=True):
        if blob is not None:
            group.loaded[index] = blob
    for assembly in assemblies.values():
        assembly.give_up_damaged()
    return assemblies


def assemble(
    decoded: Sequence[Arrival | PartArrival | Poison],
    assemblies: dict[str, Assembly],
    shard: ShardId,
    catalog: SourceCatalog,
    limits: Limits,
) -> Assembled:
    """Put parts together in order of arrival; a change stands where its last part arrived. Pure."""
    result = Assembled(assemblies=assemblies)
    result.stored_parts = {blob for assembly in assemblies.values() for blob in assembly.blob_ids()}
    for item in decoded:
        if isinstance(item, Poison):
            result.poison.append(item)
        elif isinstance(item, Arrival):
            result.arrivals.append(item)
        else:
            _take_part(item, result, shard, catalog, limits)
    return result


def _take_part(
    item: PartArrival, result: Assembled, shard: ShardId, catalog: SourceCatalog, limits: Limits
) -> None:
    assembly = result.assemblies[item.key]
    event = None
    try:
        event = assembly.add(item.part, item.stamp)
        if event is not None:
            change = decode_joined(item.key.encode(), event, limits.max_document_bytes)
            check_routing(change, catalog, shard.topic)
            result.arrivals.append(Arrival(_joined(item.record, event), item.key, item.stamp, change))
    except JoinError as error:
        result.poison.append(Poison.of(_joined(item.record, error.payload), item.stamp, error))
    except EventError as error:
        record = item.record if event is None else _joined(item.record, event)
        result.poison.append(Poison.of(record, item.stamp, error))
    assembly.evict(limits.max_open_groups)
    while assembly.given_up:
        given_up = assembly.given_up.pop()
        result.poison.append(
            Poison(
                item.record._replace(headers=()),
                item.stamp,
                "incomplete_document",
                f"not all parts of this event of {item.key!r} came, or some are lost: publish it again",
                "",
                given_up,
                suffix=f":{len(assembly.given_up)}",
            )
        )


@dataclass(slots=True)
class Loaded:
    """Drafts of all documents that a batch touches, and the held texts that their appends continue.

    ``recount`` is what the shard counts, where a stored record among them cannot be read.
    """

    drafts: dict[str, Draft] = field(default_factory=dict)
    texts: dict[str, HeldText] = field(default_factory=dict)
    recount: Recount | None = None


def _joined(record: Record, event: bytes) -> Record:
    """The record as if the whole event had come in it."""
    headers = tuple(header for header in record.headers if header[0] != PART_HEADER)
    return record._replace(headers=headers, value=event)


async def load_drafts(
    store: ShardStore, head: Head, arrivals: Sequence[Arrival], catalog: SourceCatalog, limits: Limits
) -> Loaded:
    """A draft per document that the changes touch, with its record and the text its appends continue."""
    changes: dict[str, list[Change]] = {}
    for arrival in arrivals:
        changes.setdefault(arrival.key, []).append(arrival.change)
    stored = await store.documents(head.shard, list(changes))
    loaded = Loaded()
    for (key, of_key), data in zip(changes.items(), stored, strict=True):
        draft = _draft(catalog[of_key[0].source], of_key[0].doc_id, key, data, limits)
        loaded.drafts[key] = draft
        held = draft.held
        if held is None or held.deleted or not any(isinstance(change, Append) for change in of_key):
            continue
        try:
            loaded.texts[key] = await _hold_text(store, head, draft, held, of_key)
        except CorruptionError as error:
            draft.damage = error
    if any(draft.history_lost for draft in loaded.drafts.values()):
        loaded.recount = await _recounted(store, head)
    return loaded


async def _recounted(store: ShardStore, head: Head) -> Recount:
    records, _ = decoded_records(await store.scan_documents(head.shard))
    return recount(head, dict(records), await store.counters(head.shard))


def _draft(
    declaration: SourceDeclaration, doc_id: str, key: str, data: bytes | None, limits: Limits
) -> Draft:
    """A draft with its stored record; one that cannot be read leaves room for whole new content only."""
    try:
        held = None if data is None else DocumentRecord.decode(data, key)
    except CorruptionError as error:
        draft = Draft(declaration, doc_id, None, limits)
        draft.damage, draft.history_lost = error, True
        return draft
    return Draft(declaration, doc_id, held, limits)


async def _hold_text(
    store: ShardStore, head: Head, draft: Draft, record: DocumentRecord, changes: list[Change]
) -> HeldText:
    """Load the held text that appends continue, only its end where that is enough, and hand it to the draft.

    A text from an earlier log epoch is loaded whole and begins anew: names of blocks are unique per epoch.
    """
    foreign = not _same_epoch(record, head)
    whole = foreign or needs_whole_text(record, changes)
    held = await _load_text(store, head.shard, draft.key, record, 0 if whole else _needed_from(record, head))
    text = LogText(
        held.data,
        held.start_byte == 0,
        record.lines,
        record.size_bytes,
        record.ends_with_newline,
        record.gaps,
    )
    draft.hold_text(text, begins_anew=foreign)
    return held


def _same_epoch(record: DocumentRecord, head: Head) -> bool:
    return record.text_id.partition("-")[0] == f"{head.epoch:x}"


def _needed_from(record: DocumentRecord, head: Head) -> int:
    """The first byte an append needs: of the last block, and of every generation's open chunk."""
    tail = record.size_bytes // BLOCK_BYTES * BLOCK_BYTES
    starts = [
        state.resume_byte
        if (state := record.indexed.get(name)) is not None and state.resume is not None
        else 0
        for name in head.live
    ]
    return min([tail, *starts]) // BLOCK_BYTES * BLOCK_BYTES


async def _load_text(
    store: ShardStore, shard: ShardId, key: str, record: DocumentRecord, start_byte: int
) -> HeldText:
    ids = block_ids(record.text_id, record.size_bytes, start_byte) + record.digest_blobs()
    blobs = await store.blobs(shard, ids)
    for blob_id, blob in zip(ids, blobs, strict=True):
        if blob is None:
            raise CorruptionError(
                f"blob {blob_id} of log {key!r} in shard {shard} is gone: publish the whole log as an upsert"
            )
    found = [blob for blob in blobs if blob is not None]
    digests = found.pop() if record.digest_blobs() else b""
    data = b"".join(decompress(blob, blob_id) for blob, blob_id in zip(found, ids, strict=False))
    full = record.size_bytes // BLOCK_BYTES
    if len(digests) != full * DIGEST_BYTES:
        raise CorruptionError(
            f"the block digests of log {key!r} in shard {shard} are not {full}: upsert the log"
        )
    return HeldText(start_byte, data, digests)
