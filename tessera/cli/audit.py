"""``tessera audit``: whether declared policies keep declared evidence whole."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from tessera.cli.terminal import print_json, printable, progress
from tessera.lab.audit import audit, lines, load_contract


def run(file: Path, *, as_json: bool) -> None:
    """Audit the contract of a file; exit status 1 where a gate fails."""
    contract = load_contract(file)
    with progress(f"auditing {file.name}") as bar:

        def told(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        result = audit(contract, told)
    if as_json:
        print_json(asdict(result))
    else:
        for line in lines(result):
            print(printable(line))
    if result.failures:
        raise typer.Exit(1)
