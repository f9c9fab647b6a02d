"""The command `series`: figures over time of nodes that run for long."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put, width
from wtb.cli.output import in_color
from wtb.display.json_text import as_json
from wtb.display.text import costs
from wtb.operations.results import costs as operations


def series(
    ref: Annotated[str, typer.Argument(metavar="SWEEP|EXECUTION", help="An execution is shown with what led to it.")],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Only these: a metric's name, rss, cpu, files, processes."),
    ] = None,
    db: options.Db = None,
    format: Annotated[
        options.ShownFormat, typer.Option("--format", "-f", help="Output format.")
    ] = options.ShownFormat.table,
    output: options.Output = None,
) -> None:
    """Show series over time: ctx.metric, and memory and CPU of nodes.

    For long node runs, it also shows open files and processes.

    See also: `wtb matrix` shows scores, which evaluators give at the end.

    Examples: wtb series nightly  |  wtb series EXECUTION --name loss --format csv
    """
    document = open_backend(db).call(operations.series, ref, name=name)
    if format is options.ShownFormat.table:
        put(costs.metrics(document, width(), in_color(output)), output)
    else:
        put(costs.metrics_as_csv(document) if format is options.ShownFormat.csv else as_json(document), output)
