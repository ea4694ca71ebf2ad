"""What commands print for people."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tessera.cli import search
from tessera.cli.terminal import counted, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb é", "a\tb é"),
        ("a\ntrouble: forged", "a\\x0atrouble: forged"),
        ("a\r\x1b[31m\x85", "a\\x0d\\x1b[31m\\x85"),
        ("a\u2028b\u202e\udcff", "a\\u2028b\\u202e\\udcff"),
    ],
)
def test_what_is_printed_stays_on_its_line_and_drives_no_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(shown.splitlines()) == 1


def test_one_is_not_many() -> None:
    assert [counted(amount, "hit") for amount in range(3)] == ["0 hits", "1 hit", "2 hits"]


@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (1000, search.WIDEST)])
def test_a_line_wider_than_the_terminal_is_cut(columns: int, widest: int) -> None:
    out = Console(width=columns, file=io.StringIO())
    assert search._cut("short", out).plain == "short"
    for long in ("x" * 900_000, "\x1b" * 500, "語" * 500):
        cut = search._cut(long, out)
        assert cut.cell_len <= widest
        assert cut.plain.endswith("…")
