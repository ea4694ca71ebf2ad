"""What processes log: lines for people, or JSON whose fields say which shard, record or generation is meant.

Fields are given as ``extra``; no text of a document is ever among them, nor in a message.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any, Final, Literal, TextIO

from pythonjsonlogger.orjson import OrjsonFormatter

from tessera.store.base import ShardId

LogFormat = Literal["text", "json"]

AUDIT: Final = "tessera.audit"
"""Who asked for what only the operator may, and who was refused: always written."""

OWN: Final = ("tessera", "streams")

REPEAT_AFTER_S: Final = 30.0
"""While a broker is away its client reports the same failures eighty times a second."""

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def on(shard: ShardId | None = None, **fields: Any) -> dict[str, Any]:
    """A log line's ``extra``: the shard's topic and partition, and ``fields`` (offset, generation, …)."""
    place = {} if shard is None else {"topic": shard.topic, "partition": shard.partition}
    return {**place, **fields}


def configure_logging(
    log_format: LogFormat = "text", stream: TextIO | None = None, own_level: int = logging.INFO
) -> None:
    """Log to ``stream`` (standard error): this project's lines from ``own_level`` on, others from WARNING on.

    JSON has one object per line: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, the line's
    fields, and ``exc_info`` where there is a traceback.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(log_format))
    handler.addFilter(SeldomRepeated())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(own_level)
    logging.getLogger(AUDIT).setLevel(logging.INFO)


def stack_of(error: BaseException | None) -> str:
    """Where an unforeseen error was raised, and what led to it, without messages: they can quote a text."""
    parts = []
    while error is not None:
        frames = "".join(traceback.format_tb(error.__traceback__))
        parts.append(f"{frames}{type(error).__module__}.{type(error).__qualname__}")
        error = error.__cause__ or error.__context__
    return "\ncaused by\n".join(parts)


def _formatter(log_format: LogFormat) -> logging.Formatter:
    if log_format == "text":
        return logging.Formatter(_TEXT)
    return OrjsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger"},
        timestamp="time",
    )


class SeldomRepeated(logging.Filter):
    """Lets the same kind of line of another library through once in :data:`REPEAT_AFTER_S` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is to be written."""
        kind = (record.name, str(record.msg))
        if record.name.startswith(OWN):
            return True
        if record.created - self._passed_at.get(kind, 0.0) < REPEAT_AFTER_S:
            return False
        self._passed_at[kind] = record.created
        return True
