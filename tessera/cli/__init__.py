"""The command line: ``tessera``."""
