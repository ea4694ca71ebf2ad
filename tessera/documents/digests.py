"""Content digests: one pass for documents, by blocks for logs that grow.

A document's digest is the SHA-256 of its UTF-8 content. A log's is the SHA-256 over the SHA-256s of its
consecutive blocks of 65,536 bytes: an append hashes what it brings and the block still open, never the
whole log again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from tessera.documents.text import BLOCK_BYTES

DOCUMENT_PREFIX = "sha256:"
LOG_PREFIX = "sha256-64k:"


def document_digest(content: str | bytes) -> str:
    """``sha256:<hex>`` of the content (of its UTF-8 bytes, where a string is given)."""
    return DOCUMENT_PREFIX + hashlib.sha256(_utf8(content)).hexdigest()


def log_digest(content: str | bytes) -> str:
    """``sha256-64k:<hex>`` of a whole log (of its UTF-8 bytes, where a string is given)."""
    return log_digest_from_block_digests(map(block_digest, _blocks(_utf8(content))))


def log_digest_from_block_digests(digests: Iterable[bytes]) -> str:
    """``sha256-64k:<hex>`` of the log whose blocks have these raw digests, in order; none for an empty log.

    Every block but the last holds exactly :data:`BLOCK_BYTES` bytes, the last at least one.
    """
    return LOG_PREFIX + hashlib.sha256(b"".join(digests)).hexdigest()


def block_digest(block: bytes | memoryview) -> bytes:
    """The raw SHA-256 (32 bytes) of one block."""
    return hashlib.sha256(block).digest()


def _utf8(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _blocks(content: bytes) -> Iterator[memoryview]:
    view = memoryview(content)
    return (view[start : start + BLOCK_BYTES] for start in range(0, len(view), BLOCK_BYTES))
