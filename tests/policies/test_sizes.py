"""No chunk with its context is larger than the size, whatever the parser, the context and the text."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tessera.policies import ChunkPolicy, TextPolicy
from tessera.policies.policy import CONTEXTUAL, SIZED

TITLES = ["A", "B", "A b", "C d e", "F g h i j k l"]
LINES = [
    *(f"{marks} {title}\n" for marks in ("#", "##", "###", " #", "\ufeff#") for title in TITLES),
    *(f"{title}\n{line}\n" for title in TITLES for line in ("---", "===")),
    *("x y z. ", "One two three four five six seven eight nine ten.\n", "One. Two. Three.\n", "Go?\n", "*\n"),
    *("- item\n", "- one two\n  three four\n", "> quote\n", "```\n# a b c\n```\n", "| a | b |\n|---|---|\n"),
    *("\n", "\n", "\n\n", "---\n", "---\nt: x\n---\n", "\r\n", "\r", "終わり。", "    code\n", " ", "#\n"),
]
TEXTS = st.lists(st.sampled_from(LINES), max_size=30).map("".join)
PARSERS = [parser for parser in SIZED if parser in CONTEXTUAL]


@pytest.mark.parametrize("parser", PARSERS)
@settings(max_examples=300, deadline=None)
@given(
    text=TEXTS,
    size=st.integers(1, 16),
    share=st.sampled_from([0.0, 0.4, 0.9]),
    context=st.sampled_from(["none", "headings", "section"]),
    media_type=st.sampled_from(["text/markdown", "text/x-run-log", "text/x-ci-log"]),
)
@example(
    "# a b c d e f\n\n## B\n\nx y z x y z x y z.\n\nl m.\n\nB\n---\n\nq r s t u v w x.",
    12,
    0.0,
    "headings",
    "text/markdown",
)
def test_tokens_of_chunk_and_context_never_exceed_the_size(
    parser: str, text: str, size: int, share: float, context: str, media_type: str
) -> None:
    rule = TextPolicy(parser, size, int(size * share), context)
    logs = {} if parser == "markdown" or context == "section" else {"run_logs": rule, "ci_logs": rule}
    for chunk in ChunkPolicy("p", rule, **logs).chunk(text, "d", media_type if logs else "text/markdown"):
        assert chunk.start_token is not None
        assert chunk.end_token is not None
        own = chunk.end_token - chunk.start_token
        assert own == len(re.findall(r"\w+", chunk.text))
        assert own + len(re.findall(r"\w+", chunk.context)) <= size
