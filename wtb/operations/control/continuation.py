"""Continuation: who runs executions that no longer wait, and runs on threads while their caller does something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum

from wtb.core.frozen import frozen
from wtb.execution.runtime.code_drift import accept_code
from wtb.execution.runtime.sweep_run import Ended, SweepRun, is_being_run
from wtb.execution.state import Progress
from wtb.operations.context import Context
from wtb.operations.running.local import Ran, RunHere, follow, follow_started, run_fork
from wtb.operations.running.preparing import rebind
from wtb.planning.binding import Bound
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

ENDING_S = 5.0  # for a run that has nothing left to do
LOOK_S = 0.05


class RunBy(StrEnum):
    """The process that runs a continuation.

    Attributes:
        here: This process. After an answer it may, if no other process runs the single execution.
        workers: Workers, which have its tasks.
        another_process: The process that runs the sweep.
        nobody: No process, until the sweep or the execution is resumed.
    """

    here = "here"
    workers = "workers"
    another_process = "another process"
    nobody = "nobody"


@frozen
class Continuation:
    """Executions of a sweep that can continue.

    Attributes:
        sweep: Its id.
        executions: Their ids.
        run_by: Who runs them.
        problem: Why workers could not be reached; they find the executions later.
    """

    sweep: str
    executions: tuple[str, ...]
    run_by: RunBy
    problem: str | None = None


def continue_sweeps(context: Context, woken: Mapping[str, Sequence[str]]) -> tuple[Continuation, ...]:
    """Find who continues with executions, and publish what workers continue with.

    Args:
        context: Where.
        woken: The ids of executions that are pending now, by the id of their sweep.
    """
    database = context.database
    by = {id: _run_by(context, queries.find_sweep(database, id)) for id, executions in woken.items() if executions}
    problem = context.publisher.publish_pending(database) if RunBy.workers in by.values() else None
    return tuple(
        Continuation(id, tuple(woken[id]), who, problem if who is RunBy.workers else None) for id, who in by.items()
    )


def _run_by(context: Context, sweep: SweepRow) -> RunBy:
    """Return the process that continues with pending executions of a sweep."""
    if sweep.queued:
        return RunBy.workers if sweep.status in ("pending", "running") else RunBy.nobody
    if not leases.runs_now(context.database, sweep):
        may_run = context.imports or context.local is not None
        return RunBy.here if sweep.kind == "single" and may_run else RunBy.nobody
    return RunBy.another_process if sweep.status == "running" else RunBy.nobody


def run_here(
    context: Context, continuation: Continuation, *, bound: Bound | None = None, run: RunHere = follow
) -> Ended:
    """Run the single execution of an answer in this process, and forks of it that wait no longer.

    Args:
        context: Where.
        continuation: Of the answer.
        bound: The code; imported if None.
        run: Runs it; `follow`, with what shows progress, if it is to be waited for.

    Returns:
        How the first of them ended.

    Raises:
        ConflictError: If its code has changed.
    """
    sweep = queries.find_sweep(context.database, continuation.sweep)
    bound = bound or rebind(context, sweep)
    ended, *_ = [_run_one(context, sweep, id, bound, run) for id in continuation.executions]
    return ended


def start_locally(context: Context, continuation: Continuation) -> None:
    """Have this process run the executions of a continuation on threads of its own, if it does so.

    Args:
        context: Where.
        continuation: Of an answer.
    """
    if context.local is not None and continuation.run_by in (RunBy.here, RunBy.another_process):
        for id in continuation.executions:
            context.local.start(continuation.sweep, execution=id)


def _run_one(context: Context, sweep: SweepRow, execution_id: str, bound: Bound, run: RunHere) -> Ended:
    if queries.find_execution(context.database, execution_id).choices is not None:  # a person forked it
        return run_fork(context, sweep, execution_id, bound, run=run).ended
    accept_code(context.database, sweep, bound, allow=False)
    sweep_run = SweepRun(context.database, sweep, bound, workspaces=context.workspaces)
    return run(context, sweep_run, bound.spec.run.grace).ended


def check_runs_here(context: Context, sweep_id: str, bound: Bound | None) -> None:
    """Check, before an answer is recorded, that this process could run a single execution on, if nobody else does.

    A run of it that comes to its end, since it waits, is waited for: it would not see the answer any more.

    Args:
        context: Where.
        sweep_id: A sweep or a single execution.
        bound: The code; imported if None.

    Raises:
        InputError: If its code is not there.
        ConflictError: If its code has changed.
    """
    sweep = queries.find_sweep(context.database, sweep_id)
    if sweep.queued or sweep.kind != "single":
        return
    bound = bound or rebind(context, sweep)
    if queries.single_execution(context.database, sweep_id).status != "waiting":
        return  # a fork waits, which may run with code that has changed
    # An execution ends its run when it waits; until that process has left, it would be taken for one that runs.
    ends = time.monotonic() + ENDING_S
    while is_being_run(context.database, sweep) and time.monotonic() < ends:
        time.sleep(LOOK_S)
        sweep = queries.find_sweep(context.database, sweep_id)
    if _run_by(context, sweep) is RunBy.here:
        accept_code(context.database, sweep, bound, allow=False)


def run_in_background(context: Context, run: SweepRun, grace: float) -> Ran:
    """Begin a run that nobody waits for. Returns that it is running.

    See `follow` for a run that somebody waits for.
    """
    BackgroundRun(context, run, grace)
    return Ran(queries.find_sweep(context.database, run.sweep_id), Ended("running"))


class BackgroundRun:
    """A run that has begun, and is followed by a thread of its own.

    Args:
        context: Where; it is warned of what needs people's attention.
        run: Not started yet.
        grace: Seconds that running nodes get once it is stopped.

    Raises:
        WTBError: If it cannot begin.
    """

    def __init__(self, context: Context, run: SweepRun, grace: float) -> None:
        # Started here, not on the thread: whoever began it learns at once that it cannot begin.
        run.start()
        self._run = run
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, args=(context, grace), name="wtb-background", daemon=True)
        self._thread.start()

    def _follow(self, context: Context, grace: float) -> None:
        try:
            follow_started(context, self._run, grace)
        except BaseException as error:  # noqa: BLE001 - `check` raises it
            self._error = error

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._run.progress

    def wait(self, seconds: float = 0.0) -> bool:
        """Wait for at most some seconds. Returns whether this process does no more for it."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raise the error that ended the run, such as a database out of reach; not the failure of a node."""
        if self._error is not None:
            raise self._error
