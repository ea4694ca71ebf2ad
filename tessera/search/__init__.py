"""Live, exact search over all shards: current snapshots, canonical BM25, texts of hits."""

from tessera.search.answer import Answer, Hit, SearchStats
from tessera.search.pinned import PinnedGeneration
from tessera.search.searcher import Searcher

__all__ = ["Answer", "Hit", "PinnedGeneration", "SearchStats", "Searcher"]
