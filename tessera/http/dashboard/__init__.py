"""The live dashboard: one page at ``/`` and the files it needs, all of them in the package."""
