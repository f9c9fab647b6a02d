"""Commands on single executions: history, diff."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli.console import Db, Format, FormatOption, Output, open_database
from wtb.cli.presenting import present

ExecutionArgument = Annotated[str, typer.Argument(metavar="EXECUTION", help="Id of an execution, or its beginning.")]
Side = Annotated[str, typer.Argument(help="Id of an execution or a checkpoint, or its beginning.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: wtb history EXECUTION --format json")(history)
    app.command(epilog="Example: wtb diff EXECUTION OTHER   (ids are in: wtb show SWEEP --cells)")(diff)


def history(
    execution: ExecutionArgument, db: Db = None, format: FormatOption = Format.table, output: Output = None
) -> None:
    """Show the line of checkpoints of an execution, who wrote each, why it went on so, and its nodes' boundaries."""
    from wtb.render.executions import history as render
    from wtb.store.reading import find_execution
    from wtb.tracing import history_document

    database = open_database(db)
    present(history_document(database, find_execution(database, execution)), render, format, output)


def diff(a: Side, b: Side, db: Db = None, format: FormatOption = Format.table, output: Output = None) -> None:
    """Compare two executions or checkpoints: where they part, their states, paths and totals."""
    from wtb.divergence import diff_document
    from wtb.render.executions import diff as render
    from wtb.tracing import trace_of

    database = open_database(db)
    present(diff_document(database, trace_of(database, a), trace_of(database, b)), render, format, output)
