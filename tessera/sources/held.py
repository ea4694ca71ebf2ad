"""What the index holds of one document, as a connector needs it to tell what has changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldDocument:
    """One document of a source as the index holds it.

    ``content_digest`` is that of :mod:`tessera.documents.digests`, empty for a deleted document.
    ``access`` holds the principals that apply, the source's default filled in. The last three describe
    the held text: ``lines`` counts as ``sed -n`` does, ``size_bytes`` is that of its UTF-8 form.
    """

    revision: int
    content_digest: str
    media_type: str
    access: tuple[str, ...]
    deleted: bool = False
    lines: int = 0
    size_bytes: int = 0
    ends_with_newline: bool = True
