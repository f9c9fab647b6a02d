"""The command `costs`: what was spent, and for what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put, put_json, say, width
from wtb.cli.inspect.overview import time_of
from wtb.cli.output import in_color
from wtb.core.errors import InputError
from wtb.display.text import costs as text
from wtb.operations.results import costs as operations


class CostFormat(StrEnum):
    """Formats of costs."""

    table = "table"
    json = "json"
    csv = "csv"


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
        str | None, typer.Option("--since", metavar="WHEN", help="Attempts begun since 7d or 12h ago, or a date.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only of this project.")] = None,
    db: options.Db = None,
    format: Annotated[CostFormat, typer.Option("--format", "-f", help="How to show it.")] = CostFormat.table,
    output: options.Output = None,
) -> None:
    """Show what was spent, and for what.

    Failed attempts and what was deleted since are included. What attempts spent without a recorded call that names a
    model counts as model (none). By tool, rows are of calls of tools: failed ones, seconds, and undone ones.

    See also: `wtb budget` limits what may be spent.

    Examples: wtb costs  |  wtb costs nightly --by node,model  |  wtb costs --by project --since 7d  |
    wtb costs nightly --by tool
    """
    names = [name for part in (by or "").split(",") if (name := part.strip())]
    if by is not None and not names:
        raise InputError("--by: nothing is named; expected names such as node,model")
    after = None if since is None else time_of(since)
    found = open_backend(db).call(operations.costs, ref, by=names, since=after, project=project)
    if format is CostFormat.json:
        put_json(found, output)
    elif format is CostFormat.csv:
        put(text.as_csv(found), output)
    elif found["rows"]:
        put(text.costs(found, width(), in_color(output)) + text.unknown(found, width()), output)
    elif found.get("unknown"):
        put(text.unknown(found, width()), output)
    else:
        say("nothing was spent")
