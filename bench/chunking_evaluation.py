"""Chunking judged by the evidence it retrieves: our policies and the splitters people use, in one run.

    pip install -r bench/peers.txt
    python -m bench.chunking_evaluation [--data FOLDER] [--budgets 2000 4000]

The folder, else ``chunking_evaluation`` in the one that ``TESSERA_DATA`` names, holds texts (``*.md``) and
``questions.csv`` as published with Chroma's "Evaluating Chunking Strategies for Retrieval" (2024): questions
with the exact spans of a text that answer them. Every cut is ranked by the same BM25 (``\\w+`` words,
k1 = 1.5, b = 0.75, Lucene's idf); the best-ranked chunks are taken until the next would pass the budget of
characters.

Recall, precision and IoU are over characters, of the union of evidence and the union of what was retrieved;
means over questions, in percent. Representability is the share of evidence spans that lie whole in a chunk.
The recommended policy comes with its analyzer and its assembly, in place of words and of whole chunks.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from rank_bm25 import BM25Okapi

from tessera.assembly.assemble import assemble
from tessera.assembly.assembly import SENTENCES, Assembly
from tessera.assembly.passage import Passage
from tessera.index.analyzer import Analyzer, analyzer_named
from tessera.policies import load_policy

Span = tuple[int, int]
Cutter = Callable[[str], list[Span]]
WORDS = re.compile(r"\w+")
POLICIES = ("paragraph", "window-200", "sentence")
RECOMMENDED = ("sentence", "english", SENTENCES)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the text that answers it, and where: half-open spans of code points."""

    text: str
    corpus: str
    evidence: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to cut, rank and take. Without an assembly, whole chunks are taken."""

    name: str
    cut: Cutter
    analyzer: Analyzer
    assembly: Assembly | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Shares from 0 to 1; recall, precision and IoU by budget."""

    chunks: int
    longest: int
    representability: float
    at: dict[int, tuple[float, float, float]]


class Bm25(BM25Okapi):
    """``rank-bm25`` with Lucene's idf, ``ln(1 + (N - n + 0.5) / (n + 0.5))``, which is never negative."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self.idf = {term: math.log(1 + (self.corpus_size - n + 0.5) / (n + 0.5)) for term, n in nd.items()}


def load(folder: Path) -> tuple[dict[str, str], list[Question]]:
    """Texts by name, and the questions on them; ValueError where evidence is not what its text says there."""
    texts = {path.stem: path.read_bytes().decode() for path in sorted(folder.glob("*.md"))}
    questions = []
    with (folder / "questions.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["corpus_id"] not in texts:
                continue
            references = json.loads(row["references"])
            spans = tuple((each["start_index"], each["end_index"]) for each in references)
            for (start, end), each in zip(spans, references, strict=True):
                if texts[row["corpus_id"]][start:end] != each["content"]:
                    raise ValueError(f"{row['corpus_id']} {start} to {end} is not {each['content']!r}")
            questions.append(Question(row["question"], row["corpus_id"], spans))
    return texts, questions


def setups() -> Iterator[Setup]:
    """Ours, then the peers' where they are installed."""
    words = analyzer_named("words")
    for name in POLICIES:
        yield Setup(name, policy_cutter(name), words)
    name, analyzer, assembly = RECOMMENDED
    label = f"{name} + {analyzer} + {assembly.id}"
    yield Setup(label, policy_cutter(name), analyzer_named(analyzer), assembly)
    for peer, cutter in peers():
        yield Setup(peer, cutter, words)


def policy_cutter(name: str) -> Cutter:
    """Spans of a policy's chunks."""
    policy = load_policy(name)
    return lambda text: [(chunk.start, chunk.end) for chunk in policy.chunk(text, "d")]


def peers() -> Iterator[tuple[str, Cutter]]:
    """Splitters people use, at sizes in the same tokens as ours."""
    try:
        from chonkie import RecursiveChunker, SentenceChunker
        from langchain_text_splitters import RecursiveCharacterTextSplitter
        from semchunk import chunkerify
    except ImportError as error:
        print(f"no peers: {error}; pip install -r bench/peers.txt", file=sys.stderr)
        return

    def langchain(size: int) -> Cutter:
        splitter = RecursiveCharacterTextSplitter(
            chunk_size=size, chunk_overlap=0, length_function=tokens, add_start_index=True
        )
        return lambda text: [
            (each.metadata["start_index"], each.metadata["start_index"] + len(each.page_content))
            for each in splitter.create_documents([text])
        ]

    def semchunk(size: int) -> Cutter:
        chunker = chunkerify(tokens, size)
        return lambda text: [tuple(span) for span in chunker(text, offsets=True)[1]]

    def chonkie(kind: type, size: int) -> Cutter:
        chunker = kind(tokenizer=tokens, chunk_size=size)
        return lambda text: [(each.start_index, each.end_index) for each in chunker(text)]

    for size in (200, 100):
        yield f"RecursiveCharacterTextSplitter {size}", langchain(size)
        yield f"semchunk {size}", semchunk(size)
        yield f"chonkie recursive {size}", chonkie(RecursiveChunker, size)
        yield f"chonkie sentence {size}", chonkie(SentenceChunker, size)
        yield f"fixed windows {size}", windows(size)


def windows(size: int) -> Cutter:
    """Fixed windows of so many tokens."""

    def cut(text: str) -> list[Span]:
        starts = [match.start() for match in WORDS.finditer(text)][::size]
        return list(zip(starts, [*starts[1:], len(text)], strict=True))

    return cut


def tokens(text: str) -> int:
    """Tokens of ``words@1``."""
    return len(WORDS.findall(text))


def measure(
    setup: Setup, texts: dict[str, str], questions: Sequence[Question], budgets: Sequence[int]
) -> Figures:
    """Cut all texts, ask all questions."""
    cuts = {name: setup.cut(text) for name, text in texts.items()}
    ranked = {
        name: Bm25([setup.analyzer.terms(texts[name][start:end]) for start, end in spans], k1=1.5, b=0.75)
        for name, spans in cuts.items()
    }
    whole: list[bool] = []
    found: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for question in questions:
        text, spans = texts[question.corpus], cuts[question.corpus]
        whole += [any(a <= start and end <= b for a, b in spans) for start, end in question.evidence]
        scores = ranked[question.corpus].get_scores(setup.analyzer.query_terms(question.text))
        for budget in budgets:
            retrieved = take(setup.assembly, text, spans, scores, budget)
            found[budget].append(judged(union(question.evidence), union(retrieved)))
    chunks = [texts[name][start:end] for name, spans in cuts.items() for start, end in spans]
    at = {budget: _means(rows) for budget, rows in found.items()}
    return Figures(len(chunks), max(map(tokens, chunks)), fmean(whole), at)


def _means(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    recall, precision, iou = (fmean(column) for column in zip(*rows, strict=True))
    return recall, precision, iou


def take(
    assembly: Assembly | None, text: str, spans: Sequence[Span], scores: np.ndarray, budget: int
) -> list[Span]:
    """What is retrieved within a budget of characters."""
    order = np.lexsort((np.arange(len(scores)), -scores))
    if assembly is None:
        taken, used = [], 0
        for number in order:
            start, end = spans[number]
            used += end - start
            if used > budget:
                break
            taken.append((start, end))
        return taken
    hits = [number for number in order[: assembly.hits] if scores[number] > 0]
    passages = [
        Passage("text", str(number), *spans[number], float(scores[number]), text[slice(*spans[number])])
        for number in hits
    ]
    context = assemble(assembly, passages, budget, len, {"text": spans})
    return [(piece.start, piece.end) for piece in context.pieces]


def judged(evidence: Sequence[Span], retrieved: Sequence[Span]) -> tuple[float, float, float]:
    """Recall, precision and IoU of characters."""
    shared = sum(max(0, min(b, d) - max(a, c)) for a, b in evidence for c, d in retrieved)
    wanted, got = (sum(end - start for start, end in spans) for spans in (evidence, retrieved))
    return shared / wanted, shared / got if got else 0.0, shared / (wanted + got - shared)


def union(spans: Iterable[Span]) -> list[Span]:
    """The same characters in disjoint spans."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def main(arguments: list[str] | None = None) -> int:
    """Print a line per setup."""
    parser = argparse.ArgumentParser(prog="python -m bench.chunking_evaluation", description=__doc__)
    folder = Path(os.environ.get("TESSERA_DATA", "")) / "chunking_evaluation"
    parser.add_argument("--data", type=Path, default=folder)
    parser.add_argument("--budgets", type=int, nargs="+", default=[2000, 4000], help="characters")
    given = parser.parse_args(arguments)
    if not (given.data / "questions.csv").is_file():
        parser.error(f"{given.data}/questions.csv is not there: name the folder with --data or TESSERA_DATA")
    texts, questions = load(given.data)
    print(f"{len(questions)} questions on {len(texts)} texts; recall / precision / IoU in percent")
    print(f"{'':<42}{'chunks':>7}{'longest':>9}{'repr.':>7}" + "".join(f"{n:>22}" for n in given.budgets))
    for setup in setups():
        figures = measure(setup, texts, questions, given.budgets)
        held = f"{figures.chunks:>7}{figures.longest:>9}{100 * figures.representability:>7.1f}"
        shares = (" /".join(f"{100 * share:5.1f}" for share in row) for row in figures.at.values())
        print(f"{setup.name:<42}{held}" + "".join(f"{row:>22}" for row in shares), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
