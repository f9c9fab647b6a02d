"""Commands that continue with sweeps and executions: resume, retry."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, prints_to_stderr, put_matrix, read_limits, say
from wtb.cli.progress import progress_display
from wtb.cli.results.watch import wait_and_present
from wtb.cli.run.event_printer import show_events
from wtb.cli.run.executions import present_execution
from wtb.cli.run.outcome import exit_code, present, say_how_it_ended
from wtb.cli.run.submit import check_format, put_submitted
from wtb.core.errors import InputError
from wtb.operations import context as contexts
from wtb.operations.control import continuation, state_edits
from wtb.operations.results import matrix as results
from wtb.operations.running import continuing, local
from wtb.store.read import details, queries

if TYPE_CHECKING:
    from wtb.cli.progress import Show
    from wtb.execution.runtime.sweep_run import Ended
    from wtb.operations.context import Backend, Context
    from wtb.operations.running.continuing import Continued

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
    form: options.MatrixForm = options.MATRIX_TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Continue a sweep or execution that was stopped or paused.

    Resume all paused executions of a sweep. Committed node runs are not repeated. A submitted sweep continues on the
    workers, and the command returns at once unless --wait is given. With --set, an execution continues with other
    values in its state.

    See also: `wtb retry` runs what failed again.

    Examples: wtb resume nightly --limits usd=10  |  wtb resume EXECUTION --set k=5
    """
    backend = open_backend(db, broker)
    shows = _shows_progress(backend, ref, form.format, wait, quiet)
    changed, changes = read_limits(limits), state_edits.parse_changes(set or ())
    with prints_to_stderr(), shows as show:
        done = backend.call(
            continuing.resume,
            ref,
            set=changes,
            written=state_edits.as_written(set or ()),
            limits=changed,
            allow_code_change=allow_code_change,
            progress=show,
        )
    _present(backend, done, wait, form, quiet)


def retry(
    ref: options.SweepOrExecution,
    db: options.Db = None,
    failed_only: Annotated[
        bool, typer.Option("--failed", help="Only failed cells, not those cancelled or set aside.")
    ] = False,
    provider: Annotated[
        bool, typer.Option("--provider", help="Only cells lost to a provider; also ends a wait for it.")
    ] = False,
    limits: options.Limits = None,
    wait: options.Wait = False,
    broker: options.Broker = None,
    form: options.MatrixForm = options.MATRIX_TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Run failed cells again, from their last good checkpoints.

    They run with the code as it is now. Cells of a submitted sweep go to the workers, and the command returns at once
    unless --wait is given.

    See also: `wtb resume` continues what was stopped or paused; `wtb rollback` goes back.

    Examples: wtb retry nightly --failed  |  wtb retry nightly --provider  |  wtb retry EXECUTION
    """
    backend = open_backend(db, broker)
    shows = _shows_progress(backend, ref, form.format, wait, quiet)
    changed = read_limits(limits)
    with prints_to_stderr(), shows as show:
        done = backend.call(
            continuing.retry, ref, failed_only=failed_only, provider=provider, limits=changed, progress=show
        )
    _present(backend, done, wait, form, quiet)


def _shows_progress(
    backend: Backend, ref: str, format: options.MatrixFormat, wait: bool, quiet: bool
) -> AbstractContextManager[Show | None]:
    """Return what shows how far a run here is, and refuse a format that what is meant cannot have.

    Of one execution that is its events, else counts; through a server nothing runs here.
    """
    if not isinstance(backend, contexts.Context):
        check_format(format, wait)
        return nullcontext()
    target = details.find_target(backend.database, ref)
    if target.kind == "sweep":
        # Workers run a submitted sweep, so without --wait there is no matrix at the end of this command.
        if target.row.queued:
            check_format(format, wait)
        return progress_display(quiet, matrix=True)
    if format not in (options.MatrixFormat.table, options.MatrixFormat.json):
        raise InputError(f"--format {format.value} is for the matrix of a sweep; an execution has table or json")
    return show_events(backend.database, target.row.sweep_id, quiet)


def _present(backend: Backend, done: Continued, wait: bool, form: options.MatrixForm, quiet: bool) -> None:
    if done.ended is not None:
        assert isinstance(backend, contexts.Context), "through a server nothing runs here"
        _present_ended(backend, done, done.ended, form)
    elif done.kind == "execution":
        _say_who_runs(done)
    elif done.run_by is continuation.RunBy.workers:
        if done.problem is not None:
            say(f"{done.problem}; it starts when the broker is back")
        if wait:
            wait_and_present(backend, done.id, form, quiet)
        else:
            put_submitted(done.id, done, form)
    elif done.run_by is continuation.RunBy.nobody:
        matrix = backend.call(results.matrix, done.id)
        put_matrix(matrix, form)
        raise typer.Exit(exit_code(matrix, None))


def _present_ended(context: Context, done: Continued, ended: Ended, form: options.MatrixForm) -> None:
    if done.kind == "execution":
        present_execution(context.database, done.id, options.Form(options.Format(form.format), form.output), ended)
    else:
        ran = local.Ran(queries.find_sweep(context.database, done.id), ended)
        say_how_it_ended(ran)
        present(context, ran, form)


def _say_who_runs(done: Continued) -> None:
    name = done.id
    if done.run_by is continuation.RunBy.another_process:
        say(f"execution {name} continues in the process that runs it; should that end first: wtb resume {name}")
        return
    say(f"execution {name} is for the workers; look at it with: wtb status {name}")
    if done.problem is not None:
        say(f"{done.problem}; it continues when the broker is back")
    if done.status not in ("pending", "running"):
        say(f"but its sweep is {done.status}; continue it with: wtb resume {done.sweep}")
