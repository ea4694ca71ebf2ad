"""``python -m tessera``: the command line."""

from __future__ import annotations

from tessera.cli.main import main

main()
