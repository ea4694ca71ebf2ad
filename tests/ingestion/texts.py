"""Texts that tests cut: strategies, and real ones where they are at hand."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from slow_parsers import Kind

CASES = Path(__file__).parent.parent / "cases"

STAMP = "2026-01-02T03:04:05.1234567Z"

LINE = st.sampled_from(
    [
        *["", "", "", " ", "\t ", "\u00a0", "\ufeff", "\x0b", "x", "same", "same", "  keep  ", "tail\t"],
        *[
            "# A",
            "# A",
            "## B ##",
            "### C",
            "###### F",
            "#\tT",
            "#  wide",
            "# \u200b",
            "# #",
            "# x#",
            "# C \\#",
        ],
        *["#", "###", "####### 7", "#tag", "  ## in", "\\# no", "# ", "# \u00a0", "##[error]x", "##[group]g"],
        *[
            "```",
            "~~~",
            "---",
            "a\u2028# b",
            "a\x0c# b",
            "a\u0085# b",
            "naïve 🙂 _w1",
            "10%\r20%",
            "\ufeff# X",
        ],
    ]
)
ENDING = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n", "\n \n", "\r\n\r\n"])
TEXT = st.builds(
    lambda bom, parts, last: bom + "".join(line + end for line, end in parts) + last,
    st.sampled_from(["", "", "\ufeff", "\ufeff\ufeff"]),
    st.lists(st.tuples(LINE, ENDING), max_size=30),
    LINE,
) | st.text(st.sampled_from("#ab \t\r\n\ufeff"), max_size=40)

LOG_LINES = {
    "": Kind(False),
    " \t": Kind(False),
    "plain": Kind(False),
    "##[group]Bare ": Kind(False, "group", "Bare"),
    "\ufeff##[error]bare": Kind(False, "error"),
    "job\tstep\t##[warning]bare": Kind(False, "warning"),
    "x ##[group]not a mark": Kind(False),
    "2026-01-02 03:04:05 no stamp": Kind(False),
    f"{STAMP}glued": Kind(False),
    f"see {STAMP} inside": Kind(False),
    STAMP: Kind(True),
    f"{STAMP} ": Kind(True),
    f"{STAMP} word": Kind(True),
    f"{STAMP} 10%\r20%\r": Kind(True),
    f"\ufeff{STAMP} bom": Kind(True),
    f"{STAMP} ##[group] Inputs": Kind(True, "group", "Inputs"),
    f"{STAMP} ##[group]": Kind(True, "group"),
    f"job\tstep\t\ufeff{STAMP} ##[group]Columns": Kind(True, "group", "Columns"),
    f"\x1b[36m{STAMP}\x1b[0m \x1b[1;31m##[group]\x1b[0mColour\x1b[0m": Kind(True, "group", "Colour"),
    f"{STAMP} ##[endgroup]": Kind(True, "endgroup"),
    f"job\tstep\t{STAMP} ##[endgroup]": Kind(True, "endgroup"),
    f"{STAMP} \x1b[31m##[error]red\x1b[0m": Kind(True, "error"),
    f"{STAMP} ##[warning]w": Kind(True, "warning"),
    "2026-01-02T03:04:05+01:00 ##[notice]n": Kind(True, "notice"),
    f"{STAMP} ##[command]ls": Kind(True),
    f"{STAMP} ::error::said by a command": Kind(True),
    f"{STAMP} text ##[error]": Kind(True),
    f"{STAMP}  ##[error]indented": Kind(True),
    f"{STAMP} a\tb\t##[error]own columns": Kind(True),
}
_RUN = st.tuples(
    st.sampled_from(list(LOG_LINES)), st.sampled_from([1, 1, 1, 2, 3, 29, 58, 59, 60, 61, 62, 121])
)
LOG = st.lists(_RUN, max_size=10).map(lambda runs: "".join(f"{line}\n" * times for line, times in runs))


def kind_of_line(line: str) -> Kind:
    return LOG_LINES[line] if line in LOG_LINES else LOG_LINES[line + "\r"]


def cases(name: str) -> list[pytest.ParameterSet]:
    lines = (CASES / name).read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, filter(None, lines))]


def commonmark_examples() -> list[str]:
    """The Markdown of the CommonMark specification's examples, where ``fetch_commonmark.py`` has put them."""
    path = Path(os.environ.get("TESSERA_COMMONMARK") or Path(sys.prefix) / "commonmark.json")
    if not path.exists():
        reason = f"{path} is not there; run `python tests/fetch_commonmark.py`"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return [example["markdown"] for example in json.loads(path.read_text(encoding="utf-8"))]


def real_documents() -> list[str]:
    with tarfile.open(_data("markdown/rust-rfcs.tar.gz")) as archive:
        members = [member for member in archive if member.isfile() and member.name.endswith(".md")]
        files = [archive.extractfile(member) for member in members]
        return [file.read().decode() for file in files if file]


def real_logs() -> list[str]:
    paths = sorted(_data("logs").rglob("*.*"))
    return [path.read_bytes().decode(errors="replace") for path in paths]


def _data(name: str) -> Path:
    folder = os.environ.get("TESSERA_DATA")
    if not folder:
        pytest.skip("TESSERA_DATA names no folder with real documents and logs")
    return Path(folder) / name
