"""``tessera token …``: who may call the service, in a file that holds hashes of tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tessera.callers.caller import Role
from tessera.cli.options import Config, Json

token_app = typer.Typer(help="Bearer tokens of the service, kept as hashes.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Who holds it: it stands in logs and records.")]
File = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The file of tokens; else TESSERA_TOKENS_FILE.")
]


@token_app.command(
    "add", epilog="Example: tessera token add search-ui --file tokens.json --principal group:legal"
)
def add(
    name: Name,
    file: File = None,
    role: Annotated[
        Role, typer.Option("--role", help="reader, monitor (counts too), or operator (everything).")
    ] = "reader",
    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", metavar="NAME", help="A principal whose documents it may read."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="90d", help="How long it is good; else until revoked.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it, once. The service takes it from then on."""
    from tessera.callers.tokens import add_token
    from tessera.cli.terminal import print_json
    from tessera.generations.operations import parse_duration_s

    until = None
    if expires is not None:
        until = round(datetime.now(UTC).timestamp() + parse_duration_s(expires))
    token = add_token(_file(file, config), name, role, principal or [], until)
    if as_json:
        print_json({"name": name, "token": token, "expires_at": until})
    else:
        print(token)


@token_app.command("list", epilog="Example: tessera token list --file tokens.json")
def list_all(file: File = None, config: Config = None, as_json: Json = False) -> None:
    """List the tokens of the file by name, without themselves."""
    from tessera.callers.tokens import read_tokens
    from tessera.cli.terminal import print_json, printable

    tokens = sorted(read_tokens(_file(file, config)).values(), key=lambda each: each.name)
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "role": each.role,
                    "principals": each.principals,
                    "expires_at": each.expires_at,
                }
                for each in tokens
            ]
        )
        return
    for each in tokens:
        until = ""
        if each.expires_at is not None:
            until = f"  until {datetime.fromtimestamp(each.expires_at, UTC):%F %H:%MZ}"
        seen = "everything" if each.role == "operator" else ", ".join(["*", *each.principals])
        print(printable(f"{each.name}  {each.role}  {seen}{until}"))


@token_app.command("revoke", epilog="Example: tessera token revoke search-ui --file tokens.json")
def revoke(name: Name, file: File = None, config: Config = None, as_json: Json = False) -> None:
    """Take a token back: the service refuses it from its next request on."""
    from tessera.callers.tokens import revoke_token
    from tessera.cli.terminal import print_json, printable

    revoke_token(_file(file, config), name)
    if as_json:
        print_json({"revoked": name})
    else:
        print(printable(f"{name} is revoked"))


def _file(named: Path | None, config: Path | None) -> Path:
    from tessera.errors import SettingsError
    from tessera.settings import load_settings

    path = named or load_settings({}, config=config, require=()).tokens_file
    if path is None:
        raise SettingsError("no file of tokens is named: give --file, or TESSERA_TOKENS_FILE")
    return path
