"""Shards: the one writer of each, its batches, merges and dead letters."""
