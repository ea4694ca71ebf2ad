"""The command line's entry: every command's arguments and help; the work is in a module per command.

Those modules are imported when their command runs, so that ``tessera --help`` answers at once.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from tessera.cli.generation import generation_app
from tessera.cli.options import Broker, Config, DataDir, Json, Redis, servers
from tessera.cli.token import token_app
from tessera.errors import (
    AuditError,
    CaseError,
    PlanError,
    PolicyError,
    QueryError,
    SettingsError,
    TesseraError,
    UnavailableError,
)

FAILED = 1
USED_WRONGLY = 2
INTERRUPTED = 130

MISTYPED = ("duration", "name", "rate", "policy")
"""Refusals of what could never be right, however things stand."""

app = typer.Typer(
    name="tessera",
    help="Index documents and logs as they change; search them exactly.",
    epilog="Try it out: tessera up",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
shard_app = typer.Typer(help="Shards: what one Kafka partition feeds.", no_args_is_help=True)
deadletter_app = typer.Typer(help="Records that could not be applied.", no_args_is_help=True)
app.add_typer(shard_app, name="shard")
app.add_typer(deadletter_app, name="deadletter")
app.add_typer(generation_app, name="generation")
app.add_typer(token_app, name="token")
lab_app = typer.Typer(help="The policy lab: chunking judged on questions and evidence.", no_args_is_help=True)
app.add_typer(lab_app, name="lab")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0, 1 where it failed, 2 where it was used wrongly."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """The exit status of the command; errors go to standard error in one line, with ``--json`` as JSON."""
    # What goes wrong with a broker is told once, in our own words; the library's lines would come on top.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    command = typer.main.get_command(app)
    complain = _complain_as_json if "--json" in arguments else _complain
    try:
        outcome = command.main(arguments, prog_name="tessera", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except typer.Exit as stop:
        return stop.exit_code
    except Exception as error:
        status = _explain(error, complain)
        if status is None:
            raise
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    return outcome if isinstance(outcome, int) else 0


Complain = Callable[[str, str], None]
"""Tells an error: its code, a stable word, and its message."""


def _explain(error: Exception, complain: Complain) -> int | None:
    """Tell the error and return the exit status; None where it is not one that a user can act on."""
    if isinstance(error, TesseraError):
        wrong = isinstance(error, (SettingsError, QueryError, PolicyError, PlanError, CaseError, AuditError))
        code = getattr(error, "reason", "") or ("invalid_request" if wrong else "failed")
        complain("unavailable" if isinstance(error, UnavailableError) else code, str(error))
        return USED_WRONGLY if wrong or code in MISTYPED else FAILED
    if isinstance(error, BrokenPipeError):
        # The reader (`| head`) has what it wanted.
        sys.stdout = None
        return 0
    show = getattr(error, "format_message", None)  # click's errors, whichever click typer brings
    if show is None:
        return None
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tessera"
    message = show()
    if not message:  # no arguments given: the help was printed instead
        return USED_WRONGLY
    complain("usage", f"{message.rstrip('.')}: see {path} --help")
    return USED_WRONGLY


def _complain(_code: str, message: str) -> None:
    from tessera.cli.terminal import printable

    print(f"tessera: {printable(' '.join(message.split()))}", file=sys.stderr)


def _complain_as_json(code: str, message: str) -> None:
    print(json.dumps({"error": {"code": code, "message": message}}), file=sys.stderr)


@app.callback(invoke_without_command=True)
def tessera(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Index documents and logs as they change; search them exactly."""
    if version:
        from tessera import __version__

        print(f"tessera {__version__}")
        raise typer.Exit


@app.command(epilog="Example: tessera up --source notes=~/notes")
def up(
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="NAME=PATH[,KIND]", help="Index this folder and keep watching it."),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port of the HTTP service (8765).")] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Stream workers.")] = 1,
    data_dir: DataDir = None,
    broker: Broker = None,
    redis: Redis = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run all of it in one terminal: servers, worker, HTTP service, the bundled corpora. Ctrl-C stops it."""
    from tessera.cli import up as command

    flags = {**servers(broker, redis, data_dir), "port": port}
    command.run(flags, config, folders=source or [], workers=workers, as_json=as_json)


@app.command(epilog="Example: tessera worker --broker kafka:9092 --redis redis://valkey:6379/0")
def worker(
    metrics_port: Annotated[int | None, typer.Option("--metrics-port", help="Port of /metrics.")] = None,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run one stream worker: it reads the change topics and writes the index."""
    from tessera.cli import parts

    flags = {**servers(broker, redis, data_dir), "metrics_port": metrics_port}
    parts.worker(flags, config, as_json=as_json)


@app.command(epilog="Example: tessera serve --port 8765")
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to bind (127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port to bind (8765); 0 takes a free one.")
    ] = None,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Run the HTTP service: search, change events, status, metrics."""
    from tessera.cli import parts

    flags = {**servers(broker, redis, data_dir), "host": host, "port": port}
    parts.serve(flags, config, as_json=as_json)


@app.command(epilog="Example: tessera audit contract.json")
def audit(
    file: Annotated[Path, typer.Argument(help="The contract, JSON.")],
    as_json: Json = False,
) -> None:
    """Say whether declared policies keep the evidence of declared cases whole."""
    from tessera.cli import audit as command

    command.run(file, as_json=as_json)


@lab_app.command("run", epilog="Example: tessera lab run docs/examples/lab.toml --report lab.html")
def lab_run(
    file: Annotated[Path, typer.Argument(help="The plan, TOML.")],
    report: Annotated[
        Path | None, typer.Option("--report", metavar="OUT.html", help="Write a report with plots.")
    ] = None,
    retriever: Annotated[
        str, typer.Option("--retriever", metavar="NAME", help="tessera or rank-bm25.")
    ] = "tessera",
    budget: Annotated[
        list[int] | None,
        typer.Option("--budget", metavar="N", help="Tokens of a context, in place of the plan's."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show where each candidate policy loses evidence: chunking, retrieval, packing. Needs no server."""
    from tessera.cli import lab as command

    command.run(file, retriever, budget or [], report, as_json=as_json)


@lab_app.command("case", epilog="Example: tessera lab case notes/rent.md --quote 'Due monthly, in euro.'")
def lab_case(
    file: Annotated[Path, typer.Argument(help="The document.")],
    quote: Annotated[str, typer.Option("--quote", metavar="TEXT", help="The evidence, as it stands there.")],
    question: Annotated[str, typer.Option("--question", metavar="TEXT", help="What it answers.")] = "",
    source: Annotated[str, typer.Option("--source", metavar="NAME", help="The source's name.")] = "notes",
    doc_id: Annotated[
        str | None, typer.Option("--doc-id", metavar="ID", help="The document's id; else the file's name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a query case of a quote: its span and digests, as a line of a file of questions."""
    from tessera.cli import lab as command

    command.show_case(file, quote, question, source, doc_id, as_json=as_json)


@app.command(epilog="Example: tessera ingest docs/ --source wiki --watch")
def ingest(
    path: Annotated[Path, typer.Argument(help="Folder to publish.")],
    source: Annotated[str, typer.Option("--source", metavar="NAME", help="The source it belongs to.")],
    watch: Annotated[bool, typer.Option("--watch", help="Keep publishing what changes.")] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Delete all documents of a source whose folder is empty.")
    ] = False,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="documents, devex or github.")
    ] = None,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Publish what a folder holds and the index does not, deletes included."""
    from tessera.cli import ingest as command

    command.run(
        servers(broker, redis, data_dir),
        config,
        path,
        source,
        kind,
        watch=watch,
        allow_empty=allow_empty,
        as_json=as_json,
    )


@app.command(epilog="Example: tessera publish changes.jsonl")
def publish(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines; - reads standard input.")],
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Publish change events as they stand, one per line."""
    from tessera.cli import publish as command

    command.run(servers(broker, redis, data_dir), config, file, as_json=as_json)


@app.command(epilog='Example: tessera search "expense policy" -k 5')
def search(
    query: Annotated[str, typer.Argument(help="What to search for.")],
    k: Annotated[int, typer.Option("-k", help="How many hits.")] = 10,
    principal: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="PRINCIPAL", help="See only what this principal may see."),
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only hits from this source.")] = None,
    generation: Annotated[
        str | None, typer.Option("--generation", help="Another than the served one.")
    ] = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Search the index; without --as you are the operator and see everything."""
    from tessera.cli import search as command

    flags = servers(None, redis, data_dir)
    command.run(flags, config, query, k, principal or [], source, generation, as_json=as_json)


@app.command(epilog='Example: tessera context "expense policy" --budget 500')
def context(
    query: Annotated[str, typer.Argument(help="What to find evidence for.")],
    budget: Annotated[int, typer.Option("--budget", metavar="N", help="Tokens at most.")],
    k: Annotated[int | None, typer.Option("-k", help="Hits to look at; else what the release says.")] = None,
    floor: Annotated[float, typer.Option("--floor", help="Hits that score less are none.")] = 0.0,
    principal: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="PRINCIPAL", help="See only what this principal may see."),
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only from this source.")] = None,
    generation: Annotated[
        str | None, typer.Option("--generation", help="Another than the served one.")
    ] = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Assemble a context for a query within a budget, of verbatim pieces, as the release says."""
    from tessera.cli import context as command

    flags = servers(None, redis, data_dir)
    asked = (query, budget, k, floor)
    command.run(flags, config, asked, principal or [], source, generation, as_json=as_json)


@app.command(epilog="Example: tessera coverage handbook --against g2")
def coverage(
    source: Annotated[str | None, typer.Argument(help="Only this source.")] = None,
    generation: Annotated[
        str | None, typer.Option("--generation", help="Another than the served one.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="G", help="Tell what only one of both covers.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, max=1000, help="Documents told of at most.")] = 50,
    principal: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="PRINCIPAL", help="See only what this principal may see."),
    ] = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show which ranges of the sources no chunk holds and which bytes could not be read, with the lines."""
    from tessera.cli import coverage as command

    flags = servers(None, redis, data_dir)
    asked = (generation, against)
    command.run(flags, config, source, asked, principal or [], limit, as_json=as_json)


@app.command(epilog="Example: tessera ground quotes.json")
def ground(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Quotes, JSON; - reads standard input.")],
    principal: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="PRINCIPAL", help="See only what this principal may see."),
    ] = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check quotes, verbatim, against the chunks they are cited from: supported, stale or absent."""
    from tessera.cli import ground as command

    command.run(servers(None, redis, data_dir), config, file, principal or [], as_json=as_json)


@app.command(epilog="Example: tessera chunk README.md --policy paragraph")
def chunk(
    file: Annotated[Path, typer.Argument(help="The file to cut.")],
    policy: Annotated[str, typer.Option("--policy", help="A built-in policy or a TOML file.")] = "paragraph",
    media_type: Annotated[
        str | None, typer.Option("--media-type", help="Else told by the file's name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how a file is cut: ranges, headings, uncovered ranges. Needs no server."""
    from tessera.cli import chunk as command

    command.run(file, policy, media_type, as_json=as_json)


@app.command(epilog="Example: tessera status --json")
def status(
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show shards, lag, generations, sources and dead letters."""
    from tessera.cli import status as command

    command.run(servers(broker, redis, data_dir), config, as_json=as_json)


@shard_app.command("adopt-log", epilog="Example: tessera shard adopt-log tessera.documents/0")
def adopt_log(
    shards: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC/PARTITION]…", help="Which shards; with --all: every one."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every shard of the change topics.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also shards whose log goes on: it is read again from its start.")
    ] = False,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Follow a topic that was made anew: offsets start again, documents stay, revisions still fence."""
    from tessera.cli import shard as command

    flags = servers(broker, redis, data_dir)
    command.adopt_log(flags, config, shards or [], every=every, yes=yes, as_json=as_json)


@deadletter_app.command("list", epilog="Example: tessera deadletter list --json")
def deadletter_list(
    redis: Redis = None, data_dir: DataDir = None, config: Config = None, as_json: Json = False
) -> None:
    """List the records that could not be applied, with reasons."""
    from tessera.cli import deadletter as command

    command.show_all(servers(None, redis, data_dir), config, as_json=as_json)


@deadletter_app.command("show", epilog="Example: tessera deadletter show ID")
def deadletter_show(
    deadletter_id: Annotated[str, typer.Argument(metavar="ID")],
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show one dead letter with the bytes of its record."""
    from tessera.cli import deadletter as command

    command.show_one(servers(None, redis, data_dir), config, deadletter_id, as_json=as_json)


@deadletter_app.command("replay", epilog="Example: tessera deadletter replay")
def deadletter_replay(
    deadletter_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="None: all.")] = None,
    broker: Broker = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Publish dead letters again, under the revision they had."""
    from tessera.cli import deadletter as command

    command.replay(servers(broker, redis, data_dir), config, deadletter_ids or [], as_json=as_json)


@deadletter_app.command("discard", epilog="Example: tessera deadletter discard ID")
def deadletter_discard(
    deadletter_id: Annotated[str, typer.Argument(metavar="ID")],
    redis: Redis = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Remove one dead letter and its bytes for good."""
    from tessera.cli import deadletter as command

    command.discard(servers(None, redis, data_dir), config, deadletter_id, as_json=as_json)
