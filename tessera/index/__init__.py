"""The index of one generation: analyzer, segments, merges."""
