"""``tessera generation …``: arguments and help; the work is in :mod:`tessera.cli.lifecycle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tessera.cli.options import Broker, Config, DataDir, Json, Redis, servers

generation_app = typer.Typer(help="Generations: the life of an index under one policy.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="G", help="The generation's name.")]
Wait = Annotated[bool, typer.Option("--no-wait", help="Return at once.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the record.")]
Retention = Annotated[
    str | None,
    typer.Option("--retention", metavar="24h", help="Keep the old one for a rollback (setting retention_s)."),
]


@generation_app.command("create", epilog="Example: tessera generation create --policy window-200")
def create(
    policy: Annotated[str, typer.Option("--policy", help="A built-in policy or a TOML file.")],
    name: Annotated[str | None, typer.Option("--name", help="Its name; else the next of g1, g2, …")] = None,
    analyzer: Annotated[
        str, typer.Option("--analyzer", help="From text to terms: words, or english (stemmed).")
    ] = "words",
    rate: Annotated[
        float | None, typer.Option("--rate", help="Backfill at most this many documents a second and shard.")
    ] = None,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Create a generation: every shard begins to write it, and to backfill what it holds already."""
    from tessera.cli import lifecycle

    lifecycle.create(servers(broker, redis, data_dir), config, policy, name, rate, analyzer, as_json=as_json)


@generation_app.command("list", epilog="Example: tessera generation list --json")
def list_all(
    redis: Redis = None, data_dir: DataDir = None, config: Config = None, as_json: Json = False
) -> None:
    """List all generations ever made, with states."""
    from tessera.cli import lifecycle

    lifecycle.show_all(servers(None, redis, data_dir), config, as_json=as_json)


@generation_app.command("show", epilog="Example: tessera generation show g2")
def show(
    generation: Name,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show a generation: contract, shards, evidence, and every step of its life."""
    from tessera.cli import lifecycle

    lifecycle.show_one(servers(None, redis, data_dir), config, generation, as_json=as_json)


@generation_app.command("backfill", epilog="Example: tessera generation backfill g2 --rate 50")
def backfill(
    generation: Name,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Documents a second and shard at most; 0: no bound.")
    ] = None,
    no_wait: Wait = False,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Start or adjust the backfill, and follow it until every shard holds all documents."""
    from tessera.cli import lifecycle

    flags = servers(broker, redis, data_dir)
    lifecycle.backfill(flags, config, generation, rate, wait=not no_wait, as_json=as_json)


@generation_app.command("pause", epilog="Example: tessera generation pause g2")
def pause(
    generation: Name,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Pause the backfill; live changes go on being written."""
    from tessera.cli import lifecycle

    lifecycle.change(servers(broker, redis, data_dir), config, "pause", generation, as_json=as_json)


@generation_app.command("resume", epilog="Example: tessera generation resume g2")
def resume(
    generation: Name,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Resume a paused backfill."""
    from tessera.cli import lifecycle

    lifecycle.change(servers(broker, redis, data_dir), config, "resume", generation, as_json=as_json)


@generation_app.command("verify", epilog="Example: tessera generation verify g2")
def verify(
    generation: Name,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Documents cut anew and compared.")] = 50,
    seed: Annotated[int, typer.Option("--seed", help="Which documents: the same for a seed.")] = 0,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Prove that it holds what the serving generation holds, and show what it covers otherwise."""
    from tessera.cli import proof

    proof.verify(servers(broker, redis, data_dir), config, generation, sample, seed, as_json=as_json)


@generation_app.command("compare", epilog="Example: tessera generation compare g1 g2 --cases cases.jsonl")
def compare(
    baseline: Annotated[str, typer.Argument(metavar="A", help="The generation to compare with.")],
    candidate: Annotated[str, typer.Argument(metavar="B", help="The candidate.")],
    cases: Annotated[Path, typer.Option("--cases", metavar="F", help="Query cases and thresholds.")],
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="24h", help="How long the evidence holds (setting evidence_ttl_s)."
        ),
    ] = None,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run the same query cases on both; what passes is the evidence that a cutover needs."""
    from tessera.cli import proof

    flags = servers(broker, redis, data_dir)
    proof.compare(flags, config, baseline, candidate, cases, expires, as_json=as_json)


@generation_app.command("abandon", epilog="Example: tessera generation abandon g2")
def abandon(
    generation: Name,
    why: Why = "",
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Give up a generation that was never to be served, and remove it."""
    from tessera.cli import lifecycle

    lifecycle.abandon(servers(broker, redis, data_dir), config, generation, why, as_json=as_json)


@generation_app.command("rebuild", epilog="Example: tessera generation rebuild --from-log --yes")
def rebuild(
    from_log: Annotated[
        bool, typer.Option("--from-log", help="Read the topics again from their beginning.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: all shards are emptied first.")] = False,
    lose: Annotated[
        int, typer.Option("--lose", min=0, metavar="N", help="Documents that may be lost: not in the log.")
    ] = 0,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Rebuild everything from the log, for when Redis was lost. Without --yes: say what that would reach."""
    from tessera.cli import lifecycle

    flags = servers(broker, redis, data_dir)
    lifecycle.rebuild(flags, config, from_log=from_log, confirmed=yes, lose=lose, as_json=as_json)


@generation_app.command("cutover", epilog="Example: tessera generation cutover g2 --dry-run")
def cutover(
    generation: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show checks and changes only.")] = False,
    waive: Annotated[
        str | None,
        typer.Option("--waive", metavar="WHY", help="Overrule the one failing check, or CHECK: WHY."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="24h", help="How long the waiver holds.")
    ] = None,
    retention: Retention = None,
    assembly: Annotated[
        str | None,
        typer.Option("--assembly", help="Of contexts: joined, sections, sentences, or with :score behind."),
    ] = None,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Serve another generation: all checks, then one switch that moves every reader."""
    from tessera.cli import lifecycle

    flags = servers(broker, redis, data_dir)
    asked = (waive, expires, retention, assembly)
    lifecycle.cutover(flags, config, generation, *asked, dry_run=dry_run, as_json=as_json)


@generation_app.command("rollback", epilog="Example: tessera generation rollback")
def rollback(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show checks and changes only.")] = False,
    why: Why = "",
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Serve the previous release again, at once."""
    from tessera.cli import lifecycle

    lifecycle.rollback(servers(broker, redis, data_dir), config, why, dry_run=dry_run, as_json=as_json)


@generation_app.command("hold", epilog='Example: tessera generation hold g1 --why "audit until July"')
def hold(
    generation: Name,
    why: Why = "kept by an operator",
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Keep a generation from being contracted or abandoned."""
    from tessera.cli import lifecycle

    lifecycle.change(servers(broker, redis, data_dir), config, "hold", generation, why, as_json=as_json)


@generation_app.command("release-hold", epilog="Example: tessera generation release-hold g1")
def release_hold(
    generation: Name,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Take the hold off."""
    from tessera.cli import lifecycle

    lifecycle.change(servers(broker, redis, data_dir), config, "release-hold", generation, as_json=as_json)


@generation_app.command("contract", epilog="Example: tessera generation contract g1")
def contract(
    generation: Name,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Remove a retired generation for good, once nobody reads it. Given again, it goes on where it was."""
    from tessera.cli import lifecycle

    lifecycle.contract(servers(broker, redis, data_dir), config, generation, as_json=as_json)
