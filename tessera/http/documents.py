"""``GET /api/chunks/{uid}`` and ``GET /api/documents/{source}/{doc_id}``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from tessera.documents.record import DocumentRecord
from tessera.errors import QueryError, StaleSnapshotError
from tessera.http.access import Principals
from tessera.http.failures import RefusedError
from tessera.http.schema import DocumentBody, HitBody, errors
from tessera.http.services import Serving
from tessera.ingestion import lf_lines, uncovered_ranges
from tessera.search import Hit, Searcher
from tessera.search.part import is_visible
from tessera.search.stored import document_text, stored_document

router = APIRouter(tags=["documents"])

CHUNKS_PATH = "/api/chunks/"
ATTEMPTS = 5
"""Record, chunks and text are read one after the other; a document that changes meanwhile is read again."""


@router.get(CHUNKS_PATH + "{uid:path}", response_model=HitBody, responses=errors(401, 403, 404, 422, 503))
async def chunk(request: Request, uid: str, services: Serving, principals: Principals) -> Response:
    """The chunk with this uid. Give the uid as search answers it, or percent-encoded once more."""
    found = await _chunk(services.searcher, _as_sent(request, uid), principals)
    if found is None:
        raise RefusedError(404, "not_found", "there is no such chunk now, or you may not see it")
    return Response(orjson.dumps(found), media_type="application/json")


async def _chunk(searcher: Searcher, sent: str, principals: frozenset[str] | None) -> Hit | None:
    try:
        found = await searcher.chunk(sent, principals)
    except QueryError:
        return await searcher.chunk(unquote(sent), principals)
    decoded = unquote(sent)
    if found is None and decoded != sent:
        try:
            return await searcher.chunk(decoded, principals)
        except QueryError:  # the uid as it was sent was well formed, and is not there
            return None
    return found


def _as_sent(request: Request, uid: str) -> str:
    """The uid with the percent-encoding it was sent with: decoded, its parts could not be told apart."""
    raw: bytes | None = request.scope.get("raw_path")
    if raw is None:
        return uid
    return raw.partition(b"?")[0].decode("latin-1").partition(CHUNKS_PATH)[2]


@router.get(
    "/api/documents/{source}/{doc_id:path}",
    response_model=DocumentBody,
    responses=errors(401, 403, 404, 503),
)
async def document(source: str, doc_id: str, services: Serving, principals: Principals) -> Response:
    """A document with its chunks in the serving generation, and the ranges that no chunk holds."""
    for _ in range(ATTEMPTS):
        stored = await stored_document(services.store, source, doc_id)
        if stored is None or stored.record.deleted or not is_visible(stored.record.access, principals):
            raise RefusedError(404, "not_found", "there is no such document, or you may not see it")
        hits = await services.searcher.document_chunks(source, doc_id, principals) or []
        if all(_is_of(hit, stored.record) for hit in hits):
            text = await document_text(services.store, stored)
            if text is not None:
                return _answer(source, doc_id, stored.record, text, hits)
    raise StaleSnapshotError(f"{source}/{doc_id} changes faster than it can be read: ask again")


def _is_of(hit: Hit, record: DocumentRecord) -> bool:
    return (hit.revision, hit.content_digest) == (record.revision, record.content_digest)


def _answer(source: str, doc_id: str, record: DocumentRecord, text: str, hits: list[Hit]) -> Response:
    body = {
        "source": source,
        "doc_id": doc_id,
        "revision": record.revision,
        "content_digest": record.content_digest,
        "media_type": record.media_type,
        "access": record.access,
        "size_bytes": record.size_bytes,
        "undecodable": record.undecodable,
        "chunks": [asdict(hit) for hit in hits],
        "uncovered": _uncovered(record, text, hits),
    }
    return Response(orjson.dumps(body), media_type="application/json")


def _uncovered(record: DocumentRecord, text: str, hits: list[Hit]) -> list[dict[str, Any]]:
    """Content in no chunk, and the lines of a log that have not arrived, in rising order."""
    lines = text if record.is_log else lf_lines(text)
    ranges = [{**found._asdict(), "missing": False} for found in uncovered_ranges(lines, hits)]
    if record.gaps:
        # A missing line stands as an empty one: the n-th line begins behind the (n-1)-th LF.
        starts = [0, *(position + 1 for position, character in enumerate(text) if character == "\n")]
        for first, last in record.gaps:
            span = {"start": starts[first - 1], "end": starts[last]}
            ranges.append({**span, "start_line": first, "end_line": last, "missing": True})
    return sorted(ranges, key=lambda each: each["start"])
