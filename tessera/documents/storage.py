"""From a draft to what is stored: text blocks, digests, the final record, and what they replace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tessera.documents.digests import block_digest, document_digest, log_digest_from_block_digests
from tessera.documents.draft import Draft
from tessera.documents.record import DocumentRecord, digests_id, order_digest
from tessera.documents.text import BLOCK_BYTES, block_id, blocks_from, compress

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class HeldText:
    """The end of a held text, as loaded for an append: ``data`` begins at byte ``start_byte``.

    ``full_digests`` are the SHA-256 digests of all the text's full blocks, 32 bytes each.
    """

    start_byte: int
    data: bytes
    full_digests: bytes


@dataclass(frozen=True, slots=True)
class StoredText:
    """What one document's change writes: blobs to stage (compressed), and ids of blobs it replaces.

    ``gone`` are those of a deleted or revoked text, which no reader may see again.
    """

    record: DocumentRecord
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def store_text(draft: Draft, held_text: HeldText | None) -> StoredText:
    """Lay a changed draft's text out in blocks; pure.

    ``held_text`` is what was loaded of the text that the draft continues, None where it is new.
    """
    record = draft.record
    assert record is not None
    held = draft.held
    if draft.text is None or draft.fresh or held_text is None:
        old = tuple(held.text_blobs()) if held is not None else ()
        narrowed = record.deleted or (held is not None and held.access != record.access)
        replaced, gone = ((), old) if narrowed else (old, ())
        if draft.text is None:
            return StoredText(record, {}, replaced, gone)
        record, blobs = _lay_out(record, draft.text.data(), 0, b"")
        return StoredText(_finished(record, draft), blobs, replaced, gone)
    assert held is not None
    tail_block = held.size_bytes // BLOCK_BYTES
    data = draft.text.data()[tail_block * BLOCK_BYTES - held_text.start_byte :]
    record, blobs = _lay_out(record, data, tail_block, held_text.full_digests)
    return StoredText(_finished(record, draft), blobs, tuple(_outgrown(held, record)))


def _outgrown(held: DocumentRecord, record: DocumentRecord) -> list[str]:
    """Blobs of the shorter text that the longer one replaces: its last block and its list of digests."""
    outgrown = []
    tail_block = held.size_bytes // BLOCK_BYTES
    if held.size_bytes % BLOCK_BYTES and held.size_bytes != record.size_bytes:
        outgrown.append(block_id(held.text_id, held.size_bytes, tail_block))
    return outgrown + [blob for blob in held.digest_blobs() if blob not in record.digest_blobs()]


def _lay_out(
    record: DocumentRecord, data: bytes, first_block: int, full_digests: bytes
) -> tuple[DocumentRecord, dict[str, bytes]]:
    """Blobs for ``data``, the text from ``first_block`` on, and the record with size and digest."""
    size_bytes = first_block * BLOCK_BYTES + len(data)
    blocks = list(blocks_from(record.text_id, data, first_block, size_bytes))
    blobs = {blob: compress(block) for blob, block in blocks}
    if not record.is_log:
        digest = document_digest(data)
        return replace(record, size_bytes=size_bytes, content_digest=digest), blobs
    digests = [block_digest(block) for _, block in blocks]
    all_digests = full_digests + b"".join(digests)
    full = size_bytes // BLOCK_BYTES
    if full and full * DIGEST_BYTES != len(full_digests):
        blobs[digests_id(record.text_id, full)] = all_digests[: full * DIGEST_BYTES]
    digest = log_digest_from_block_digests([all_digests])
    return replace(record, size_bytes=size_bytes, content_digest=digest), blobs


def _finished(record: DocumentRecord, draft: Draft) -> DocumentRecord:
    assert draft.text is not None
    return replace(
        record,
        lines=draft.text.lines,
        ends_with_newline=draft.text.ends_with_newline,
        gaps=draft.text.gaps,
        order_digest=order_digest(record.content_digest, record.media_type, record.access),
    )
