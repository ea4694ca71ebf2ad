"""Connectors: folders of named sources turned into change events, and the bundled corpora."""
