"""Life of generations: registry, control log, verification, comparison, cutover."""
