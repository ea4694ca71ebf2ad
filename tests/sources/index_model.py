"""A slow, obvious index: whole contents by document id, changed by one change after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tessera.documents.digests import document_digest, log_digest
from tessera.documents.held import HeldDocument
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Append, Change, Delete, Upsert
from tessera.events.content import decode_content
from tessera.sources.content import FileContent
from tessera.sources.kinds import media_type

HANDBOOK = SourceDeclaration("handbook", "documents", "event", ("group:staff",))
DEVEX = SourceDeclaration("devex", "devex", "log", ("*",))
GITHUB = SourceDeclaration("github", "github", "log", ("*",))


@dataclass
class IndexModel:
    """Refuses what the real index would: revisions that do not grow, appends that leave a gap."""

    declaration: SourceDeclaration
    contents: dict[str, str] = field(default_factory=dict)
    held: dict[str, HeldDocument] = field(default_factory=dict)

    def apply(self, changes: Iterable[Change]) -> list[Change]:
        applied = list(changes)
        for change in applied:
            self._apply(change)
        return applied

    def _apply(self, change: Change) -> None:
        before = self.held.get(change.doc_id)
        if isinstance(change, Append):
            content = "" if before is None or before.deleted else self.contents[change.doc_id]
            assert change.first_line == content.count("\n") + 1
            assert change.content.endswith("\n")
            assert content == "" or content.endswith("\n")
            self._hold(change, content + change.content, 0 if before is None else before.revision)
            return
        revision = change.revision
        if self.declaration.revision_from == "event":
            assert revision is not None
            assert before is None or revision > before.revision
        else:
            assert revision is None
        revision = revision if revision is not None else (0 if before is None else before.revision + 1)
        if isinstance(change, Delete):
            assert before is not None
            assert not before.deleted
            self.contents.pop(change.doc_id)
            self.held[change.doc_id] = HeldDocument(revision, "", before.media_type, before.access, True)
        else:
            self._hold(change, change.content, revision)

    def _hold(self, change: Upsert | Append, content: str, revision: int) -> None:
        if change.undecodable:
            assert change.raw is not None
            assert decode_content(change.raw) == (change.content, change.undecodable)
        else:
            assert change.raw is None
        assert change.source == self.declaration.name
        assert change.media_type is not None
        assert change.access is not None
        self.contents[change.doc_id] = content
        digest = log_digest if self.declaration.is_log else document_digest
        self.held[change.doc_id] = HeldDocument(
            revision,
            digest(content),
            change.media_type,
            change.access,
            lines=content.count("\n") + (1 if content and not content.endswith("\n") else 0),
            size_bytes=len(content.encode()),
            ends_with_newline=content.endswith("\n") or not content,
        )


def file(
    doc_id: str, content: str | bytes, declaration: SourceDeclaration, mtime_ns: int = 1_000
) -> FileContent:
    kind = media_type(declaration.kind, doc_id)
    assert kind is not None
    return FileContent(doc_id, kind, content.encode() if isinstance(content, str) else content, mtime_ns)
