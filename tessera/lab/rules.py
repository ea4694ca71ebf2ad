"""The rules that an audit's contract keeps. Each has a name, which a refusal gives."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from tessera.errors import AuditError
from tessera.lab.contract import AuditCase, AuditContract, AuditedPolicy, Document, SpanChunk

_DIGEST: Final = re.compile(r"sha256(-64k)?:[0-9a-f]{64}")

MAX_TOKENS: Final = 2**53
"""Beyond it JSON readers disagree about whole numbers."""


def require_sound(contract: AuditContract) -> None:
    """:class:`~tessera.errors.AuditError` at the first rule that is broken."""
    documents = _documents(contract.documents)
    _require(bool(contract.policies), "policies", "policies", "name a policy at least")
    _distinct(((each.name, f"policy {each.name!r}") for each in contract.policies), "policy_identity")
    every = (chunk for policy in contract.policies for chunk in policy.chunks)
    _distinct(((chunk.id, f"chunk {chunk.id!r}") for chunk in every), "chunk_identity")
    for policy in contract.policies:
        _policy(policy, contract.documents, documents)
    _cases(contract, documents)
    _gates(contract)


def _documents(documents: Iterable[Document]) -> dict[str, Document]:
    known: dict[str, Document] = {}
    for document in documents:
        place = f"document {document.id!r}"
        _text(document.id, place, "document_identity")
        _require(document.id not in known, "document_identity", place, "it is given twice")
        _digest(document.digest, place, "document_identity")
        _count(document.tokens, 1, place, "token_count", "tokens")
        known[document.id] = document
    _require(bool(known), "documents", "documents", "name a document at least")
    return known


def _policy(policy: AuditedPolicy, ordered: Iterable[Document], documents: Mapping[str, Document]) -> None:
    """Chunks in the order of documents, each cut from its first token to its last, within the bounds."""
    place = f"policy {policy.name!r}"
    _text(policy.name, place, "policy_identity")
    _count(policy.max_tokens, 1, place, "chunk_size", "max_tokens")
    _count(policy.max_overlap, 0, place, "overlap", "max_overlap")
    _require(
        policy.max_overlap < policy.max_tokens, "overlap", place, "max_overlap must be less than max_tokens"
    )
    waiting = [document.id for document in ordered]
    before: SpanChunk | None = None
    for chunk in policy.chunks:
        where = f"{place}, chunk {chunk.id!r}"
        _chunk(chunk, documents, policy, where)
        if before is None or chunk.document != before.document:
            _end(before, documents, place)
            _require(
                bool(waiting) and chunk.document == waiting.pop(0),
                "source_order",
                where,
                f"document {chunk.document!r} is not the next one in the order of documents",
            )
            _require(chunk.start == 0, "document_edge", where, f"it begins at token {chunk.start}, not at 0")
        else:
            _follows(before, chunk, policy, where)
        before = chunk
    _end(before, documents, place)
    _require(not waiting, "document_edge", place, f"document {waiting[0]!r} has no chunk" if waiting else "")


def _chunk(chunk: SpanChunk, documents: Mapping[str, Document], policy: AuditedPolicy, where: str) -> None:
    _text(chunk.id, where, "chunk_identity")
    _require(chunk.document in documents, "chunk_identity", where, f"no document {chunk.document!r}")
    _count(chunk.start, 0, where, "chunk_span", "start")
    _count(chunk.end, chunk.start + 1, where, "chunk_span", "end")
    tokens = documents[chunk.document].tokens
    _require(chunk.end <= tokens, "chunk_span", where, f"it ends at {chunk.end}, the document has {tokens}")
    size = chunk.end - chunk.start
    _require(size <= policy.max_tokens, "chunk_size", where, f"{size} tokens, at most {policy.max_tokens}")


def _follows(before: SpanChunk, chunk: SpanChunk, policy: AuditedPolicy, where: str) -> None:
    rises = before.start < chunk.start and before.end < chunk.end
    _require(rises, "source_order", where, f"it does not rise behind chunk {before.id!r}")
    shared = before.end - chunk.start
    _require(shared >= 0, "overlap", where, f"{-shared} tokens before it are in no chunk")
    _require(
        shared <= policy.max_overlap,
        "overlap",
        where,
        f"it shares {shared} tokens with {before.id!r}, at most {policy.max_overlap}",
    )


def _end(last: SpanChunk | None, documents: Mapping[str, Document], place: str) -> None:
    if last is not None:
        tokens = documents[last.document].tokens
        where = f"{place}, chunk {last.id!r}"
        _require(
            last.end == tokens,
            "document_edge",
            where,
            f"it is the last of {last.document!r} and ends at token {last.end}, not at {tokens}",
        )


def _cases(contract: AuditContract, documents: Mapping[str, Document]) -> None:
    _require(bool(contract.cases), "cases", "cases", "without a case nothing is shown")
    _distinct(((case.id, f"case {case.id!r}") for case in contract.cases), "case_identity")
    chunks = {chunk.id for policy in contract.policies for chunk in policy.chunks}
    for case in contract.cases:
        _case(case, documents, chunks)


def _case(case: AuditCase, documents: Mapping[str, Document], chunks: set[str]) -> None:
    where = f"case {case.id!r}"
    _text(case.id, where, "case_identity")
    document = documents.get(case.document)
    if document is None:
        raise AuditError("case_binding", where, f"there is no document {case.document!r}")
    _require(
        case.digest == document.digest,
        "case_binding",
        where,
        f"its digest is not that of document {case.document!r}",
    )
    _count(case.start, 0, where, "evidence_span", "start")
    _count(case.end, case.start + 1, where, "evidence_span", "end")
    _require(
        case.end <= document.tokens,
        "evidence_span",
        where,
        f"its evidence ends at {case.end}, document {case.document!r} has {document.tokens} tokens",
    )
    for retrieved in case.retrieved:
        _require(retrieved in chunks, "case_binding", where, f"no policy has a chunk {retrieved!r}")
    distinct = len(set(case.retrieved)) == len(case.retrieved)
    _require(distinct, "case_binding", where, "a chunk is retrieved twice")


def _gates(contract: AuditContract) -> None:
    gates = contract.gates
    for name in ("min_span_coverage", "min_retrieval_coverage", "max_mean_minimal_waste_tokens"):
        value = getattr(gates, name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        _require(is_number, "gates", name, f"{value!r} is not a number")
        most = math.inf if name.startswith("max_") else 1
        _require(0 <= value <= most, "gates", name, f"{value:g} is not from 0 to {most:g}")


def _distinct(identities: Iterable[tuple[str, str]], rule: str) -> None:
    seen: set[str] = set()
    for identity, place in identities:
        _require(identity not in seen, rule, place, "it is given twice")
        seen.add(identity)


def _text(value: object, place: str, rule: str) -> None:
    _require(isinstance(value, str) and bool(value.strip()), rule, place, "an id or name must not be blank")


def _digest(value: object, place: str, rule: str) -> None:
    sound = isinstance(value, str) and _DIGEST.fullmatch(value) is not None
    _require(sound, rule, place, "digest must be sha256: or sha256-64k: and 64 lower hex digits")


def _count(value: object, least: int, place: str, rule: str, name: str) -> None:
    sound = isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_TOKENS
    _require(sound, rule, place, f"{name} is {value!r}; it must be a whole number from {least} on")


def _require(sound: bool, rule: str, place: str, message: str) -> None:
    if not sound:
        raise AuditError(rule, place, message)
