"""Cutting texts into chunks with exact provenance.

:func:`chunk_text` cuts documents and run logs at blank lines, :func:`parse_log_chunks` cuts CI runner logs
at messages, :func:`parse_windows` cuts at counts of tokens, :func:`parse_sentences` between sentences,
:func:`parse_markdown` between blocks. All are pure. Offsets are code points of the source, spans half-open;
lines count from 1, inclusive. :class:`Resume` lets a log that grows be cut from its last chunk on.
"""

from __future__ import annotations

from tessera.ingestion.blocks import heading_titles
from tessera.ingestion.chunk import Around, Chunk, Parse, Reserve, Span, build_chunks
from tessera.ingestion.commonmark import Block, markdown_blocks
from tessera.ingestion.coverage import UncoveredRange, covered_by_one, uncovered_ranges
from tessera.ingestion.lines import lf_lines
from tessera.ingestion.markdown import parse_markdown
from tessera.ingestion.paragraph import chunk_text, parse_paragraphs
from tessera.ingestion.resume import Resume
from tessera.ingestion.runner import parse_log_chunks, parse_messages
from tessera.ingestion.sentence import parse_sentences, sentence_spans
from tessera.ingestion.window import parse_windows

__all__ = [
    "Around",
    "Block",
    "Chunk",
    "Parse",
    "Reserve",
    "Resume",
    "Span",
    "UncoveredRange",
    "build_chunks",
    "chunk_text",
    "covered_by_one",
    "heading_titles",
    "lf_lines",
    "markdown_blocks",
    "parse_log_chunks",
    "parse_markdown",
    "parse_messages",
    "parse_paragraphs",
    "parse_sentences",
    "parse_windows",
    "sentence_spans",
    "uncovered_ranges",
]
