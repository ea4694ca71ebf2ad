from __future__ import annotations

import re
from pathlib import Path

import tessera
from tessera.events.reasons import REASONS

FILES = [path for path in Path(tessera.__file__).parent.rglob("*.py") if path.name != "reasons.py"]
SOURCE = "\n".join(path.read_text() for path in FILES)


def test_every_reason_given_is_listed() -> None:
    assert set(re.findall(r'EventError\(\s*"(\w+)"', SOURCE)) <= REASONS.keys()


def test_every_listed_reason_is_given_somewhere() -> None:
    assert {reason for reason in REASONS if f'"{reason}"' not in SOURCE} == set()


def test_every_reason_has_its_meaning_on_one_line() -> None:
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", reason) for reason in REASONS)
    assert all(meaning and "\n" not in meaning for meaning in REASONS.values())
