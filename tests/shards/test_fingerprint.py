from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.shards.fingerprint import MODULUS, add, contribution
from tessera.store.base import NO_FINGERPRINT

DOCUMENT = st.tuples(st.text(max_size=8), st.integers(0, 2**63 - 1), st.text(max_size=8))


@given(st.lists(DOCUMENT, unique=True, max_size=8), st.integers(0, 8), st.randoms())
def test_any_way_of_changes_to_the_same_documents_gives_the_same_fingerprint(
    documents: list[tuple[str, int, str]], kept: int, order: random.Random
) -> None:
    direct = add(NO_FINGERPRINT, sum(contribution(*document) for document in documents[:kept]))
    changes = [(document, True) for document in documents]
    order.shuffle(changes)
    changes += [(document, False) for document in documents[kept:]]
    found = NO_FINGERPRINT
    for document, comes in changes:
        amount = contribution(*document)
        found = add(found, plus=amount) if comes else add(found, minus=amount)
    assert found == direct
    assert len(found) == 32


@given(DOCUMENT, DOCUMENT)
def test_different_documents_give_different_fingerprints(
    one: tuple[str, int, str], other: tuple[str, int, str]
) -> None:
    assert (contribution(*one) == contribution(*other)) == (one == other)
    assert 0 <= contribution(*one) < MODULUS


def test_fields_do_not_run_into_each_other() -> None:
    assert contribution("s/a1", 2, "x") != contribution("s/a", 12, "x")
    assert contribution("s/a", 1, "2x") != contribution("s/a", 12, "x")


def test_a_document_that_is_there_twice_is_seen() -> None:
    amount = contribution("s/a", 1, "x")
    once = add(NO_FINGERPRINT, amount)
    assert add(once, amount) != once
    assert add(once, minus=amount) == NO_FINGERPRINT


def test_the_sum_is_pinned_since_shards_keep_it() -> None:
    assert add(NO_FINGERPRINT, contribution("handbook/a.md", 7, "sha256:00")) == (
        "26d1ece55ed360637145c7be6f4809a9"
    )


@pytest.mark.parametrize("fingerprint", ["", "0" * 31, "g" * 32])
def test_what_is_no_fingerprint_is_refused(fingerprint: str) -> None:
    with pytest.raises(ValueError, match=r"hex|invalid"):
        add(fingerprint, 1)
