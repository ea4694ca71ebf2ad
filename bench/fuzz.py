"""Coverage-guided fuzzing of everything that reads bytes or text from outside.

    python -m bench.fuzz TARGET [-max_total_time=60] [libFuzzer's options…]

TARGET is one of ``event``, ``chunk_text``, ``log_chunks``, ``policies``, ``segment``. Needs the package
``atheris`` (Linux). An input that breaks a promise is written to ``crash-…`` in the current folder and ends
the run: make a test of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import atheris
import orjson

with atheris.instrument_imports(include=["tessera"]):
    from tessera.errors import CorruptionError, EventError
    from tessera.events.decoding import decode_value
    from tessera.index.codec import decode, encode
    from tessera.ingestion import Chunk, Resume, chunk_text, parse_log_chunks, uncovered_ranges
    from tessera.policies import BUILT_IN, ChunkPolicy, TextPolicy

EVENT = {"v": 1, "op": "upsert", "source": "s", "doc_id": "d", "media_type": "text/plain", "content": "x"}
FIELDS = [
    *EVENT,
    "access",
    "revision",
    "content_base64",
    "occurred_at",
    "first_line",
    "part",
    "of",
    "group",
    "new",
]
WORDS = [
    "upsert",
    "delete",
    "append",
    "text/markdown",
    "text/x-ci-log",
    "*",
    "YQ==",
    "2026-01-01T00:00:00Z",
    "a\nb",
]
POLICIES = (
    *BUILT_IN.values(),
    ChunkPolicy("small", TextPolicy("markdown", 7, 2, "section")),
    ChunkPolicy("tiny", TextPolicy("sentence", 3, 1, "headings")),
)


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def event(data: bytes) -> None:
    """A record's value is a change, or an EventError says why not."""
    provider = atheris.FuzzedDataProvider(data)
    fields = dict(EVENT)
    for _ in range(provider.ConsumeIntInRange(0, 4)):
        fields[provider.PickValueInList(FIELDS)] = drawn(provider, 2)
    value = orjson.dumps(fields, option=orjson.OPT_NON_STR_KEYS)
    if provider.ConsumeBool():
        value = value[: provider.ConsumeIntInRange(0, len(value))] + provider.ConsumeBytes(20)
    with suppress(EventError):
        decode_value(value, 1 << 20)


def drawn(provider: atheris.FuzzedDataProvider, depth: int) -> Any:
    """Any JSON value."""
    kind = provider.ConsumeIntInRange(0, 7 if depth else 5)
    if kind == 0:
        return None
    if kind == 1:
        return provider.ConsumeBool()
    if kind == 2:
        return provider.ConsumeIntInRange(-(2**63), 2**63 - 1)
    if kind == 3:
        return provider.ConsumeFloat()
    if kind == 4:
        return provider.PickValueInList(WORDS)
    if kind == 5:
        return provider.ConsumeUnicodeNoSurrogates(20)
    values = [drawn(provider, depth - 1) for _ in range(provider.ConsumeIntInRange(0, 3))]
    return values if kind == 6 else {str(number): value for number, value in enumerate(values)}


def verbatim(text: str, chunks: list[Chunk]) -> None:
    """Chunks are slices of the text, rising, and no line with content is in none."""
    before = -1
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.start > before
        before = chunk.start


def document(data: bytes) -> None:
    """``chunk_text`` leaves nothing out."""
    text = text_of(data)
    chunks = chunk_text(text, "d")
    verbatim(text, chunks)
    assert not list(uncovered_ranges(text, chunks, Resume.begin())) or "\r" in text


def log(data: bytes) -> None:
    """``parse_log_chunks`` leaves nothing out."""
    text = text_of(data)
    verbatim(text, parse_log_chunks(text, "d"))


def policies(data: bytes) -> None:
    """Every policy cuts every text, within its size."""
    if not data:
        return
    policy, text = POLICIES[data[0] % len(POLICIES)], text_of(data[1:])
    for chunk in policy.chunk(text, "d"):
        assert text[chunk.start : chunk.end] == chunk.text
        size = policy.documents.size
        if size is not None and chunk.start_token is not None and chunk.end_token is not None:
            assert chunk.end_token - chunk.start_token <= size


def segment(data: bytes) -> None:
    """A blob is a segment that gives the blob back, or corruption is told."""
    with suppress(CorruptionError):
        found = decode(data)
        assert decode(encode(found)).terms == found.terms


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "event": event,
    "chunk_text": document,
    "log_chunks": log,
    "policies": policies,
    "segment": segment,
}


def main() -> None:
    """Run one target until its time is over or an input breaks it."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"name a target: {', '.join(TARGETS)}")
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
