"""Storage of shards: one contract, in memory and in Redis."""
