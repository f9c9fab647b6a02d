"""Commands on lines of checkpoints: history, tree, diff."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli.console import Db, ExecutionArgument, Format, FormatOption, Output, SweepOrExecution, open_database
from wtb.cli.output import present
from wtb.core.errors import InputError
from wtb.display.views.execution_diff import diff_document
from wtb.display.views.executions import history_document, trace_of
from wtb.display.views.lineage import tree_document
from wtb.display.views.sweeps import find, find_one
from wtb.store.files.locations import workspaces_of
from wtb.store.read.queries import find_sweep

Side = Annotated[str, typer.Argument(help="Id of an execution or a checkpoint, or its beginning.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: wtb history EXECUTION --format json")(history)
    app.command(epilog="Examples: wtb tree nightly --case c17  |  wtb tree EXECUTION")(tree)
    app.command(epilog="Example: wtb diff EXECUTION OTHER   (ids are in: wtb show SWEEP --cells)")(diff)


def history(
    execution: ExecutionArgument, db: Db = None, format: FormatOption = Format.table, output: Output = None
) -> None:
    """Show the checkpoints that led to where an execution is.

    It shows who wrote each, why it went on so, and its nodes' boundaries.

    See also: `wtb tree` draws several executions; `wtb log` has the events of a sweep.
    """
    from wtb.display.text.inspect.executions import history as render

    database = open_database(db)
    present(history_document(database, find_one(database, execution)), render, format, output)


def tree(
    what: SweepOrExecution,
    case: Annotated[str | None, typer.Option("--case", help="Only executions of the case with this id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many lines of a sweep.")] = 60,
    db: Db = None,
    format: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """Draw how executions share, fork and were rolled back.

    It draws what they share, heads, forks, and lines that rollbacks left.

    See also: `wtb history` shows one line of checkpoints.
    """
    from wtb.display.text.inspect.lineage import tree as render

    database = open_database(db)
    kind, row = find(database, what)
    if kind != "sweep" and case is not None:
        raise InputError(f"{what!r} is an execution; --case is for a sweep")
    one = None if kind == "sweep" else row
    sweep = row if one is None else find_sweep(database, one["sweep_id"])
    present(tree_document(database, sweep, execution=one, case=case, limit=limit), render, format, output)


def diff(a: Side, b: Side, db: Db = None, format: FormatOption = Format.table, output: Output = None) -> None:
    """Compare two executions or checkpoints, step by step.

    It shows where they part, their states, paths and totals.

    See also: `wtb compare` compares the results of two sweeps; `wtb files --diff`, files.
    """
    from wtb.display.text.inspect.executions import diff as render

    database = open_database(db)
    sides = trace_of(database, a), trace_of(database, b)
    with_files = any(one.head is not None and one.head.workspace for one in sides)
    files = workspaces_of(database).files if with_files else None
    present(diff_document(database, *sides, files), render, format, output)
