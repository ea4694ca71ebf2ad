"""One case against one generation: whether it still speaks of its document, and what holds its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.documents.text import block_ids, decompress
from tessera.errors import CaseError
from tessera.generations.cases import Case, evidence_digest
from tessera.search.snapshot import Found
from tessera.store.base import ShardStore


def holds(case: Case, chunk: Found) -> bool:
    """Whether the chunk holds the case's evidence whole."""
    entry, values = chunk.document, chunk.values()
    same_document = (entry.source, entry.doc_id) == (case.source, case.doc_id)
    return same_document and values["start"] <= case.start and case.end <= values["end"]


async def why_stale(store: ShardStore, case: Case, chunks: Sequence[Found]) -> str:
    """Why the case does not count, given the document's chunks; empty where it does.

    :class:`~tessera.errors.CaseError` where its span never fitted into the document.
    """
    if not chunks:
        return "the document is not held"
    entry, shard = chunks[0].document, chunks[0].shard
    ids = block_ids(entry.text_id, entry.size_bytes)
    blobs = await store.blobs(shard, ids)
    blocks = [decompress(blob, blob_id) for blob, blob_id in zip(blobs, ids, strict=True) if blob is not None]
    if len(blocks) != len(ids):
        return "the document was replaced or deleted meanwhile"
    text = b"".join(blocks).decode()
    if case.end > len(text):
        return _why_outside(case, len(text), entry.content_digest)
    if evidence_digest(text[case.start : case.end]) != case.digest:
        return "the document says something else there now"
    return ""


def _why_outside(case: Case, length: int, content_digest: str) -> str:
    """Why a case counts as stale though its document is too short for it; CaseError where it never fitted."""
    if case.content_digest and case.content_digest != content_digest:
        return f"the document has only {length} characters now"
    raise CaseError(
        f"case {case.id!r}: its span {case.start} to {case.end} is outside the document "
        f"{case.source}/{case.doc_id}, which has {length} characters: mend the case or take it out"
        + (
            ""
            if case.content_digest
            else "; with the content_digest of the document it was taken from, it would count as stale"
        )
    )
