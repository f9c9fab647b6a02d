"""Commands on lines of checkpoints: history, tree, diff."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from wtb.cli import options
from wtb.cli.console import open_backend
from wtb.cli.output import present
from wtb.cli.pages import open_page
from wtb.display.text import executions as text
from wtb.display.text import history as history_text
from wtb.display.text import history as lineage_text
from wtb.operations.inspection import executions as operations

Side = Annotated[str, typer.Argument(help="Id of an execution or a checkpoint, or its beginning.")]


def history(
    ref: options.Execution,
    state: Annotated[
        bool, typer.Option("--state", help="Include states of checkpoints, and input and output of visits.")
    ] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Show the checkpoints of an execution up to its head.

    It shows who wrote each, why it went on so, its nodes' boundaries, and the checkpoints inside nodes.

    See also: `wtb show CHECKPOINT` shows one of them; `wtb tree` draws several executions.

    Example: wtb history EXECUTION --state
    """
    present(open_backend(db).call(operations.history, ref, state=state), history_text.history, form)


def tree(
    ref: options.SweepOrExecution,
    case: Annotated[str | None, typer.Option("--case", help="Only executions of the case with this id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of lines of a sweep.")] = 60,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Draw how executions share, fork and were rolled back.

    It draws what they share, heads, forks, and lines that rollbacks left.

    See also: `wtb history` shows one line of checkpoints.

    Examples: wtb tree nightly --case c17  |  wtb tree EXECUTION
    """
    present(open_backend(db).call(operations.tree, ref, case=case, limit=limit), lineage_text.tree, form)


def diff(
    a: Side, b: Side, open_it: options.Open = False, db: options.Db = None, form: options.Form = options.TABLE
) -> None:
    """Compare two executions or checkpoints, step by step.

    It shows where they part, their states, paths and totals.

    See also: `wtb compare` compares the results of two sweeps; `wtb files --diff`, files.

    Example: wtb diff EXECUTION OTHER   (ids are in: wtb show SWEEP --cells)
    """
    present(open_backend(db).call(operations.diff, a, b), text.diff, form)
    if open_it:
        open_page(f"/executions/{quote(a, safe='')}/diff/{quote(b, safe='')}", db)
