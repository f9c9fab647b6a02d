"""Commands that continue with sweeps and executions: resume, retry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.analysis import gates
from wtb.cli import options
from wtb.cli.console import open_context, prints_to_stderr, put, read_limits, render_matrix, say
from wtb.cli.inspect.watch import wait_and_present
from wtb.cli.progress import progress_display
from wtb.cli.run.event_printer import show_events
from wtb.cli.run.executions import present_execution
from wtb.cli.run.submit import check_format, put_id
from wtb.cli.run.sweeps import exit_code, present, say_how_it_ended
from wtb.core.errors import InputError
from wtb.operations.control import continuation, state_edits
from wtb.operations.running import continuing, local
from wtb.store.read import queries, references

if TYPE_CHECKING:
    from wtb.cli.progress import Show
    from wtb.operations.context import Context
    from wtb.operations.running.continuing import Continued
    from wtb.store.read.references import Target
    from wtb.store.rows import ExecutionRow

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Of an execution: another value of a key, as YAML, or KEY=@FILE."),
]


def resume(
    ref: options.SweepOrExecution,
    set: SetOption = None,
    db: options.Db = None,
    limits: options.Limits = None,
    allow_code_change: options.AllowCodeChange = False,
    wait: options.Wait = False,
    broker: options.Broker = None,
    format: options.ShowMatrix = options.MatrixFormat.table,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Continue a sweep or execution that was stopped or paused.

    Nothing committed runs again. Of a sweep, all its paused executions go on. What was submitted goes back to the
    workers, and the command returns at once unless --wait is given. An execution may continue with other values in its
    state.

    See also: `wtb retry` runs what failed again.

    Examples: wtb resume nightly --limits usd=10  |  wtb resume EXECUTION --set k=5
    """
    context = open_context(db, broker)
    target = _checked(context, ref, format, wait)
    changed, changes = read_limits(limits), state_edits.typed_changes(set or ())

    def act(show: Show) -> Continued:
        return continuing.resume(
            context, ref, set=changes, limits=changed, allow_code_change=allow_code_change, progress=show
        )

    _present(context, _with_progress(context, target, act, quiet), wait, format, output, quiet)


def retry(
    ref: options.SweepOrExecution,
    db: options.Db = None,
    failed_only: Annotated[
        bool, typer.Option("--failed", help="Only failed cells, not those cancelled or set aside.")
    ] = False,
    limits: options.Limits = None,
    wait: options.Wait = False,
    broker: options.Broker = None,
    format: options.ShowMatrix = options.MatrixFormat.table,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Run failed cells again, from their last good checkpoints.

    They run with the code as it is now. Cells of a submitted sweep go to the workers, and the command returns at once
    unless --wait is given.

    See also: `wtb resume` continues what was stopped or paused; `wtb rollback` goes back.

    Examples: wtb retry nightly --failed  |  wtb retry EXECUTION
    """
    context = open_context(db, broker)
    target = _checked(context, ref, format, wait)
    changed = read_limits(limits)

    def act(show: Show) -> Continued:
        return continuing.retry(context, ref, failed_only=failed_only, limits=changed, progress=show)

    _present(context, _with_progress(context, target, act, quiet), wait, format, output, quiet)


def _checked(context: Context, ref: str, format: options.MatrixFormat, wait: bool) -> Target:
    """Find what is meant, and refuse a format that it cannot have."""
    target = references.find_target(context.database, ref)
    if target.kind == "sweep":
        if target.row.queued:
            check_format(format, wait)
    elif format not in (options.MatrixFormat.table, options.MatrixFormat.json):
        raise InputError(f"--format {format.value} is for the matrix of a sweep; an execution has table or json")
    return target


def _with_progress(context: Context, target: Target, act: Callable[[Show], Continued], quiet: bool) -> Continued:
    """Act, and show meanwhile how far a run here is: the events of one execution, else counts."""
    if target.kind == "execution":
        with prints_to_stderr(), show_events(context.database, target.row.sweep_id, quiet) as show:
            return act(show)
    with prints_to_stderr(), progress_display(quiet, matrix=True) as show:
        return act(show)


def _present(
    context: Context, done: Continued, wait: bool, format: options.MatrixFormat, output: Path | None, quiet: bool
) -> None:
    if done.target.kind == "execution":
        _present_execution(context, done, done.target.row, format, output)
    elif done.run_by is continuation.RunBy.workers:
        if done.problem is not None:
            say(f"{done.problem}; it starts when the broker is back")
        if wait:
            wait_and_present(context, done.target.id, format, output, quiet)
        else:
            row = done.target.row
            put_id(row.id, row.name, row.cells, done.workers, done.started, format, output)
    elif done.ended is not None:
        ran = local.Ran(done.target.row, done.ended)
        say_how_it_ended(ran)
        present(context, ran, format, output)
    elif done.run_by is continuation.RunBy.nobody:
        document = gates.judged(context.database, done.target.row)
        put(render_matrix(document, format, output), output)
        raise typer.Exit(exit_code(document, None))


def _present_execution(
    context: Context, done: Continued, row: ExecutionRow, format: options.MatrixFormat, output: Path | None
) -> None:
    name = row.id
    if done.run_by is continuation.RunBy.here:
        present_execution(context.database, name, format is options.MatrixFormat.json, output, done.ended)
    elif done.run_by is continuation.RunBy.another_process:
        say(f"execution {name} continues in the process that runs it; should that end first: wtb resume {name}")
    else:
        say(f"execution {name} is for the workers; look at it with: wtb status {name}")
        if done.problem is not None:
            say(f"{done.problem}; it continues when the broker is back")
        sweep = queries.find_sweep(context.database, row.sweep_id)
        if sweep.status not in ("pending", "running"):
            say(f"but its sweep is {sweep.status}; continue it with: wtb resume {sweep.id}")
