"""Commands on tokens: who may ask a server, and for what."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put, put_json, say
from wtb.cli.output import present_all
from wtb.core.errors import InputError
from wtb.core.texts import printable
from wtb.core.units import parse_duration
from wtb.display.text.admin import tokens as text
from wtb.operations.administration import tokens as operations

_AMOUNT = re.compile(r"(?P<amount>\d{1,15}(?:\.\d{1,6}(?=usd))?)(?P<kind>usd|tokens|node_runs)")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The token's name, which events record.", show_default=False)]


def create(
    name: Name,
    scopes: Annotated[
        str,
        typer.Option("--scope", metavar="A,B", help="What its holder may do: read, submit, steer, answer, administer."),
    ] = "read",
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="All that it is good for; else all projects.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Whose roles bound it, for as long as they have them.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="AMOUNT", help="Limit on what sweeps submitted with it spend, such as 20usd."),
    ] = None,
    expires_s: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="Such as 30d; else never.", show_default=False),
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Make a token for `wtb serve`, and print it once.

    The database keeps a digest of it: who has lost a token needs a new one.

    JSON: {token, name, state, scopes, project, user, created_at, created_by, expires_at, used_at, revoked_at}.

    See also: docs/api.md says how it is sent.

    Examples: wtb token create ann --project search  |  wtb token create nightly --scope submit --budget 20usd
    """
    may = [one.strip() for one in scopes.split(",")]
    backend, seconds = open_backend(db, create=True), _seconds(expires_s)
    token = backend.call(
        operations.create_token,
        name,
        scopes=may,
        project=project,
        user=user,
        budget=_amounts(budget),
        expires_s=seconds,
    )
    if format is options.Format.json:
        put_json(token)
        return
    put(token["token"])
    say(f"token {name}: {text.scopes(token)}; copy it now, because it is not shown again")


def list_(db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None) -> None:
    """List tokens with what their holders may do, and when they were used.

    JSON: {"tokens": [{name, state, scopes, project, user, created_at, created_by, expires_at, used_at, revoked_at}]}.

    Examples: wtb token list  |  wtb token list --format json
    """
    nothing = "there are no tokens; `wtb token create NAME` makes one"
    found = open_backend(db).call(operations.list_tokens)
    present_all("tokens", found, text.listed, format, output, nothing)


def revoke(name: Name, db: options.Db = None) -> None:
    """Let a token be of no more use.

    What it has open ends within a second.

    Example: wtb token revoke ann
    """
    revoked = open_backend(db).call(operations.revoke_token, name)
    put(f"token {printable(revoked['name'])}: revoked")


def _amounts(given: str | None) -> dict[str, float] | None:
    """Read amounts by kind: `20usd`, or several with commas. Raises InputError."""
    if given is None:
        return None
    found: dict[str, float] = {}
    for part in given.split(","):
        match = _AMOUNT.fullmatch(part.strip())
        if match is None:
            detail = f"{part!r:.80} is not an amount; expected one such as 20usd, 2000000tokens or 500node_runs"
            raise InputError(detail, argument="budget")
        found[match["kind"]] = float(match["amount"]) if match["kind"] == "usd" else int(match["amount"])
    return found


def _seconds(given: str | None) -> float | None:
    try:
        return None if given is None else parse_duration(given)
    except ValueError:
        detail = f"{given!r} is not a time from now on; expected one such as 12h or 30d"
        raise InputError(detail, argument="expires_s") from None


TOKEN = {"create": create, "list": list_, "revoke": revoke}
