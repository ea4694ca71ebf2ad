from __future__ import annotations

import json

import pytest

from tessera.assembly.assembly import ASSEMBLIES, JOINED, SENTENCES, Assembly
from tessera.errors import CorruptionError
from tessera.releases import Contract, Release, Scorer

RELEASE = {
    "release": "r1",
    "generation": "g1",
    "scorer": {"name": "bm25", "revision": 1, "k1": 1.2, "b": 0.75},
    "embedding": None,
    "reranker": None,
    "assembly": None,
}


def test_a_release_is_stored_as_the_documented_json() -> None:
    release = Release("r1", "g1")
    assert json.loads(release.to_json()) == RELEASE
    assert Release.from_json(release.to_json()) == release
    assert Release.from_json(json.dumps(RELEASE).encode()).to_json() == release.to_json()


def test_a_release_without_an_assembly_is_read_as_it_was_written_and_joins() -> None:
    release = Release.from_json(json.dumps(RELEASE).encode())
    assert release.assembly is None
    assert release.context_assembly == JOINED


@pytest.mark.parametrize("assembly", ASSEMBLIES.values(), ids=ASSEMBLIES)
def test_a_release_carries_its_assembly(assembly: Assembly) -> None:
    release = Release("r2", "g1", assembly=assembly)
    assert json.loads(release.to_json())["assembly"] == assembly.to_value()
    assert Release.from_json(release.to_json()) == release
    assert release.context_assembly == assembly


@pytest.mark.parametrize(
    "changed",
    [{"revision": 2}, {"name": "best"}, {"hits": 10**9}, {"floor": 2.0}, {"order": "any"}, {"children": 1}],
)
def test_an_assembly_that_this_build_does_not_know_is_refused(changed: dict[str, object]) -> None:
    value = {**RELEASE, "assembly": SENTENCES.to_value() | changed}
    with pytest.raises(CorruptionError, match="assembly"):
        Release.from_json(json.dumps(value).encode())


def test_a_contract_is_stored_as_the_documented_json_and_its_digest_leaves_the_name_out() -> None:
    contract = Contract("paragraph@0a", {"parser": "x"}, "words@1/unicode-1")
    assert contract.to_value() == {
        "policy": {"id": "paragraph@0a", "canonical": {"parser": "x"}},
        "analyzer": "words@1/unicode-1",
        "embedding": None,
    }
    assert Contract.from_value(contract.to_value()) == contract
    assert Contract("other@0a", {"parser": "x"}, "words@1/unicode-1").digest == contract.digest
    assert Contract("paragraph@0a", {"parser": "y"}, "words@1/unicode-1").digest != contract.digest
    assert Contract("paragraph@0a", {"parser": "x"}, "words@2/unicode-1").digest != contract.digest


@pytest.mark.parametrize("broken", [b"", b"[]", b"{}", b'{"release": "r1", "generation": "g1", "scorer": 5}'])
def test_what_cannot_be_read_is_reported(broken: bytes) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        Release.from_json(broken)


@pytest.mark.parametrize(
    "scorer", [{"name": "tfidf"}, {"revision": 2}, {"k1": -0.1}, {"k1": float("nan")}, {"b": 1.1}]
)
def test_a_scorer_that_this_build_cannot_run_is_refused(scorer: dict[str, object]) -> None:
    with pytest.raises(CorruptionError, match="scorer"):
        Scorer(**scorer)  # type: ignore[arg-type]
