"""Documents as a shard holds them: stored state, order of revisions, logs that grow."""
