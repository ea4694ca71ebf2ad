"""Names of chunks: ``uid`` for machines, ``id`` for people."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from tessera.errors import QueryError

_REVISION = re.compile(r"0|[1-9][0-9]{0,18}")
_ORDINAL = re.compile(r"0|[1-9][0-9]{0,9}")


class ChunkUid(NamedTuple):
    """The parts of a chunk's ``uid``, decoded."""

    source: str
    doc_id: str
    revision: int
    policy_id: str
    ordinal: int


def chunk_uid(source: str, doc_id: str, revision: int, policy_id: str, ordinal: int) -> str:
    """``<source>/<doc_id>@<revision>/<policy id>/<n>``, each part percent-encoded.

    No two chunks share one: the separators cannot occur inside an encoded part.
    """
    return f"{_quoted(source)}/{_quoted(doc_id)}@{revision}/{_quoted(policy_id)}/{ordinal}"


def parse_uid(uid: str) -> ChunkUid:
    """The parts that :func:`chunk_uid` joined.

    Raises :class:`~tessera.errors.QueryError` for anything that it cannot have returned.
    """
    pieces = uid.split("/")
    if len(pieces) == 4:
        source, document, policy, ordinal = pieces
        doc_id, at, revision = document.partition("@")
        if at and _REVISION.fullmatch(revision) and _ORDINAL.fullmatch(ordinal):
            parsed = ChunkUid(unquote(source), unquote(doc_id), int(revision), unquote(policy), int(ordinal))
            if chunk_uid(*parsed) == uid:
                return parsed
    raise QueryError(
        f"{uid[:200]!r} is not a chunk's uid: expected <source>/<doc_id>@<revision>/<policy id>/<n>, "
        "each part percent-encoded, as search answers give it"
    )


def document_stem(doc_id: str) -> str:
    """The document id without its last suffix: ``a.b/readme.tar.gz`` gives ``a.b/readme.tar``.

    A name that begins with its only dot (``.profile``) has no suffix.
    """
    folder, slash, name = doc_id.rpartition("/")
    stem, dot, _suffix = name.rpartition(".")
    return f"{folder}{slash}{stem}" if dot and stem else doc_id


def chunk_id(doc_id: str, ordinal: int) -> str:
    """``<stem>:chunk<n>``; for people, unique only within a source's stems."""
    return f"{document_stem(doc_id)}:chunk{ordinal}"


def _quoted(part: str) -> str:
    return quote(part, safe="", errors="surrogatepass")
