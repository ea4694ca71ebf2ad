"""Chunk policies: their identity, and cutting by them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tessera.errors import PolicyError
from tessera.events.change import MEDIA_TYPES
from tessera.ingestion import (
    Around,
    Chunk,
    Parse,
    Reserve,
    Resume,
    build_chunks,
    lf_lines,
    parse_markdown,
    parse_messages,
    parse_paragraphs,
    parse_sentences,
    parse_windows,
)
from tessera.policies.context import Contexts, paragraph_contexts
from tessera.policies.tokenizer_files import IDENTITY, TOKENIZERS, StartsOf
from tessera.policies.windows import token_windows, windows_by_room
from tessera.policies.words import word_starts

PARSERS: Final = ("paragraph", "runner", "window", "sentence", "markdown")
SIZED: Final = ("window", "sentence", "markdown")
"""Parsers that know a size; the others cut where the text has borders."""

CONTEXTUAL: Final = ("paragraph", "window", "sentence", "markdown")
"""Parsers of texts with headings."""

REVISIONS: Final = {
    "paragraph": "paragraph@1",
    "runner": "runner@1",
    "window": "window@1",
    "sentence": "sentence@1",
    "markdown": "markdown@2",
    "none": "none@1",
    "headings": "headings@2",
    "section": "section@2",
}
"""What a parser and a treatment of parent context are called in a policy's identity.

A new number where the cut changes: without it chunks of two rules would share one identity.
"""

WITH_CONTEXT: Final = {"sentence": "sentence@2"}
"""Revisions of parsers that changed only where a policy has parent context."""

_CHOICES: Final = {"parser": PARSERS, "parent_context": ("none", "headings", "section")}
_WORDS: Final = "words@1"
_BEGINNING: Final = Resume.begin()
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TABLES: Final = {
    "text/markdown": "documents",
    "text/plain": "documents",
    "text/x-run-log": "run_logs",
    "text/x-ci-log": "ci_logs",
}


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """How the texts of some media types are cut.

    ``size`` is an upper bound in tokens, None unbounded, that the parent context counts against; ``overlap``
    is in tokens.
    """

    parser: str = "paragraph"
    size: int | None = None
    overlap: int = 0
    parent_context: str = "none"
    tokenizer: str = "words@1"

    def __post_init__(self) -> None:
        """PolicyError where a value is not allowed; it names the key and what is."""
        for key, allowed in _CHOICES.items():
            value = getattr(self, key)
            if not isinstance(value, str) or value not in allowed:
                raise PolicyError(f"{key} is {value!r}; allowed are {', '.join(allowed)}")
        if self.tokenizer != _WORDS and not self.tokenizer_file:
            raise PolicyError(
                f"tokenizer is {self.tokenizer!r}; allowed are {_WORDS}, tokenizers@sha256:<64 hex digits> "
                "and, in a policy file, the path of a tokenizer.json"
            )
        if self.size is not None:
            _check_count("size", self.size, 1)
        _check_count("overlap", self.overlap, 0)
        if self.size is not None and self.parser not in SIZED:
            raise PolicyError(f"size is {self.size}; parser {self.parser!r} knows no size, leave it out")
        if self.parent_context != "none" and self.parser not in CONTEXTUAL:
            raise PolicyError(
                f"parent_context is {self.parent_context!r}; parser {self.parser!r} has none, it goes with "
                f"{' and '.join(CONTEXTUAL)}"
            )
        if self.parent_context == "section" and self.parser not in SIZED:
            raise PolicyError(
                f"parent_context is 'section'; it goes with {' and '.join(SIZED)}, which know a size: parser "
                f"{self.parser!r} can have 'headings'"
            )
        if self.overlap >= (self.size or 1):
            raise PolicyError(
                f"overlap is {self.overlap}; it must be less than size, and 0 where size is left out"
            )

    @property
    def tokenizer_file(self) -> str:
        """The identity of the tokenizer's file; empty where the tokenizer is built in."""
        named = isinstance(self.tokenizer, str) and IDENTITY.fullmatch(self.tokenizer)
        return self.tokenizer if named else ""

    @property
    def starts_of(self) -> StartsOf:
        """The tokenizer. PolicyError where its file cannot be read here."""
        return TOKENIZERS.named(self.tokenizer) if self.tokenizer_file else word_starts

    @property
    def _parser_revision(self) -> str:
        if self.parent_context == "none":
            return REVISIONS[self.parser]
        return WITH_CONTEXT.get(self.parser, REVISIONS[self.parser])

    def canonical(self) -> dict[str, Any]:
        """Return the JSON values that identify it, defaults filled in and revisions in."""
        return {
            **asdict(self),
            "parser": self._parser_revision,
            "parent_context": REVISIONS[self.parent_context],
        }


def _check_count(key: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"{key} is {value!r}; it must be a whole number from {least} on")


def _parse(
    rule: TextPolicy,
    lines: str,
    begin: Resume,
    token_starts: npt.NDArray[np.int64],
    reserve: Reserve,
    *,
    is_log: bool,
) -> Parse:
    if rule.parser == "runner":
        return parse_messages(lines, begin)
    if rule.parser == "paragraph":
        return parse_paragraphs(lines, begin)
    if rule.parser == "markdown":
        return parse_markdown(lines, begin, token_starts, rule.size, rule.overlap, reserve)
    # Tokens of a file are those of whole lines: a cut that goes on inside a line would find others.
    by_lines = bool(rule.tokenizer_file)
    if rule.parser == "window":
        windows = partial(_windows, rule, len(token_starts), reserve)
        return parse_windows(lines, begin, token_starts, windows, by_lines=by_lines)
    return parse_sentences(
        lines, begin, token_starts, rule.size, rule.overlap, reserve, lines=is_log, by_lines=by_lines
    )


def _windows(
    rule: TextPolicy, tokens: int, reserve: Reserve, around: Callable[[int], Around]
) -> Sequence[tuple[int, int]]:
    size = rule.size or tokens + 1
    if rule.parent_context == "none":
        return token_windows(tokens, size, rule.overlap)
    return windows_by_room(tokens, size, rule.overlap, lambda first: max(1, size - reserve(around(first))))


def _nothing(around: Around) -> int:
    """The reserve of policies without parent context."""
    return 0


class Cut(NamedTuple):
    """What cutting a part of a source yields.

    ``chunks`` carry offsets, lines, tokens and ordinals of the whole source. ``open`` is where the cut goes
    on when lines are appended: give the text from ``open.start`` on; the chunks of the next cut replace
    those from ordinal ``open.ordinal`` on, always the last one at least. ``end`` is the state
    behind the text: ``end.start_token`` counts all tokens, and ``end.after_gap(...)`` is where the cut goes
    on behind missing lines.
    """

    chunks: list[Chunk]
    open: Resume
    end: Resume


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """A named set of three rules: for documents, for run logs and for CI logs."""

    name: str
    documents: TextPolicy = field(default_factory=TextPolicy)
    run_logs: TextPolicy = field(default_factory=TextPolicy)
    ci_logs: TextPolicy = field(default_factory=lambda: TextPolicy(parser="runner"))

    def __post_init__(self) -> None:
        """PolicyError where the name cannot stand in chunk ids and file names."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise PolicyError(
                f"name is {self.name!r}; it must be 1 to 64 letters, digits, '.', '_' or '-', "
                "and begin with a letter or digit"
            )

        for table in ("run_logs", "ci_logs"):
            rule: TextPolicy = getattr(self, table)
            if rule.parser == "markdown":
                raise PolicyError(
                    f"parser of {table} is 'markdown': a log is no Markdown, choose another parser"
                )
            if rule.parent_context == "section":
                raise PolicyError(
                    f"parent_context of {table} is 'section': a log goes on behind its sections, choose "
                    "'headings' or 'none'"
                )

    @property
    def canonical_json(self) -> str:
        """The JSON text that is hashed: keys sorted, defaults and revisions in, the name out."""
        tables = {
            "documents": self.documents.canonical(),
            "run_logs": self.run_logs.canonical(),
            "ci_logs": self.ci_logs.canonical(),
        }
        return json.dumps(tables, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def id(self) -> str:
        """``<name>@<first 12 hex digits of the SHA-256 of the canonical JSON>``."""
        return f"{self.name}@{hashlib.sha256(self.canonical_json.encode()).hexdigest()[:12]}"

    @property
    def tokenizer_files(self) -> frozenset[str]:
        """The identities of the tokenizers' files that it needs."""
        rules = (self.documents, self.run_logs, self.ci_logs)
        return frozenset(rule.tokenizer_file for rule in rules if rule.tokenizer_file)

    def require_tokenizers(self) -> ChunkPolicy:
        """The policy itself; PolicyError where a tokenizer's file cannot be read here."""
        for identity in sorted(self.tokenizer_files):
            TOKENIZERS.named(identity)
        return self

    def for_media_type(self, media_type: str) -> TextPolicy:
        """Return the rule for a media type. PolicyError where there is none."""
        if media_type not in _TABLES:
            raise PolicyError(
                f"no policy for media type {media_type!r}; there is one for {', '.join(MEDIA_TYPES)}"
            )
        rule: TextPolicy = getattr(self, _TABLES[media_type])
        return rule

    def chunk(self, text: str, stem: str, media_type: str = "text/markdown") -> list[Chunk]:
        """Cut a whole source and return its chunks with token offsets, in source order."""
        return self.cut(text, stem, media_type).chunks

    def cut(
        self, text: str, stem: str, media_type: str, begin: Resume = _BEGINNING, *, is_log: bool = False
    ) -> Cut:
        """Cut ``text``, the source from ``begin.start`` on.

        Lines of a log end at LF only; a document without LF has lines that end at CR. For logs that grow by
        whole lines, in whatever steps, the chunks are those of the whole log cut at once.
        """
        rule = self.for_media_type(media_type)
        is_document = _TABLES[media_type] == "documents"
        lines = lf_lines(text) if is_document and not is_log else text
        starts_of = rule.starts_of
        starts = starts_of(lines)
        is_section = rule.parent_context == "section"
        contexts = Contexts(text, starts, starts_of, rule.size, is_section=is_section)
        reserve = contexts.reserve if rule.parent_context != "none" else _nothing
        spans, place, end, around = _parse(rule, lines, begin, starts, reserve, is_log=not is_document)
        if is_section:
            place = begin  # The text a section begins with is not carried on: all is cut again.
        borders = [border for span in spans for border in span[:2]]
        borders += [place.start - begin.start, end.start - begin.start]
        tokens: list[int] = (starts.searchsorted(borders) + begin.start_token).tolist()
        chunks = build_chunks(text, spans, stem, begin, zip(tokens[:-2:2], tokens[1:-2:2], strict=True))
        if rule.parent_context != "none":
            chunks = (
                paragraph_contexts(chunks)
                if around is None
                else [
                    chunk._replace(context=contexts.of(each))
                    for chunk, each in zip(chunks, around, strict=True)
                ]
            )
        return Cut(chunks, replace(place, start_token=tokens[-2]), replace(end, start_token=tokens[-1]))
