"""ADR 0021: the section that answers stays first while unrelated records come in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from bundled import BundledFile, bundled_files
from rank_bm25 import BM25Okapi

from tessera.policies import load_policy

QUESTION = "What is the renewal term, and how many days before the end of the term must notice be given?"
HEADING = "## 2. Term and renewal"
COUNTS = [0, 1, 4, 50, 500]
NEAR = 0.0005
"""The old rule left the clause less than this ahead of its heading, as a share of the heading's score."""


class Ranked(NamedTuple):
    score: float
    text: str


class LuceneBM25(BM25Okapi):  # type: ignore[misc]
    """rank_bm25 with the idf that Lucene and Tessera use."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        for term, count in nd.items():
            self.idf[term] = math.log(1 + (self.corpus_size - count + 0.5) / (count + 0.5))


def tokens(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def new_rule(file: BundledFile) -> Iterator[str]:
    policy = load_policy("paragraph")
    return (chunk.text for chunk in policy.chunk(file.text, file.stem, media_type=file.media_type))


def old_rule(file: BundledFile) -> Iterator[str]:
    """Cut at blank lines, headings on their own. Runner logs have never been cut so."""
    if file.source == "github":
        yield from new_rule(file)
    else:
        yield from re.split(r"\n(?:[ \t\r]*\n)+", file.text.strip("\n"))


def unrelated(count: int) -> list[str]:
    """Short records that share no term with the question."""
    records = [f"Gauge {n} read {n * 7 % 900} mm at noon." for n in range(count)]
    assert not set(tokens(QUESTION)) & {term for record in records for term in tokens(record)}
    return records


def ranking(texts: list[str]) -> list[Ranked]:
    scores = LuceneBM25([tokens(text) for text in texts], k1=1.2, b=0.75).get_scores(tokens(QUESTION))
    return sorted(
        (Ranked(float(score), text) for score, text in zip(scores, texts, strict=True)), reverse=True
    )


@pytest.fixture(scope="module")
def new_texts() -> list[str]:
    return [text for file in bundled_files() for text in new_rule(file)]


@pytest.fixture(scope="module")
def old_texts() -> list[str]:
    return [text for file in bundled_files() for text in old_rule(file)]


@pytest.mark.parametrize("count", COUNTS)
def test_the_section_ranks_first_by_a_wide_margin(new_texts: list[str], count: int) -> None:
    first, second = ranking(new_texts + unrelated(count))[:2]
    assert first.text.startswith(HEADING + "\n\nThis agreement starts")
    assert first.text.endswith("is enough.")
    assert first.score > 1.2 * second.score


@pytest.mark.parametrize("count", [0, 1])
def test_the_old_rule_left_the_clause_within_a_hair_of_its_heading(old_texts: list[str], count: int) -> None:
    first, second = ranking(old_texts + unrelated(count))[:2]
    assert first.text.startswith("This agreement starts")
    assert second.text == HEADING
    assert 0 < first.score - second.score < NEAR * second.score


@pytest.mark.parametrize("count", [4, 50, 500])
def test_under_the_old_rule_four_short_records_put_the_bare_heading_first(
    old_texts: list[str], count: int
) -> None:
    assert ranking(old_texts + unrelated(count))[0].text == HEADING
