"""Commands that go on with sweeps and executions: resume, retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.broker_notifier import BrokerNotifier
from wtb.cli.console import open_database, say
from wtb.cli.run.executions import present_execution, run_with_events
from wtb.cli.run.resume_queued import Settings, accept_present_code, requeue, resume_queued, retry_queued
from wtb.cli.run.sweeps import check_limits, present, read_limits, rebind, run_again, run_to_end
from wtb.core.errors import ConflictError, InputError
from wtb.display.views import sweeps
from wtb.execution.runtime import code_drift, fork_run, sweep_run
from wtb.operations.control import pause_cancel, state_edits
from wtb.store.control import executions
from wtb.store.control import sweeps as store
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.runs import retry as retry_store

if TYPE_CHECKING:
    from wtb.core.values import Value
    from wtb.planning.binding import Bound
    from wtb.store.database import Database

Row = Mapping[str, Any]

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
    workers, and the command returns at once unless --wait is given. An execution may go on with other values in its
    state.

    See also: `wtb retry` runs what failed again.

    Examples: wtb resume nightly --limits usd=10  |  wtb resume EXECUTION --set k=5
    """
    settings = Settings(read_limits(limits), wait, broker, format, output, quiet)
    database = open_database(db)
    kind, row = sweeps.find_target(database, ref)
    if kind == "execution":
        _resume_execution(database, row, set or [], settings, allow_code_change)
        return
    if set:
        raise InputError(f"--set changes the state of one execution, and {ref!r} is a sweep (`wtb show {ref} --cells`)")
    _resume_sweep(database, row, settings, allow_code_change)


def _resume_sweep(database: Database, row: Row, settings: Settings, allow_code_change: bool) -> None:
    _check_not_cancelled(row)
    if row["status"] == "completed" and not leases.unfinished(database, row["id"]):  # else a retry was killed early
        say(f"sweep {row['name']} ({row['id']}) is completed; `wtb retry` runs failed cells again")
        present(database, row, settings.format, settings.output)
        return
    elsewhere = not row["queued"] and not settings.limits and leases.runs_now(database, row)
    if elsewhere and (count := executions.resume_all(database, row["id"], by=pause_cancel.user())):
        say(f"executions of sweep {row['name']} ({row['id']}) that go on: {count:,}; the process that runs it does")
        return
    bound = rebind(row)
    check_limits(database, row, bound, settings.limits)
    if row["queued"]:
        resume_queued(database, row, bound, settings, allow_code_change)
        return
    sweep_run.take_over(database, row["id"])
    code_drift.accept_code(database, row, bound, allow=allow_code_change)
    executions.resume_all(database, row["id"], by=pause_cancel.user())
    _run_sweep(database, row, bound, settings)


def _resume_execution(
    database: Database, row: Row, texts: list[str], settings: Settings, allow_code_change: bool
) -> None:
    sweep, bound = _checked(database, row, settings)
    changes = state_edits.read_changes(bound, texts)
    state_edits.check_reach(database, bound, row["head_id"], changes)
    elsewhere = leases.runs_now(database, sweep)
    if settings.limits and elsewhere:
        raise ConflictError(
            f"others run sweep {sweep['id']}: `wtb pause {sweep['id']}` first, then give it other limits"
        )
    if row["status"] == "paused" and row["choices"] is None:
        code_drift.accept_code(database, sweep, bound, allow=allow_code_change)
    if not elsewhere:
        sweep_run.take_over(database, sweep["id"])
        row = queries.find_execution(database, row["id"])
    if row["status"] != "pending" or changes:
        _set_going(database, row, changes)
    if elsewhere:
        _leave_to_others(database, sweep, row["id"], bound, settings)
    elif row["choices"] is None:
        _run_execution(database, sweep, row["id"], bound, settings)
    else:
        say(fork_run.run_fork(database, row["id"], bound))
        present_execution(database, row["id"], settings.format is options.MatrixFormat.json, settings.output)


def _set_going(database: Database, row: Row, changes: Mapping[str, Value]) -> None:
    by = pause_cancel.user()
    if row["status"] == "pending":  # its runner died or was interrupted
        executions.pause(database, row["id"], reason=pause_cancel.because(by, "to change its state"), by=by)
    executions.resume(database, row["id"], by=by, changes=changes)


def retry(
    ref: options.SweepOrExecution,
    db: options.Db = None,
    failed: Annotated[
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
    settings = Settings(read_limits(limits), wait, broker, format, output, quiet)
    database = open_database(db)
    kind, row = sweeps.find_target(database, ref)
    if kind == "execution":
        _retry_execution(database, row, failed, settings)
        return
    _check_not_cancelled(row)
    bound = rebind(row)
    check_limits(database, row, bound, settings.limits)
    statuses = ("failed",) if failed else retry_store.AGAIN
    if row["queued"]:
        retry_queued(database, row, bound, settings, statuses)
        return
    sweep_run.take_over(database, row["id"])
    cells = retry_store.retry(database, row["id"], statuses)
    if not cells:
        say(f"sweep {row['name']} ({row['id']}) has no cells to retry")
        present(database, row, settings.format, settings.output)
        return
    accept_present_code(database, row, bound)
    say(f"sweep {row['name']} ({row['id']}): {cells:,} cells again")
    _run_sweep(database, row, bound, settings)


def _retry_execution(database: Database, row: Row, failed: bool, settings: Settings) -> None:
    sweep, bound = _checked(database, row, settings)
    elsewhere = leases.runs_now(database, sweep)
    if not elsewhere:
        sweep_run.take_over(database, sweep["id"])
    new_id = pause_cancel.retry(database, row, failed_only=failed)
    accept_present_code(database, sweep, bound)
    say(f"execution {new_id} goes on with the cells of {row['id']}")
    if not elsewhere:
        _run_execution(database, sweep, new_id, bound, settings)
        return
    if sweep["queued"]:
        store.go_on(database, sweep["id"], by=pause_cancel.user(), limits=settings.limits)
    _leave_to_others(database, sweep, new_id, bound, settings)


def _checked(database: Database, row: Row, settings: Settings) -> tuple[dict[str, Any], Bound]:
    """Return the sweep of an execution and its code, if the settings are for an execution of it.

    Raises:
        InputError: The format or the limits are not.
    """
    if settings.format not in (options.MatrixFormat.table, options.MatrixFormat.json):
        name = settings.format.value
        raise InputError(f"--format {name} is for the matrix of a sweep; an execution has table or json")
    sweep = queries.find_sweep(database, row["sweep_id"])
    bound = rebind(sweep)
    check_limits(database, sweep, bound, settings.limits)
    return sweep, bound


def _run_sweep(database: Database, row: Row, bound: Bound, settings: Settings) -> None:
    run = run_again(database, row, bound, settings.limits)
    ended_row, ended = run_to_end(database, run, bound, settings.quiet)
    present(database, ended_row, settings.format, settings.output, ended)


def _run_execution(database: Database, sweep: Row, execution_id: str, bound: Bound, settings: Settings) -> None:
    """Run one execution of a sweep, with what it forks into, and show it."""
    run = run_again(database, sweep, bound, settings.limits, execution_id)
    ended = run_with_events(database, run, bound, settings.quiet)
    present_execution(database, execution_id, settings.format is options.MatrixFormat.json, settings.output, ended)


def _leave_to_others(database: Database, sweep: Row, name: str, bound: Bound, settings: Settings) -> None:
    """Report who goes on with an execution, and notify workers."""
    if not sweep["queued"]:
        say(f"execution {name} goes on in the process that runs it; should that end first: wtb resume {name}")
        return
    requeue(database, sweep["id"], bound)
    problem = BrokerNotifier(settings.broker).notify_pending(database)
    say(f"execution {name} is for the workers; look at it with: wtb status {name}")
    if problem is not None:
        say(f"{problem}; it goes on when the broker is back")
    status = queries.find_sweep(database, sweep["id"])["status"]
    if status not in ("pending", "running"):
        say(f"but its sweep is {status}; have that go on with: wtb resume {sweep['id']}")


def _check_not_cancelled(row: Row) -> None:
    if row["status"] == "cancelled":
        command = "submit" if row["queued"] else "run"
        raise ConflictError(f"sweep {row['id']} is cancelled for good; start a new one with `wtb {command}`")
