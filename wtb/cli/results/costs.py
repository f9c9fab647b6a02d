"""The command `costs`: what was spent, and for what."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put, put_json, say, width
from wtb.cli.options import time_of
from wtb.cli.output import in_color
from wtb.core.errors import InputError
from wtb.display.text import costs as text
from wtb.operations.results import costs as operations


def costs(
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="[SWEEP|EXECUTION]",
            help="Of an execution, what it ran itself \\[default: all sweeps].",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAMES",
            help="Of project, session, sweep, workflow, node, variant, model, tool "
            "\\[default: sweep; of one: node,variant].",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only attempts since 7d or 12h ago, or a date.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only of this project.")] = None,
    db: options.Db = None,
    format: Annotated[
        options.ShownFormat, typer.Option("--format", "-f", help="Output format.")
    ] = options.ShownFormat.table,
    output: options.Output = None,
) -> None:
    """Show the cost of sweeps, by node, model or tool.

    Failed attempts and deleted sweeps are included. Spending without a recorded call that names a model counts as
    model (none). By tool, rows are of calls of tools: failed ones, seconds, and undone ones.

    See also: `wtb admin budget` limits what may be spent.

    Examples: wtb costs  |  wtb costs nightly --by node,model  |  wtb costs --by project --since 7d  |
    wtb costs nightly --by tool
    """
    names = [name for part in (by or "").split(",") if (name := part.strip())]
    if by is not None and not names:
        raise InputError("--by is empty; expected names such as node,model")
    after = None if since is None else time_of(since)
    costs_document = open_backend(db).call(operations.costs, ref, by=names, since=after, project=project)
    if format is options.ShownFormat.json:
        put_json(costs_document, output)
    elif format is options.ShownFormat.csv:
        put(text.as_csv(costs_document), output)
    elif costs_document["rows"]:
        put(text.costs(costs_document, width(), in_color(output)) + text.unknown(costs_document, width()), output)
    elif costs_document.get("unknown"):
        put(text.unknown(costs_document, width()), output)
    else:
        say("nothing was spent")
