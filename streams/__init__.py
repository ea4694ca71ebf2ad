"""The stream layer: Faust owns partitions and batches, the engine in :mod:`tessera` does the rest.

Nothing in :mod:`tessera` imports this package.
"""
