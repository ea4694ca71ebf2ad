from __future__ import annotations

import hashlib

import pytest

from tessera.documents.digests import (
    BLOCK_BYTES,
    block_digest,
    document_digest,
    log_digest,
    log_digest_from_block_digests,
)


def slow_log_digest(content: bytes) -> str:
    blocks = [content[at : at + 65_536] for at in range(0, len(content), 65_536)]
    joined = b"".join(hashlib.sha256(block).digest() for block in blocks)
    return "sha256-64k:" + hashlib.sha256(joined).hexdigest()


def test_a_documents_digest_is_that_of_its_utf8_content() -> None:
    expected = "sha256:" + hashlib.sha256(b"caf\xc3\xa9").hexdigest()
    assert document_digest("café") == document_digest(b"caf\xc3\xa9") == expected


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
def test_a_logs_digest_is_taken_over_its_blocks_digests(size: int) -> None:
    content = bytes(n * 7 % 251 for n in range(size))
    assert log_digest(content) == slow_log_digest(content)


def test_a_logs_digest_can_be_carried_on_from_its_closed_blocks() -> None:
    content = b"line\n" * 40_000
    closed = [block_digest(content[at : at + BLOCK_BYTES]) for at in range(0, 3 * BLOCK_BYTES, BLOCK_BYTES)]
    open_block = content[3 * BLOCK_BYTES :]
    assert log_digest_from_block_digests([*closed, block_digest(open_block)]) == log_digest(content)


def test_digests_of_documents_and_logs_are_never_equal() -> None:
    assert document_digest("a") != log_digest("a")
