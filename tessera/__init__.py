"""Tessera: an event-driven streaming indexer with exact provenance and coherent cutover."""

__version__ = "0.1.0"
