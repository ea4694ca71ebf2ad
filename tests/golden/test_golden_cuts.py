from __future__ import annotations

import json

import pytest
from cuts import cuts, golden_file

from tessera.policies import BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_policy_cuts_the_bundled_corpora_as_its_identity_promises(name: str) -> None:
    identity, *golden = golden_file(name).read_text().splitlines()
    found = list(cuts(BUILT_IN[name]))
    moved = [json.loads(line)[0] for line in sorted({*golden} ^ {*found})]
    told = f"{name} cuts {sorted(set(moved))} otherwise: give its parser a new revision, then see cuts.py"
    assert (found, BUILT_IN[name].id) == (golden, json.loads(identity)), told
