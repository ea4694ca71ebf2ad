"""Speed of chunking on real texts, in MB of UTF-8 a second, one process: medians of several passes.

    TESSERA_DATA=/path/to/data python bench/chunking.py [PASSES]

Reads ``markdown/rust-rfcs.tar.gz`` and the files under ``logs/`` in that folder.
"""

from __future__ import annotations

import os
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tessera.ingestion import chunk_text, parse_log_chunks
from tessera.policies import load_policy


def read_documents(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile() and member.name.endswith(".md")]
        return [file.read().decode() for member in members if (file := archive.extractfile(member))]


def read_logs(folder: Path) -> list[str]:
    return [path.read_bytes().decode(errors="replace") for path in sorted(folder.rglob("*.*"))]


def report(name: str, cut: Callable[[str, str], list[object]], texts: list[str], passes: int) -> None:
    size_mb = sum(len(text.encode()) for text in texts) / 1e6
    rates = []
    for _ in range(passes):
        begin = time.perf_counter()
        chunks = sum(len(cut(text, "bench")) for text in texts)
        rates.append(size_mb / (time.perf_counter() - begin))
    print(f"{name:32} {median(rates):7.1f} MB/s  {size_mb:5.1f} MB, {chunks} chunks, {passes} passes")


def main() -> None:
    folder = os.environ.get("TESSERA_DATA")
    if not folder:
        sys.exit("set TESSERA_DATA to the folder that holds markdown/rust-rfcs.tar.gz and logs/")
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    documents = read_documents(Path(folder) / "markdown" / "rust-rfcs.tar.gz")
    logs = read_logs(Path(folder) / "logs")
    policy = load_policy("paragraph")
    policy.chunk("x", "warm-up")  # builds the tokenizer's table, once per process
    report("chunk_text, Markdown", chunk_text, documents, passes)
    report("policy.chunk, Markdown", policy.chunk, documents, passes)
    for name in ("sentence", "markdown"):
        report(f"policy {name}, Markdown", load_policy(name).chunk, documents, passes)
    report("parse_log_chunks, logs", parse_log_chunks, logs, passes)
    report(
        "policy.chunk, CI logs", lambda text, stem: policy.chunk(text, stem, "text/x-ci-log"), logs, passes
    )


if __name__ == "__main__":
    main()
