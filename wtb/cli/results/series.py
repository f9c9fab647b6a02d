"""The command `series`: figures over time of nodes that run for long."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import as_json, open_database, put, width
from wtb.cli.output import in_color
from wtb.core.errors import InputError, meant_or_known
from wtb.display.text import metrics
from wtb.display.views import node_metrics, sweeps


class SeriesFormat(StrEnum):
    """Formats of figures over time."""

    table = "table"
    json = "json"
    csv = "csv"


def series(
    ref: Annotated[str, typer.Argument(metavar="SWEEP|EXECUTION", help="An execution is shown with what led to it.")],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Only these: a metric's name, rss, cpu, files, processes."),
    ] = None,
    db: options.Db = None,
    format: Annotated[SeriesFormat, typer.Option("--format", "-f", help="How to show it.")] = SeriesFormat.table,
    output: options.Output = None,
) -> None:
    """Show series over time: ctx.metric, and memory and CPU of nodes.

    Of nodes that run for long, open files and processes too.

    See also: `wtb matrix` shows scores, which evaluators give at the end.

    Examples: wtb series nightly  |  wtb series EXECUTION --name loss --format csv
    """
    database = open_database(db)
    kind, row = sweeps.find_target(database, ref)
    found = node_metrics.metrics_document(database, kind, row)
    if name is not None:
        known = sorted({one["name"] for one in found["series"]})
        if name not in known:
            what = meant_or_known(name, known) if known else "; nothing was recorded over time"
            raise InputError(f"there is no series {name!r}{what}")
        found["series"] = [one for one in found["series"] if one["name"] == name]
    if format is SeriesFormat.table:
        put(metrics.metrics(found, width(), in_color(output)), output)
    else:
        put(metrics.as_csv(found) if format is SeriesFormat.csv else as_json(found), output)
