"""Where cutting a growing log goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tessera.errors import CorruptionError

Heading = tuple[int, str]
"""Level (1 to 6) and text."""


@dataclass(frozen=True, slots=True)
class Resume:
    """A place in a source from which it can be cut on, with what a parser must know there.

    ``ordinal`` is the number of the first chunk from there on, ``start`` counts code points, ``start_line``
    lines from 1, ``start_token`` tokens. The place is the start of a line; for parser ``window`` it may be
    that of a token.

    Parser ``paragraph`` keeps ``headings``, the open ones by level. Parser ``window`` keeps these and
    ``inside``: the kind of the block that began before the place and goes on behind it (``heading`` or
    ``text``, empty where none does). Parser ``runner`` keeps ``seen_stamp``, ``group`` (title of the open
    group, None outside) and ``closing``: the open unit ends with the message that the place is inside of. A
    place inside a message needs no mark of its own, since once a stamp was seen a line without one always
    continues a message.
    """

    ordinal: int = 0
    start: int = 0
    start_line: int = 1
    start_token: int = 0
    headings: tuple[Heading, ...] = ()
    inside: str = ""
    seen_stamp: bool = False
    group: str | None = None
    closing: bool = False

    @classmethod
    def begin(cls) -> Resume:
        """Return the beginning of a source."""
        return cls()

    def after_gap(self, start: int, start_line: int, start_token: int, ordinal: int) -> Resume:
        """Return the place behind missing lines: nothing joins across them.

        Open headings and whether a stamp was seen are kept; block, group and message are over.
        """
        return replace(
            self,
            ordinal=ordinal,
            start=start,
            start_line=start_line,
            start_token=start_token,
            inside="",
            group=None,
            closing=False,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that :meth:`from_json` reads."""
        return {
            "ordinal": self.ordinal,
            "start": self.start,
            "start_line": self.start_line,
            "start_token": self.start_token,
            "headings": [[level, text] for level, text in self.headings],
            "inside": self.inside,
            "seen_stamp": self.seen_stamp,
            "group": self.group,
            "closing": self.closing,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Resume:
        """Return the place that :meth:`to_json` wrote. CorruptionError where ``value`` is not one."""
        try:
            headings = tuple((int(level), str(text)) for level, text in value["headings"])
            return cls(**{**value, "headings": headings})
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(
                f"a stored parser state cannot be read: {error}; rebuild the document"
            ) from error
