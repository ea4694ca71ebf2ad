"""The documents of a run and the questions on them: every piece of evidence is where its case says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from pathlib import Path

from tessera.documents.digests import document_digest, log_digest
from tessera.errors import CaseError, PlanError, SourceError
from tessera.events.catalog import LOG_KINDS
from tessera.events.change import MediaType, SourceKind
from tessera.events.content import decode_content
from tessera.generations.cases import Case, evidence_digest, load_case_lines
from tessera.lab.plan import FolderOfDocuments, Plan
from tessera.limits import Limits
from tessera.sources.bundled import BUNDLED, bundled_folder
from tessera.sources.content import read_file
from tessera.sources.scan import SourceFile, scan


@dataclass(frozen=True)
class LabDocument:
    """A document as a run holds it; ``kind`` is its source's."""

    source: str
    doc_id: str
    kind: SourceKind
    media_type: MediaType
    text: str

    @property
    def key(self) -> str:
        """``<source>/<doc_id>``."""
        return f"{self.source}/{self.doc_id}"

    @property
    def is_log(self) -> bool:
        """Whether it grows by appends."""
        return self.kind in LOG_KINDS

    @cached_property
    def content_digest(self) -> str:
        """As hits have it."""
        return (log_digest if self.is_log else document_digest)(self.text)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and all of its evidence: the cases that ask it in the same words."""

    text: str
    cases: tuple[Case, ...]


Corpus = Mapping[str, LabDocument]
"""Documents by key, in the order of (source, doc_id), which breaks ties of scores."""


def load_corpus(plan: Plan) -> Corpus:
    """All documents of a plan. :class:`~tessera.errors.PlanError` where a folder gives none, or not all."""
    found: list[LabDocument] = []
    for number, each in enumerate(plan.documents, 1):
        at = f"{plan.where}: documents, number {number}"
        if isinstance(each, str):
            found += _read(each, bundled_folder(each), BUNDLED[each], (), at)
        else:
            found += _own(each, plan.folder, at)
    found.sort(key=lambda document: (document.source, document.doc_id))
    return {document.key: document for document in found}


def _own(given: FolderOfDocuments, folder: Path, at: str) -> list[LabDocument]:
    documents = _read(given.source, folder / given.path, given.kind, given.only, at)
    for pattern in given.only:
        if not any(fnmatchcase(document.doc_id, pattern) for document in documents):
            raise PlanError(f"{at}: only holds {pattern!r}, which no document of {given.path} matches")
    return documents


def _read(source: str, folder: Path, kind: SourceKind, only: Sequence[str], at: str) -> list[LabDocument]:
    try:
        found = scan(folder, kind)
    except SourceError as error:
        raise PlanError(f"{at}: {error}") from error
    if found.problems:
        problem = found.problems[0]
        raise PlanError(f"{at}: {folder / problem.path}: {problem.reason}")
    wanted = [
        file
        for name, file in found.files.items()
        if not only or any(fnmatchcase(name, pattern) for pattern in only)
    ]
    if not wanted:
        raise PlanError(f"{at}: {folder} holds no document of kind {kind}: see path, kind and only")
    return [_document(source, kind, file, at) for file in wanted]


def _document(source: str, kind: SourceKind, file: SourceFile, at: str) -> LabDocument:
    try:
        content, _, _ = read_file(file, Limits().max_document_bytes)
    except (OSError, SourceError) as error:
        raise PlanError(f"{at}: {file.path}: cannot be read: {error}") from error
    text, _ = decode_content(content.content)
    return LabDocument(source, file.doc_id, kind, file.media_type, text)


def load_questions(path: Path, corpus: Corpus) -> tuple[Question, ...]:
    """The questions of a file of JSON lines, in its order, cases that ask the same together.

    :class:`~tessera.errors.CaseError` where a case names no document of the run, or its evidence is not what
    the document says there: a lab that left stale cases out would praise whoever made them stale.
    """
    asked: dict[str, list[Case]] = {}
    faults = []
    for case in load_case_lines(path):
        try:
            _require_evidence(case, corpus, f"case {case.id!r}")
        except CaseError as error:
            faults.append(str(error))
        asked.setdefault(case.question, []).append(case)
    if faults:
        more = f"; and {len(faults) - FAULTS_TOLD} more cases" if len(faults) > FAULTS_TOLD else ""
        raise CaseError(f"{path}: {'; '.join(faults[:FAULTS_TOLD])}{more}")
    return tuple(Question(text, tuple(cases)) for text, cases in asked.items())


def _require_evidence(case: Case, corpus: Corpus, where: str) -> None:
    document = corpus.get(f"{case.source}/{case.doc_id}")
    if document is None:
        near = [key for key in corpus if key.startswith(f"{case.source}/")] or list(corpus)
        known = ", ".join(islice(near, 5)) + (", …" if len(near) > 5 else "")
        raise CaseError(
            f"{where}: the run has no document {case.source}/{case.doc_id}; it has {known}: mend the case, "
            "or add the document to the plan"
        )
    evidence = document.text[case.start : case.end]
    stands = case.end <= len(document.text) and evidence_digest(evidence) == case.digest
    if not stands:
        span = f"from {case.start} to {case.end}"
        raise CaseError(f"{where}: {document.key} does not say that {span}{_moved(case, document)}")
    if case.content_digest and case.content_digest != document.content_digest:
        raise CaseError(
            f"{where}: {document.key} has changed, its content_digest is {document.content_digest} now, and "
            "the evidence still stands where it did: take the new digest, or leave it out"
        )
    if not evidence.strip():
        raise CaseError(f"{where}: its evidence is blank: give a span with words")


FAULTS_TOLD = 20
"""Cases named in one message."""

SEARCHED = 1_000_000
"""Characters of a document in which evidence that moved is looked for."""


def _moved(case: Case, document: LabDocument) -> str:
    """Where the evidence of a case stands now, as far as its length and digest tell."""
    length = case.end - case.start
    text = document.text[:SEARCHED]
    for start in range(len(text) - length + 1):
        if evidence_digest(text[start : start + length]) == case.digest:
            return f", but from {start} to {start + length} now: take these"
    return ": take the span and its digests anew (`tessera lab case`)"
