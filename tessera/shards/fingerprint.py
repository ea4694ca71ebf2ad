"""Order-free fingerprints of sets of documents: a sum modulo 2^128, kept by adding and taking away.

Two generations of a shard whose fingerprints are equal hold the same documents in the same revisions,
whatever the order in which they came. The sum finds what was lost, doubled or left behind; it is no defence
against one who chooses documents so that sums collide.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

MODULUS: Final = 2**128
_HEX_DIGITS: Final = 32


def contribution(key: str, revision: int, content_digest: str) -> int:
    """What one live document adds, from 0 to 2^128 - 1; a deleted document adds nothing, so do not ask."""
    fields = (key, str(revision), content_digest)
    # Lengths set the fields apart: no two documents may give the same bytes.
    encoded = b"".join(
        len(field).to_bytes(8, "big") + field
        for field in (field.encode("utf-8", "surrogatepass") for field in fields)
    )
    return int.from_bytes(sha256(encoded).digest()[:16], "big")


def add(fingerprint: str, plus: int = 0, minus: int = 0) -> str:
    """``fingerprint`` with ``plus`` added and ``minus`` taken away: sums of contributions, of any size.

    Both fingerprints are 32 hex digits. ValueError where ``fingerprint`` is not.
    """
    if len(fingerprint) != _HEX_DIGITS:
        raise ValueError(f"a fingerprint has {_HEX_DIGITS} hex digits, not {len(fingerprint)}")
    return f"{(int(fingerprint, 16) + plus - minus) % MODULUS:0{_HEX_DIGITS}x}"
