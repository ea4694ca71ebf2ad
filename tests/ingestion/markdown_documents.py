"""Random Markdown: blocks one behind another, in quotes and lists, with whatever spoils them."""

from __future__ import annotations

from hypothesis import strategies as st

PLAIN = [
    *("# One\n", "## Two two ##\n", "### Three\n\n", "#\n", "Set\next\n===\n", "Lower\n---\n", "\n", "\n"),
    *("text goes on\n", "One. Two three. Four!\n", "a b c d e f g h i j\n", "é ü. Ö ß.\n", "*a* `b` [c]\n"),
    *("```\n# no\n\ncode\n```\n", "~~~ x\nopen\n", "``` a`b\n", "    indented code\n", "***\n", "+++\n"),
    *("- item one\n- item two\n\n  more\n", "1. first\n   - inner\n     # in\n", "2) b\n", "-\n", "- - x\n"),
    *("> # quoted\n> text\n", "> > deep\nlazy\n", "<div>\n# html\n</div>\n", "<b>\n", "&amp; \\\n"),
    *("<!-- # comment\n\n# x -->\n", "\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | `x|y` |\n\n"),
    "\n[link]: http://x.y\n'title\nover'\n\n",
]
"""Blocks that pulldown-cmark and markdown-it-py read alike, wherever they stand."""

SPOILERS = [
    *("---\na: b\n---\n", "+++\na = 1\n+++\n", "a|b\n-|-\nx\n", "[x]: y\n", "word ", "- ", "> ", "   "),
    *("|", "|-|\n", "`", "#", "\\\n", "\t", "\r\n", "\r", "\ufeff", "\u2028", "\x0c\n", "\x0c# x\n", "\x0b"),
    *("\x00", "\ud800"),
]
"""What blocks are spoiled with: half of a mark, front matter in the midst, ends of lines that are none."""


def _quoted(text: str) -> str:
    return "".join(f"> {line}" for line in text.splitlines(keepends=True))


def _listed(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(("- " if not at else "  ") + line for at, line in enumerate(lines))


PLAIN_DOCUMENTS = st.recursive(
    st.lists(st.sampled_from(PLAIN), max_size=8).map("".join),
    lambda inner: st.lists(
        inner | inner.map(_quoted) | inner.map(_listed) | st.sampled_from(PLAIN), max_size=4
    ).map("".join),
    max_leaves=4,
)
DOCUMENTS = st.lists(st.sampled_from(PLAIN + SPOILERS) | PLAIN_DOCUMENTS, max_size=10).map("".join)
