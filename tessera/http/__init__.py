"""The HTTP service: search, change events, documents, status, metrics."""
