"""Where the built-in policies, and one with sections, cut the bundled corpora. To write the files anew:

    python tests/golden/cuts.py

A difference means that chunks have moved: it needs a new revision of the parser or context, and so a new
identity of every policy with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from bundled import bundled_files

from tessera.policies import BUILT_IN, ChunkPolicy, TextPolicy

GOLDEN = Path(__file__).parent / "cuts"
POLICIES = {
    **BUILT_IN,
    "sections": ChunkPolicy("sections", TextPolicy("sentence", 100, 20, "section")),
}


def cuts(policy: ChunkPolicy) -> Iterator[str]:
    """A line per document: its name, then start, end, lines, tokens, headings and context of each chunk."""
    for file in bundled_files():
        chunks = policy.chunk(file.text, file.stem, file.media_type)
        spans = [[*chunk[2:6], *chunk[7:9], list(chunk.headings), chunk.context] for chunk in chunks]
        yield json.dumps([f"{file.source}/{file.doc_id}", spans], ensure_ascii=False)


def golden_file(name: str) -> Path:
    """The file that pins a policy."""
    return GOLDEN / f"{name}.jsonl"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, policy in POLICIES.items():
        lines = [json.dumps(policy.id), *cuts(policy)]
        golden_file(name).write_text("".join(f"{line}\n" for line in lines))
