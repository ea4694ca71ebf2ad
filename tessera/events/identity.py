"""The rules for names of sources and ids of documents, and the key made of both."""

from __future__ import annotations

import re

from tessera.errors import EventError

MAX_SOURCE_BYTES = 128
"""Bounds metric labels and Redis keys, which every source's name becomes a part of."""

MAX_DOC_ID_BYTES = 1024
"""Bounds keys and URLs; a longer id could not be asked for over HTTP once percent-encoded."""

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters forge log lines and terminal output; lone surrogates have no UTF-8."""


def check_source(name: str, field: str = "source") -> str:
    """Return ``name`` where it can name a source.

    Raises :class:`EventError` (``invalid_source``): empty, over :data:`MAX_SOURCE_BYTES` of UTF-8, ``.`` or
    ``..``, or holding ``/``, a control character or a lone surrogate.
    """
    if "/" in name:
        raise EventError(
            "invalid_source", f"{field} {name[:80]!a} holds '/': it separates source and id", field
        )
    return _check(name, "invalid_source", field, MAX_SOURCE_BYTES)


def check_doc_id(doc_id: str, field: str = "doc_id") -> str:
    """Return ``doc_id`` where it can identify a document. ``/``, ``:``, ``#``, ``@`` and Unicode are fine.

    Raises :class:`EventError` (``invalid_doc_id``): empty, over :data:`MAX_DOC_ID_BYTES` of UTF-8, holding a
    control character or a lone surrogate, or with a path part ``.`` or ``..``, which clients and proxies
    fold away in URLs, so that another document would be asked for.
    """
    return _check(doc_id, "invalid_doc_id", field, MAX_DOC_ID_BYTES)


def split_key(key: bytes) -> tuple[str, str]:
    """Source and document id of a record's key: the text before and after its first ``/``.

    Raises :class:`EventError` (``invalid_key``).
    """
    try:
        source, slash, doc_id = key.decode().partition("/")
    except UnicodeDecodeError as error:
        raise EventError(
            "invalid_key", f"the record's key is not UTF-8 at byte {error.start}", "key"
        ) from None
    if not slash:
        raise EventError("invalid_key", "the record's key has no '/': it must be <source>/<doc_id>", "key")
    try:
        return check_source(source), check_doc_id(doc_id)
    except EventError as error:
        raise EventError("invalid_key", f"the record's key is refused: {error}", "key") from None


def _check(text: str, reason: str, field: str, max_bytes: int) -> str:
    """Return ``text``, or raise with ``reason``."""
    if not text:
        raise EventError(reason, f"{field} is empty", field)
    found = _FORBIDDEN.search(text)
    if found:
        code = ord(found.group())
        raise EventError(reason, f"{field} holds U+{code:04X} at character {found.start()}", field)
    size = len(text.encode())
    if size > max_bytes:
        raise EventError(reason, f"{field} has {size} bytes of UTF-8, at most {max_bytes} are allowed", field)
    if not {".", ".."}.isdisjoint(text.split("/")):
        raise EventError(reason, f"{field} {text[:80]!a} has a part '.' or '..', which URLs fold away", field)
    return text
