"""Documents: files that are replaced as a whole, with a revision of their own.

The revision is the modification time in nanoseconds, or one more than the revision held where that is
greater: a file put back with an older time (``git checkout``, ``cp -p``) is still the newer content.
"""

from __future__ import annotations

from typing import NamedTuple

from tessera.documents.digests import document_digest
from tessera.documents.held import HeldDocument
from tessera.errors import SourceError
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import MAX_REVISION, Change, Delete, Upsert
from tessera.events.content import decode_content
from tessera.sources.content import FileContent


class Planned(NamedTuple):
    """The changes that bring the index to what a file holds, in order, and what it holds after them."""

    changes: list[Change]
    after: HeldDocument | None


def plan_document(file: FileContent, held: HeldDocument | None, declaration: SourceDeclaration) -> Planned:
    """Compare one file with what the index holds of it: an upsert, or nothing."""
    content, undecodable = decode_content(file.content)
    digest = document_digest(content)
    if held is not None and is_same(held, digest, file, declaration):
        return Planned([], held)
    revision = _revision(file.mtime_ns, held, declaration)
    change = Upsert(
        source=declaration.name,
        doc_id=file.doc_id,
        revision=revision,
        media_type=file.media_type,
        content=content,
        access=declaration.access,
        undecodable=undecodable,
        raw=file.content if undecodable else None,
    )
    after = HeldDocument(revision or 0, digest, file.media_type, declaration.access)
    return Planned([change], after)


def plan_gone(doc_id: str, held: HeldDocument, declaration: SourceDeclaration, now_ns: int) -> Planned:
    """The delete of a document (or log) whose file is gone; nothing where it is deleted already."""
    if held.deleted:
        return Planned([], held)
    revision = None if declaration.is_log else _revision(now_ns, held, declaration)
    after = HeldDocument(revision or held.revision, "", held.media_type, held.access, deleted=True)
    return Planned([Delete(declaration.name, doc_id, revision)], after)


def is_same(held: HeldDocument, digest: str, file: FileContent, declaration: SourceDeclaration) -> bool:
    """Whether the index holds exactly this: content, media type and access."""
    return (
        not held.deleted
        and held.content_digest == digest
        and held.media_type == file.media_type
        and set(held.access) == set(declaration.access)
    )


def _revision(time_ns: int, held: HeldDocument | None, declaration: SourceDeclaration) -> int | None:
    if declaration.revision_from == "log":
        return None
    revision = max(time_ns, 0 if held is None else held.revision + 1)
    if revision > MAX_REVISION:
        raise SourceError(
            f"no revision is left above {MAX_REVISION - 1}: correct the file's modification time, or delete "
            "the document outright (a record with a null value) and publish it again"
        )
    return revision
