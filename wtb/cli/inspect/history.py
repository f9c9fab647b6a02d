"""Commands on lines of checkpoints: history, tree, diff."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_database
from wtb.cli.output import present
from wtb.core.errors import InputError
from wtb.display.text.inspect import executions as text
from wtb.display.text.inspect import lineage as lineage_text
from wtb.display.views import execution_diff, executions, lineage, sweeps
from wtb.store.files import locations
from wtb.store.read import queries

Side = Annotated[str, typer.Argument(help="Id of an execution or a checkpoint, or its beginning.")]


def history(
    execution: options.Execution,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show the checkpoints that led to where an execution is.

    It shows who wrote each, why it went on so, and its nodes' boundaries.

    See also: `wtb tree` draws several executions; `wtb log` has the events of a sweep.

    Example: wtb history EXECUTION --format json
    """
    database = open_database(db)
    present(executions.history_document(database, sweeps.find_one(database, execution)), text.history, format, output)


def tree(
    what: options.SweepOrExecution,
    case: Annotated[str | None, typer.Option("--case", help="Only executions of the case with this id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many lines of a sweep.")] = 60,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Draw how executions share, fork and were rolled back.

    It draws what they share, heads, forks, and lines that rollbacks left.

    See also: `wtb history` shows one line of checkpoints.

    Examples: wtb tree nightly --case c17  |  wtb tree EXECUTION
    """
    database = open_database(db)
    kind, row = sweeps.find(database, what)
    if kind != "sweep" and case is not None:
        raise InputError(f"{what!r} is an execution; --case is for a sweep")
    one = None if kind == "sweep" else row
    sweep = row if one is None else queries.find_sweep(database, one["sweep_id"])
    present(
        lineage.tree_document(database, sweep, execution=one, case=case, limit=limit), lineage_text.tree, format, output
    )


def diff(
    a: Side, b: Side, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Compare two executions or checkpoints, step by step.

    It shows where they part, their states, paths and totals.

    See also: `wtb compare` compares the results of two sweeps; `wtb files --diff`, files.

    Example: wtb diff EXECUTION OTHER   (ids are in: wtb show SWEEP --cells)
    """
    database = open_database(db)
    sides = executions.trace_of(database, a), executions.trace_of(database, b)
    with_files = any(one.head is not None and one.head.workspace for one in sides)
    files = locations.workspaces_of(database).files if with_files else None
    present(execution_diff.diff_document(database, *sides, files), text.diff, format, output)
