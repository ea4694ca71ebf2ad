"""Questions over the bundled corpora, with the chunk that answers each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundled import SOURCES, bundled_files
from test_renewal_question import QUESTION, LuceneBM25, tokens

from tessera.policies import load_policy

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]

Located = tuple[str, str, str]


@pytest.fixture(scope="module")
def chunks() -> dict[Located, str]:
    policy = load_policy("paragraph")
    return {
        (file.source, file.doc_id, chunk.id): chunk.text
        for file in bundled_files()
        for chunk in policy.chunk(file.text, file.stem, media_type=file.media_type)
    }


@pytest.fixture(scope="module")
def oracle(chunks: dict[Located, str]) -> LuceneBM25:
    return LuceneBM25([tokens(text) for text in chunks.values()], k1=1.2, b=0.75)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["chunk"])
def test_the_expected_chunk_ranks_first(
    case: dict[str, str], chunks: dict[Located, str], oracle: LuceneBM25
) -> None:
    scores = oracle.get_scores(tokens(case["question"]))
    ranked = sorted(zip(chunks, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
    assert ranked[0][0] == (case["source"], case["doc_id"], case["chunk"])
    assert ranked[0][1] > ranked[1][1]


def test_cases_ask_every_source_and_the_renewal_question() -> None:
    assert {case["source"] for case in CASES} == set(SOURCES)
    assert QUESTION in {case["question"] for case in CASES}


def test_every_paragraph_of_a_run_log_is_a_chunk(chunks: dict[Located, str]) -> None:
    assert ("devex", "run_R-1042.log", "run_R-1042:chunk5") in chunks
    assert all("\n\n" not in text for (source, _, _), text in chunks.items() if source == "devex")
