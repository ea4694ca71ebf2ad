from __future__ import annotations

import json

import pytest
from cuts import POLICIES, cuts, golden_file


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_cuts_the_bundled_corpora_as_its_identity_promises(name: str) -> None:
    identity, *golden = golden_file(name).read_text().splitlines()
    found = list(cuts(POLICIES[name]))
    moved = [json.loads(line)[0] for line in sorted({*golden} ^ {*found})]
    told = f"{name} cuts {sorted(set(moved))} otherwise: give its parser a new revision, then see cuts.py"
    assert (found, POLICIES[name].id) == (golden, json.loads(identity)), told
