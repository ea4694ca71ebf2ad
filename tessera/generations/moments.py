"""Points in time as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_LAST_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, the last one that a date can have."""


def shown(at_ms: int) -> str:
    """Unix milliseconds as an ISO 8601 time in UTC, to the second; one beyond the calendar as its border.

    Times come from operators and the control log: one that no calendar holds must not end whoever shows it.
    """
    within_ms = min(max(at_ms, 0), _LAST_MS)
    return datetime.fromtimestamp(within_ms // 1000, UTC).isoformat(timespec="seconds")
