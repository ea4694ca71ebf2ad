"""What to publish: a folder compared with what the index holds of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tessera.documents.held import HeldDocument
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Change
from tessera.sources.content import FileContent
from tessera.sources.documents import Planned, plan_document, plan_gone
from tessera.sources.logs import LastLine, plan_log


def plan(
    files: Iterable[FileContent],
    held: Mapping[str, HeldDocument],
    declaration: SourceDeclaration,
    now_ns: int,
    last_line: LastLine = "publish",
) -> Iterator[Change]:
    """Yield the changes that make the index hold exactly ``files``.

    ``held`` maps document ids to what the index holds of this source; whatever has no file is deleted.
    Deletes come last, each with a revision of at least ``now_ns`` where the source brings its own.
    """
    seen: set[str] = set()
    for file in files:
        seen.add(file.doc_id)
        yield from plan_file(file, held.get(file.doc_id), declaration, last_line).changes
    for doc_id in sorted(held.keys() - seen):
        yield from plan_gone(doc_id, held[doc_id], declaration, now_ns).changes


def plan_file(
    file: FileContent,
    held: HeldDocument | None,
    declaration: SourceDeclaration,
    last_line: LastLine = "publish",
) -> Planned:
    """Compare one file with what the index holds of it."""
    if declaration.is_log:
        return plan_log(file, held, declaration, last_line)
    return plan_document(file, held, declaration)
