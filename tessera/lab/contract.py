"""What an audit is given: documents, policies, query cases and gates, as their owner attests them.

All spans are half-open, in tokens of their document. As JSON it is one object::

    {"documents": [{"id": "msa", "digest": "sha256:…", "tokens": 24}],
     "policies": [{"name": "window", "max_tokens": 10, "max_overlap": 2,
                   "chunks": [{"id": "w0", "document": "msa", "start": 0, "end": 10}, …]}],
     "cases": [{"id": "renewal", "document": "msa", "digest": "sha256:…", "start": 2, "end": 8,
                "retrieved": ["w0"]}],
     "gates": {"min_span_coverage": 1.0}}

``audit.schema.json`` beside this module is its JSON Schema.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tessera.errors import AuditError

_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Document:
    """A document by its identity: id, digest of its content, and how many tokens it has."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: str
    digest: str
    tokens: int


@dataclass(frozen=True, slots=True)
class SpanChunk:
    """A chunk: tokens ``start`` to ``end`` of a document."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: str
    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AuditedPolicy:
    """What a policy made of all documents, in their order, each from its first token to its last.

    No chunk has more than ``max_tokens`` tokens, or shares more than ``max_overlap`` with the one before.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: str
    max_tokens: int
    max_overlap: int
    chunks: tuple[SpanChunk, ...]


@dataclass(frozen=True, slots=True)
class AuditCase:
    """A question: where its evidence is, of which content, and the chunks retrieved for it, of any policy."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: str
    document: str
    digest: str
    start: int
    end: int
    retrieved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gates:
    """What each policy must reach; None demands nothing. Shares are from 0 to 1, waste is in tokens."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    min_span_coverage: float | None = None
    min_retrieval_coverage: float | None = None
    max_mean_minimal_waste_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class AuditContract:
    """Everything an audit looks at. Offsets and digests are attested by whoever makes it."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    documents: tuple[Document, ...]
    policies: tuple[AuditedPolicy, ...]
    cases: tuple[AuditCase, ...]
    gates: Gates = field(default_factory=Gates)


def parse_contract(text: str | bytes, where: str = "the contract") -> AuditContract:
    """The contract in a JSON text; :class:`~tessera.errors.AuditError` says what is not as it must be."""
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or where
        raise AuditError("form", place, f"{first['msg']}; see audit.schema.json") from error


def load_contract(path: Path) -> AuditContract:
    """The contract of a JSON file; raises as :func:`parse_contract`."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise AuditError("form", str(path), f"cannot be read: {error.strerror}") from error
    return parse_contract(text.removeprefix(BOM_UTF8), str(path))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of contracts."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_adapter().json_schema()}


@cache
def _adapter() -> TypeAdapter[AuditContract]:
    return TypeAdapter(AuditContract)
