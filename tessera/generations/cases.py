"""Query cases: questions with the evidence that answers each, and the thresholds that a candidate must meet.

A case file is JSON::

    {"k": 10,
     "thresholds": {"min_recall": 0.8, "max_recall_drop": 0.02},
     "cases": [{"id": "renewal", "question": "What is the renewal term?",
                "source": "handbook", "doc_id": "contracts/msa.md", "start": 120, "end": 311,
                "digest": "sha256:<64 hex digits>"}]}

``start`` and ``end`` are code points of the document, half-open; ``digest`` is the SHA-256 of the UTF-8 of
that text, so that a case whose evidence was edited is known to be stale. ``content_digest`` may name the
document's content that the span was taken from, as hits and `GET /api/documents/…` give it: then a document
that became too short for the span makes the case stale too; without it, that is a fault of the file.

``family`` may name what the case counts with in a report; else it is the source with the first folder of the
document's id. The policy lab reads the same cases as JSON lines, one per line, without thresholds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tessera.errors import CaseError

THRESHOLDS: Final = (
    "min_representability",
    "min_recall",
    "max_recall_drop",
    "min_mrr",
    "max_mrr_drop",
    "max_latency_ratio",
    "max_stale_share",
)
"""What a case file may demand, see :mod:`tessera.generations.compare`: shares from 0 to 1, and a ratio."""

DEFAULT_K: Final = 10
MAX_K: Final = 100
"""Evidence that stands lower is not found by anyone."""

LONGEST_ID: Final = 200
"""Code points of a case's id: evidence names cases, and every worker reads it with the registry."""

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_CONTENT_DIGEST: Final = re.compile(r"sha256(-64k)?:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Case:
    """One question and its evidence: code points ``start`` to ``end`` of a document, half-open.

    ``content_digest`` is that of the document the span was taken from; empty where the file does not say.
    ``family`` is the one that the file gives; empty where it gives none.
    """

    id: str
    question: str
    source: str
    doc_id: str
    start: int
    end: int
    digest: str
    content_digest: str = ""
    family: str = ""

    @property
    def group(self) -> str:
        """Its family; without one, the source with the first folder of the document's id."""
        folder, slash, _ = self.doc_id.partition("/")
        return self.family or (f"{self.source}/{folder}" if slash else self.source)


_OPTIONAL: Final = ("content_digest", "family")
_REQUIRED: Final = tuple(field.name for field in fields(Case) if field.name not in _OPTIONAL)


@dataclass(frozen=True, slots=True)
class CaseSet:
    """The cases of one file, what is demanded, and how many hits of each question count."""

    cases: tuple[Case, ...]
    thresholds: Mapping[str, float]
    k: int = DEFAULT_K

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of its canonical JSON: order of cases, layout of the file and families are out."""
        value = {
            "k": self.k,
            "thresholds": dict(self.thresholds),
            "cases": [_measured(case) for case in sorted(self.cases, key=lambda case: case.id)],
        }
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return f"sha256:{sha256(canonical.encode()).hexdigest()}"


def _measured(case: Case) -> dict[str, Any]:
    """What of a case decides its outcome: its family does not."""
    return {name: value for name, value in asdict(case).items() if name != "family"}


def evidence_digest(evidence: str) -> str:
    """The digest that a case gives for this evidence."""
    return f"sha256:{sha256(evidence.encode()).hexdigest()}"


def load_cases(path: str | Path) -> CaseSet:
    """The case set of a file; :class:`~tessera.errors.CaseError` names file, case and field at fault."""
    return parse_cases(_text(path), str(path))


def load_case_lines(path: str | Path) -> tuple[Case, ...]:
    """The cases of a file of JSON lines; :class:`~tessera.errors.CaseError` names file, line and field."""
    return parse_case_lines(_text(path), str(path))


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CaseError(f"{path}: cannot be read ({error.strerror}): name a case file") from error
    except UnicodeDecodeError as error:
        raise CaseError(f"{path}: is not UTF-8 ({error}): save it as UTF-8") from error


def parse_cases(text: str, where: str = "the case file") -> CaseSet:
    """The case set of a file's text; raises as :func:`load_cases`, with ``where`` as the file's name."""
    if _is_json_lines(text):
        raise CaseError(
            f"{where}: holds JSON lines, as the lab takes them; a comparison needs thresholds too: "
            '{"thresholds": {…}, "cases": [those lines]}, which the lab takes as well'
        )
    value = _json(text, where)
    top = _Fields(value, where, ("thresholds", "cases"), ("k",))
    k = top.count("k", 1, MAX_K) if "k" in top.value else DEFAULT_K
    thresholds = _thresholds(top.value["thresholds"], f"{where}: thresholds")
    listed = top.value["cases"]
    if not isinstance(listed, list) or not listed:
        raise CaseError(f"{where}: cases must be a list with a case at least")
    cases = [_case(each, f"{where}: case {number}") for number, each in enumerate(listed, 1)]
    _require_distinct(enumerate(cases, 1), f"{where}: case")
    return CaseSet(tuple(cases), thresholds, k)


def parse_case_lines(text: str, where: str = "the case file") -> tuple[Case, ...]:
    """The cases in JSON lines or of a case file; raises as :func:`load_case_lines`."""
    with suppress(ValueError):
        whole = json.loads(text)
        if isinstance(whole, dict) and "cases" in whole:
            return parse_cases(text, where).cases
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    cases = [
        (number, _case(_json(line, at), at)) for number, line in lines for at in [f"{where}: line {number}"]
    ]
    if not cases:
        raise CaseError(f"{where}: holds no case: write one JSON object per line")
    _require_distinct(cases, f"{where}: line")
    return tuple(case for _, case in cases)


def _is_json_lines(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < 2:
        return False
    try:
        return all(isinstance(json.loads(line), dict) for line in lines[:2])
    except ValueError:
        return False


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except ValueError as error:
        raise CaseError(f"{where}: cannot be read as JSON: {error}") from error


def _require_distinct(cases: Iterable[tuple[int, Case]], where: str) -> None:
    seen: dict[str, int] = {}
    for number, case in cases:
        if case.id in seen:
            kind = where.rpartition(" ")[2]
            raise CaseError(f"{where} {number}: id {case.id!r} is that of {kind} {seen[case.id]} already")
        seen[case.id] = number


def _thresholds(value: object, where: str) -> dict[str, float]:
    given = _Fields(value, where, (), THRESHOLDS)
    if not given.value:
        raise CaseError(f"{where}: demand something, or every candidate passes: {', '.join(THRESHOLDS)}")
    return {name: given.number(name) for name in sorted(given.value)}


def _case(value: object, where: str) -> Case:
    named = (
        f"{where} ({str(value['id'])[:LONGEST_ID]!r})" if isinstance(value, dict) and "id" in value else where
    )
    given = _Fields(value, named, _REQUIRED, _OPTIONAL)
    start = given.count("start", 0)
    case = Case(
        given.text("id"),
        given.text("question"),
        given.text("source"),
        given.text("doc_id"),
        start,
        given.count("end", start + 1),
        given.text("digest"),
        *(given.text(name) if name in given.value else "" for name in _OPTIONAL),
    )
    if len(case.id) > LONGEST_ID:
        raise CaseError(f"{where}: id has {len(case.id):,} characters; it must have at most {LONGEST_ID}")
    if not _DIGEST.fullmatch(case.digest):
        raise CaseError(
            f"{named}: digest is {case.digest[:80]!r}; it must be sha256: and 64 lower hex digits"
        )
    if case.content_digest and not _CONTENT_DIGEST.fullmatch(case.content_digest):
        raise CaseError(
            f"{named}: content_digest is {case.content_digest[:80]!r}; give the document's as hits have it: "
            "sha256: (a document) or sha256-64k: (a log) and 64 lower hex digits"
        )
    if "/" in case.source:
        raise CaseError(f"{named}: source is {case.source!r}; the name of a source has no '/'")
    return case


class _Fields:
    """An object of the file with just the fields it may have; CaseError names the one at fault."""

    def __init__(
        self, value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> None:
        allowed = required + optional
        if not isinstance(value, dict):
            raise CaseError(f"{where}: must be an object with fields out of {', '.join(allowed)}")
        for name in value:
            if name not in allowed:
                raise CaseError(f"{where}: unknown field {name!r}; allowed are {', '.join(allowed)}")
        for name in required:
            if name not in value:
                raise CaseError(f"{where}: {name} is missing")
        self.value: dict[str, Any] = value
        self._where = where

    def text(self, name: str) -> str:
        value = self.value[name]
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(name, "it must be a text that is not blank")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._wrong(name, "it holds half a character (a lone surrogate)") from None
        return value

    def count(self, name: str, least: int, most: int | None = None) -> int:
        value = self.value[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(name, f"it must be a whole number from {least} on")
        if most is not None and value > most:
            raise self._wrong(name, f"it must be at most {most}")
        return value

    def number(self, name: str) -> float:
        """A threshold: a share, or a ratio above 0."""
        value = self.value[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(name, "it must be a number")
        if name.endswith("_ratio"):
            if value <= 0:
                raise self._wrong(name, "it must be above 0")
        elif not 0 <= value <= 1:
            raise self._wrong(name, "it must be from 0 to 1")
        return float(value)

    def _wrong(self, name: str, rule: str) -> CaseError:
        return CaseError(f"{self._where}: {name} is {str(self.value[name])[:80]!r}; {rule}")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r} is given twice in one object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")
