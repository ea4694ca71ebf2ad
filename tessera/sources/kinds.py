"""Which files of a folder belong to a source of each kind, and the media type they have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from tessera.events.change import MediaType, SourceKind

SUFFIXES: Mapping[SourceKind, Mapping[str, MediaType]] = {
    "documents": {".md": "text/markdown", ".markdown": "text/markdown", ".txt": "text/plain"},
    "devex": {".log": "text/x-run-log"},
    "github": {".log": "text/x-ci-log", ".txt": "text/x-ci-log"},
}


def media_type(kind: SourceKind, doc_id: str) -> MediaType | None:
    """The media type of the file ``doc_id`` in a source of this kind, None where it does not belong to it.

    Suffixes are compared without regard to case: ``README.MD`` is Markdown.
    """
    return SUFFIXES[kind].get(PurePosixPath(doc_id).suffix.casefold())
