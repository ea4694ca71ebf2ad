"""Servers that run inside the process tree of Tessera, for trying it out and for tests."""
