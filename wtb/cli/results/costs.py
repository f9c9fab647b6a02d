"""The command `costs`: what was spent, and for what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import as_json, open_database, put, say, width
from wtb.cli.inspect.show import time_of
from wtb.cli.output import in_color
from wtb.core.errors import InputError, did_you_mean
from wtb.display.text import costs as text
from wtb.display.views import costs as views
from wtb.display.views import sweeps
from wtb.store.limits import budgets
from wtb.store.read import costs as store


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
            help="Of project, session, sweep, workflow, node, variant, model \\[default: sweep; of one: node,variant].",
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
    model counts as model (none).

    See also: `wtb budget` limits what may be spent.

    Examples: wtb costs  |  wtb costs nightly --by node,model  |  wtb costs --by project --since 7d
    """
    dimensions = views.read_dimensions(by if by is not None else "sweep" if ref is None else "node,variant")
    after = None if since is None else time_of(since)
    database = open_database(db)
    kind, row = (None, None) if ref is None else sweeps.find(database, ref)
    if project is not None and project not in (known := budgets.projects(database)):
        raise InputError(f"no sweep is of a project {project!r}{did_you_mean(project, known)}")
    found = views.costs_document(
        database,
        dimensions,
        store.Which(
            sweep_id=row["id"] if row is not None and kind == "sweep" else None,
            execution_id=row["id"] if row is not None and kind == "execution" else None,
            project=project,
            since=after,
        ),
    )
    if format is CostFormat.json:
        put(as_json(found), output)
    elif format is CostFormat.csv:
        put(text.as_csv(found), output)
    elif found["rows"]:
        put(text.costs(found, width(), in_color(output)), output)
    else:
        say("nothing was spent")
