"""Commands that go on with sweeps and executions: resume, retry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import (
    BrokerOption,
    Db,
    MatrixFormat,
    MatrixFormatOption,
    Output,
    SweepOrExecution,
    open_database,
    say,
)
from wtb.cli.run.sweeps import (
    AllowCode,
    NewLimits,
    Quiet,
    WaitOption,
    check_limits,
    go,
    present,
    read_limits,
    rebind,
    run_again,
)
from wtb.config.stack_file import broker_url
from wtb.core.errors import ConflictError, InputError
from wtb.display.views.sweeps import find_target
from wtb.execution.runtime.code_drift import accept_code
from wtb.execution.runtime.fork_run import run_fork
from wtb.execution.runtime.sweep_run import take_over
from wtb.operations.control.pause_cancel import because, user
from wtb.operations.control.pause_cancel import retry as retry_one
from wtb.operations.control.state_edits import check_reach, read_changes
from wtb.store.control import executions, sweeps
from wtb.store.read.queries import find_execution, find_sweep
from wtb.store.runs.leases import runs_now, unfinished
from wtb.store.runs.retry import AGAIN
from wtb.store.runs.retry import retry as retry_cells

if TYPE_CHECKING:
    from wtb.core.values import Value
    from wtb.planning.binding import Bound
    from wtb.store.database import Database

Row = Mapping[str, Any]

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Of an execution: another value of a key, as YAML, or KEY=@FILE."),
]


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: wtb resume nightly --limits usd=10  |  wtb resume EXECUTION --set k=5")(resume)
    app.command(epilog="Examples: wtb retry nightly --failed  |  wtb retry EXECUTION")(retry)


def resume(
    ref: SweepOrExecution,
    set: SetOption = None,
    db: Db = None,
    limits: NewLimits = None,
    allow_code_change: AllowCode = False,
    wait: WaitOption = False,
    broker: BrokerOption = None,
    format: MatrixFormatOption = MatrixFormat.table,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a sweep or execution that was stopped or paused.

    Nothing committed runs again. Of a sweep, all its paused executions go on. What was submitted goes back to the
    workers, and the command returns at once unless told to --wait. An execution may go on with other values in its
    state.

    See also: `wtb retry` runs what failed again.
    """
    more = read_limits(limits)
    database = open_database(db)
    kind, row = find_target(database, ref)
    if kind == "execution":
        _resume_execution(database, row, set or [], more, allow_code_change, broker, format, output, quiet)
        return
    if set:
        raise InputError(f"--set changes the state of one execution, and {ref!r} is a sweep (`wtb show {ref} --cells`)")
    _resume_sweep(database, row, more, allow_code_change, wait, broker, format, output, quiet)


def _resume_sweep(
    database: Database,
    row: Row,
    more: Mapping[str, Any],
    allow_code_change: bool,
    wait: bool,
    broker: str | None,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    if row["status"] == "cancelled":
        raise _is_cancelled(row)
    if row["status"] == "completed" and not unfinished(database, row["id"]):  # else a retry was killed early
        say(f"sweep {row['name']} ({row['id']}) is completed; `wtb retry` runs failed cells again")
        present(database, row, format, output)
        return
    elsewhere = not row["queued"] and not more and runs_now(database, row)
    if elsewhere and (count := executions.resume_all(database, row["id"], by=user())):
        say(f"executions of sweep {row['name']} ({row['id']}) that go on: {count:,}; the process that runs it does")
        return
    bound = rebind(row)
    check_limits(database, row, bound, more)
    if row["queued"]:
        from wtb.cli.run.resume_queued import resume_queued

        resume_queued(database, row, bound, more, allow_code_change, broker, wait, format, output, quiet)
        return
    take_over(database, row["id"])
    accept_code(database, row, bound, allow=allow_code_change)
    executions.resume_all(database, row["id"], by=user())
    go(database, run_again(database, row, bound, more), bound, format, output, quiet)


def _resume_execution(
    database: Database,
    row: Row,
    texts: list[str],
    limits: Mapping[str, Any],
    allow_code_change: bool,
    broker: str | None,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    _check_format(format)
    sweep = find_sweep(database, row["sweep_id"])
    bound = rebind(sweep)
    changes = read_changes(bound, texts)
    check_reach(database, bound, row["head_id"], changes)
    check_limits(database, sweep, bound, limits)
    elsewhere = runs_now(database, sweep)
    if limits and elsewhere:
        raise ConflictError(
            f"others run sweep {sweep['id']}: `wtb pause {sweep['id']}` first, then give it other limits"
        )
    if row["status"] == "paused" and row["choices"] is None:
        accept_code(database, sweep, bound, allow=allow_code_change)
    if not elsewhere:
        take_over(database, sweep["id"])
        row = find_execution(database, row["id"])
    if row["status"] != "pending" or changes:
        _set_going(database, row, changes)
    name = row["id"]
    if elsewhere:
        _leave_to_others(database, sweep, name, bound, broker)
        return
    if row["choices"] is None:
        _run_execution(database, sweep, row["id"], bound, limits, format, output, quiet)
        return
    from wtb.cli.run.executions import present_execution

    say(run_fork(database, row["id"], bound))
    present_execution(database, row["id"], format is MatrixFormat.json, output)


def _set_going(database: Database, row: Row, changes: Mapping[str, Value]) -> None:
    by = user()
    if row["status"] == "pending":  # its runner died or was interrupted
        executions.pause(database, row["id"], reason=because(by, "to change its state"), by=by)
    executions.resume(database, row["id"], by=by, changes=changes)


def _run_execution(
    database: Database,
    sweep: Row,
    execution_id: str,
    bound: Bound,
    limits: Mapping[str, Any],
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    """Run one execution of a sweep, with what it forks into, and show it."""
    from wtb.cli.run.executions import present_execution, run_and_tell

    ended = run_and_tell(database, run_again(database, sweep, bound, limits, execution_id), bound, quiet)
    present_execution(database, execution_id, format is MatrixFormat.json, output, ended)


def _leave_to_others(database: Database, sweep: Row, name: str, bound: Bound, broker: str | None) -> None:
    """Report who goes on with an execution, and notify workers."""
    if not sweep["queued"]:
        say(f"execution {name} goes on in the process that runs it; should that end first: wtb resume {name}")
        return
    from wtb.cli.broker_notifier import BrokerNotifier
    from wtb.cli.run.resume_queued import requeue
    from wtb.cli.run.submit import notify_workers

    requeue(database, sweep["id"], bound)
    problem = notify_workers(database, BrokerNotifier(broker_url(broker)))
    say(f"execution {name} is for the workers; look at it with: wtb status {name}")
    if problem is not None:
        say(f"{problem}; it goes on when the broker is back")
    present = find_sweep(database, sweep["id"])["status"]
    if present not in ("pending", "running"):
        say(f"but its sweep is {present}; have that go on with: wtb resume {sweep['id']}")


def _check_format(format: MatrixFormat) -> None:
    if format not in (MatrixFormat.table, MatrixFormat.json):
        raise InputError(f"--format {format.value} is for the matrix of a sweep; an execution has table or json")


def retry(
    ref: SweepOrExecution,
    db: Db = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only failed cells, not those cancelled or set aside.")
    ] = False,
    limits: NewLimits = None,
    wait: WaitOption = False,
    broker: BrokerOption = None,
    format: MatrixFormatOption = MatrixFormat.table,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Run failed cells again, from their last good checkpoints.

    They run with present code, those of a sweep or of one execution. Those of a sweep that was submitted go to the
    workers, and the command returns at once unless told to --wait.

    See also: `wtb resume` goes on with what was stopped or paused; `wtb rollback` goes back.
    """
    more = read_limits(limits)
    database = open_database(db)
    kind, row = find_target(database, ref)
    if kind == "execution":
        _retry_execution(database, row, failed, more, broker, format, output, quiet)
        return
    if row["status"] == "cancelled":
        raise _is_cancelled(row)
    bound = rebind(row)
    check_limits(database, row, bound, more)
    statuses = ("failed",) if failed else AGAIN
    if row["queued"]:
        from wtb.cli.run.resume_queued import retry_queued

        retry_queued(database, row, bound, more, statuses, broker, wait, format, output, quiet)
        return
    take_over(database, row["id"])
    cells = retry_cells(database, row["id"], statuses)
    if not cells:
        say(f"sweep {row['name']} ({row['id']}) has no cells to retry")
        present(database, row, format, output)
        return
    for node, variant in accept_code(database, row, bound, allow=True):
        say(f"the code of {node}={variant} has changed; the matrix says where results are mixed")
    say(f"sweep {row['name']} ({row['id']}): {cells:,} cells again")
    go(database, run_again(database, row, bound, more), bound, format, output, quiet)


def _retry_execution(
    database: Database,
    row: Row,
    failed: bool,
    limits: Mapping[str, Any],
    broker: str | None,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    _check_format(format)
    sweep = find_sweep(database, row["sweep_id"])
    bound = rebind(sweep)
    check_limits(database, sweep, bound, limits)
    elsewhere = runs_now(database, sweep)
    if not elsewhere:
        take_over(database, sweep["id"])
    made = retry_one(database, row, failed_only=failed)
    for node, variant in accept_code(database, sweep, bound, allow=True):
        say(f"the code of {node}={variant} has changed")
    say(f"execution {made} goes on with the cells of {row['id']}")
    if elsewhere:
        if sweep["queued"]:
            sweeps.go_on(database, sweep["id"], by=user(), limits=limits)
        _leave_to_others(database, sweep, made, bound, broker)
        return
    _run_execution(database, sweep, made, bound, limits, format, output, quiet)


def _is_cancelled(row: Mapping[str, Any]) -> ConflictError:
    command = "submit" if row["queued"] else "run"
    return ConflictError(f"sweep {row['id']} is cancelled for good; start it anew with `wtb {command}`")
