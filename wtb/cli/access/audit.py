"""Commands on the audit log: what was changed, by whom, and whether the log is as it was written."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, open_context, put, say
from wtb.cli.inspect.overview import time_of
from wtb.cli.output import present, present_all, put_as
from wtb.core.texts import plural
from wtb.display.text.admin import audit as text
from wtb.operations.administration import audit as operations


def list_(
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only what they did.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="ID", help="Only this operation, such as tokens.create.")
    ] = None,
    token: Annotated[str | None, typer.Option("--token", metavar="NAME", help="Only by this token.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only later: 30m, 12h, 2d, or an ISO date.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="NUMBER", help="Read on from the last number seen.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="How many at most.")] = 100,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List who changed what, the newest first.

    Each with from where, by which token, with which arguments and how it ended. Passwords, tokens and values of states
    are left out.

    JSON: {"audit": [{number, at, by, via, address, token, operation, arguments, outcome, result, error, ended_at}]}.

    Examples: wtb audit list --since 1d  |  wtb audit list --by ann --command sweeps.cancel --format json
    """
    after = None if since is None else time_of(since)
    found = open_backend(db).call(
        operations.list_audit, by=by, command=command, token=token, since=after, before=before, limit=limit
    )
    present_all("audit", found, text.listed, format, output, "nothing was changed")


def verify(
    heads: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="NUMBER:HASH", help="One that `wtb audit head` printed; may be given often."),
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Check that no row of the audit log was changed, removed or moved.

    With a head that was kept elsewhere it is also checked that the log was not cut off or written anew before it. The
    exit code is 1 if something is wrong.

    JSON: {ok, rows, first, head, checked_heads, pruned_heads, pruned, problems}.

    Examples: wtb audit verify --head "$(cat head)"  |  wtb audit verify --format json
    """
    found = open_backend(db).call(operations.verify_audit, heads or ())
    present(found, text.verification, format, output)
    if not found["ok"]:
        raise typer.Exit(1)


def head(db: options.Db = None, format: options.Show = options.Format.table) -> None:
    """Print the head of the audit log: its number and hash, to be kept elsewhere.

    Whoever has it can show later that nothing before it was changed.

    JSON: {number, hash, head}.

    Example: wtb audit head > head
    """
    found = open_backend(db).call(operations.audit_head)
    put_as(found, found["head"], format)


def prune(
    before: Annotated[str, typer.Option("--before", metavar="WHEN", help="Older rows go: 365d, or an ISO date.")],
    db: options.Db = None,
) -> None:
    """Remove the oldest rows of the audit log; the log says so, and up to where.

    `wtb audit verify` tells what was pruned from what is missing.

    Example: wtb audit prune --before 365d
    """
    pruned = operations.prune_audit(open_context(db), time_of(before, "--before"))
    if pruned["upto"] is None:
        say("no row is so old")
        return
    put(f"removed {plural(pruned['rows'], 'row')}, up to {pruned['upto']}")


AUDIT = {"list": list_, "verify": verify, "head": head, "prune": prune}
