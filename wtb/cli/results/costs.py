"""The command `costs`: what was spent, and for what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from wtb.cli.console import Db, Output, open_database, put, say
from wtb.core.errors import InputError, did_you_mean
from wtb.display.text.costs import as_csv
from wtb.display.text.costs import costs as render
from wtb.display.views.costs import costs_document, read_dimensions
from wtb.display.views.sweeps import find
from wtb.store.limits.budgets import projects
from wtb.store.read.costs import Which


class CostFormat(StrEnum):
    """Formats of costs."""

    table = "table"
    json = "json"
    csv = "csv"


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: wtb costs  |  wtb costs nightly --by node,model  |  wtb costs --by project --since 7d"
    )(costs)


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
            help="Of project, session, sweep, workflow, node, variant, model \\[default: sweep; of one: node,variant].",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Attempts begun since 7d or 12h ago, or a date.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only of this project.")] = None,
    db: Db = None,
    format: Annotated[CostFormat, typer.Option("--format", "-f", help="How to show it.")] = CostFormat.table,
    output: Output = None,
) -> None:
    """Show what was spent, and for what.

    Failed attempts and what was deleted since are included. What attempts spent without a recorded call that names a
    model counts as model (none).

    See also: `wtb budget` limits what may be spent.
    """
    from wtb.cli.console import as_json, width
    from wtb.cli.inspect.show import time_of
    from wtb.cli.output import in_color

    wanted = read_dimensions(by if by is not None else "sweep" if ref is None else "node,variant")
    after = None if since is None else time_of(since)
    database = open_database(db)
    kind, row = (None, None) if ref is None else find(database, ref)
    if project is not None and project not in (known := projects(database)):
        raise InputError(f"no sweep is of a project {project!r}{did_you_mean(project, known)}")
    found = costs_document(
        database,
        wanted,
        Which(
            sweep_id=row["id"] if row is not None and kind == "sweep" else None,
            execution_id=row["id"] if row is not None and kind == "execution" else None,
            project=project,
            since=after,
        ),
    )
    if format is CostFormat.json:
        put(as_json(found), output)
    elif format is CostFormat.csv:
        put(as_csv(found), output)
    elif found["rows"]:
        put(render(found, width(), in_color(output)), output)
    else:
        say("nothing was spent")
