"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Broker = Annotated[
    str | None, typer.Option("--broker", metavar="HOST:PORT", help="Kafka broker; else TESSERA_BROKER.")
]
Redis = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help="Redis-compatible server; else TESSERA_REDIS.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Folder of `tessera up`; else TESSERA_DATA_DIR, .tessera."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file; else TESSERA_CONFIG, tessera.toml."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def servers(broker: str | None, redis: str | None, data_dir: Path | None) -> dict[str, Any]:
    """The flags that tell a command which servers to use; None is as if not given."""
    return {"broker": broker, "redis": redis, "data_dir": data_dir}
