"""How long an audit takes: ``python -m bench.audit [--cases 100000]``, over 1,000 documents in windows."""

from __future__ import annotations

import argparse
import random
import sys
import time
from hashlib import sha256

from tessera.lab.audit import AuditContract, audit
from tessera.lab.contract import AuditCase, AuditedPolicy, Document, Gates, SpanChunk
from tessera.policies import token_windows

DOCUMENTS = 1_000
TOKENS = 5_000


def contract(cases: int) -> AuditContract:
    """A contract of two window policies and random evidence, ten chunks retrieved for each case."""
    random_ = random.Random(1)
    digest = f"sha256:{sha256(b'').hexdigest()}"
    documents = tuple(Document(f"d{number}", digest, TOKENS) for number in range(DOCUMENTS))
    policies = []
    for size, overlap in ((200, 20), (100, 50)):
        chunks = (
            SpanChunk(f"{size}/{document.id}/{number}", document.id, *window)
            for document in documents
            for number, window in enumerate(token_windows(TOKENS, size, overlap))
        )
        policies.append(AuditedPolicy(f"window-{size}", size, overlap, tuple(chunks)))
    ids = [chunk.id for chunk in policies[0].chunks]
    asked = []
    for number in range(cases):
        start = random_.randrange(TOKENS - 60)
        found = tuple(random_.sample(ids, 10))
        document = documents[number % DOCUMENTS].id
        asked.append(AuditCase(f"k{number}", document, digest, start, start + random_.randint(1, 60), found))
    return AuditContract(documents, tuple(policies), tuple(asked), Gates(0.5))


def main() -> int:
    """Print seconds, and the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.audit", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    made = contract(parser.parse_args().cases)
    began = time.perf_counter()
    result = audit(made)
    seconds = time.perf_counter() - began
    chunks = sum(len(policy.chunks) for policy in made.policies)
    print(f"{len(made.cases):,} cases, {chunks:,} chunks of {len(made.policies)} policies: {seconds:.2f} s")
    print(f"span coverage {result.span_coverage:.3f}, waste {result.mean_minimal_waste_tokens:.1f} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
