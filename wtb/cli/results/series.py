"""The command `series`: figures over time of nodes that run for long."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put, width
from wtb.cli.output import in_color
from wtb.display.json_text import as_json
from wtb.display.text import metrics
from wtb.operations.results import series as operations


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
    found = open_backend(db).call(operations.series, ref, name=name)
    if format is SeriesFormat.table:
        put(metrics.metrics(found, width(), in_color(output)), output)
    else:
        put(metrics.as_csv(found) if format is SeriesFormat.csv else as_json(found), output)
