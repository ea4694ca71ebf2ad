"""Sources: named origins of documents and logs, and the connectors that turn them into change events."""
