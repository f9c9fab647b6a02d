"""The continuation of what was stopped, paused or failed: resume and retry, by this process or by workers."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from functools import partial

from wtb.authoring import graph
from wtb.config.yaml_reader import Located
from wtb.core.arguments import checked
from wtb.core.errors import ConflictError, InputError
from wtb.core.frozen import frozen
from wtb.core.provider_faults import is_waiting
from wtb.core.tree.stored_code import RecordedCode
from wtb.core.tree.stored_spec import Limits, stored_evaluators
from wtb.core.values import State, Value
from wtb.display.views.progress import crew
from wtb.execution.runtime.code_drift import accept_code, accept_tools
from wtb.execution.runtime.sweep_run import Ended, SweepRun, reclaim_sweep
from wtb.execution.runtime.upkeep import repair_sweep
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.continuation import RunBy
from wtb.operations.control.pause_cancel import retry as retry_execution
from wtb.operations.control.state_edits import check_reach, checked_changes
from wtb.operations.payers import check_payer
from wtb.operations.results.pools import check_no_pool
from wtb.operations.running.local import Code, Ran, RunHere, ShowProgress, follow, run_fork
from wtb.operations.running.preparing import accept_evaluators, check_runs_elsewhere, rebind
from wtb.planning.binding import Bound
from wtb.planning.checks import check_nodes
from wtb.planning.sweep_spec import read_limits
from wtb.store.access.budgets import check_limits
from wtb.store.control import executions, sweeps
from wtb.store.control.forks import RETRIED
from wtb.store.control.forks import retry as retry_cells
from wtb.store.control.row_cells import begin_deferred
from wtb.store.database import Database
from wtb.store.read import activity, queries
from wtb.store.read.details import ExecutionTarget, SweepTarget, Target, TargetKind, find_target
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

LET_GO_S = 15.0  # that workers get to end what they run of a paused sweep: nodes have a grace of 10 s
SEEN_S = 2.0  # in which every worker has seen that a sweep is paused; they look once a second


@frozen
class Continued:
    """The result of `resume` or `retry`.

    Attributes:
        kind: Whether a sweep or an execution goes on.
        id: Its id; of a retried execution that of the new one.
        sweep: The id of the sweep, or of the sweep that the execution is of.
        name: The name of that sweep.
        cells: How many cells that has.
        status: Its status now.
        run_by: Who runs it; nobody if there was nothing to do.
        ended: How it ended, if it ran here.
        workers: How many workers there are, if they run it.
        problem: Why workers could not be reached; it goes on when the broker is back.
    """

    kind: TargetKind
    id: str
    sweep: str
    name: str
    cells: int
    status: str
    run_by: RunBy
    ended: Ended | None = None
    workers: int = 0
    problem: str | None = None

    @property
    def started(self) -> bool:
        """True if workers begin at once."""
        return self.problem is None and self.workers > 0


@frozen
class _BoundSweep:
    """A sweep that continues, with its code, its new limits and who runs it."""

    context: Context
    sweep: SweepRow
    bound: Bound
    limits: Limits
    run: RunHere

    @property
    def database(self) -> Database:
        return self.context.database


@checked
@audited
def resume(
    context: Context,
    ref: str,
    *,
    set: State | None = None,
    written: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    allow_code_change: bool = False,
    progress: ShowProgress | None = None,
    code: Code | None = None,
) -> Continued:
    """Continue a sweep or execution that was stopped or paused. What runs here has ended or paused again then.

    Args:
        context: Where, and who resumes it.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
        set: Of an execution: other values by key of its state.
        written: Values of `set` that were typed as text; they are read as the types of their keys.
        limits: Other limits from now on, as in a sweep file.
        allow_code_change: Go on although code, or a tool of a server, has changed.
        progress: Called several times a second with how far a run here is.
        code: What runs here, and how; by default what its import path names, waited for.

    Returns:
        Who runs it, and how it ended if it ran here.

    Raises:
        InputError: If there is none, or a value or limit does not fit.
        ConflictError: If it is cancelled, its code, an evaluator or a tool of a server has changed, or others run it
            and the limits would change.
    """
    changed = None if limits is None else read_limits(limits)
    target = find_target(context.database, ref)
    check_payer(context, _sweep_of(context.database, target))
    check_no_pool(context.database, _sweep_of(context.database, target), "resumed")
    if target.kind == "execution":
        bound_sweep = _bind_sweep(context, target, changed, code or progress)
        changes = checked_changes(bound_sweep.bound, set or {}, written)
        return _resume_execution(bound_sweep, target, changes, allow_code_change)
    if set:
        # A state belongs to one execution, so there is nothing in a sweep that `set` could change.
        raise InputError(
            f"only the state of one execution can be changed, and {ref!r} is a sweep "
            f"(`wtb show {shlex.quote(ref)} --cells`)"
        )
    return _resume_sweep(context, target, changed or Limits(), allow_code_change, code or progress)


def _resume_sweep(
    context: Context, target: SweepTarget, limits: Limits, allow_code_change: bool, how: Code | ShowProgress | None
) -> Continued:
    database, row = context.database, target.row
    _check_not_cancelled(row)
    if row.status == "completed" and not leases.unfinished(database, target.id):  # else a retry was killed early
        context.report(f"{target} is completed; `wtb retry` runs failed cells again")
        return _continued(context, target, RunBy.nobody)
    elsewhere = not row.queued and not limits and leases.runs_now(database, row)
    # The process that runs the sweep also resumes its executions: a second run of it here would be refused.
    if elsewhere and (count := executions.resume_all(database, target.id, by=context.by)):
        context.report(f"executions of {target} that continue: {count:,}; the process that runs it does")
        return _continued(context, target, RunBy.another_process)
    bound_sweep = _bind_sweep(context, target, limits, how)
    if row.queued:
        return _resume_queued(bound_sweep, target, allow_code_change)
    # A runner that died may still own executions. They are reclaimed before any of them begins again.
    reclaim_sweep(database, target.id)
    _accept(bound_sweep, allow_code_change)
    executions.resume_all(database, target.id, by=context.by)
    return _run_sweep(bound_sweep)


def _resume_queued(bound_sweep: _BoundSweep, target: SweepTarget, allow_code_change: bool) -> Continued:
    context, database, row = bound_sweep.context, bound_sweep.database, bound_sweep.sweep
    claimed = activity.count_claimed(database, target.id)
    # Workers keep the limits they began with, so that other ones can only be given while they do not run it.
    under_way = row.status in ("pending", "running")
    if under_way and bound_sweep.limits:
        raise ConflictError(f"{target} is {row.status}: `wtb pause {target.id}` first, then give it other limits")
    if under_way and claimed and not executions.has_paused(database, target.id):
        context.report(
            f"workers run {target}, {claimed:,} executions just now: nothing to do; look on with: wtb watch {target.id}"
        )
        return _continued(context, target, RunBy.workers)
    context.publisher.check()
    _accept(bound_sweep, allow_code_change)
    # The sweep must not continue before every worker has dropped the old limits.
    if bound_sweep.limits:
        claimed = _let_workers_see(database, target.id)
    executions.resume_all(database, target.id, by=context.by)
    if not claimed:
        repair_sweep(database, row)
        requeue(database, target.id, bound_sweep.bound)
    sweeps.resume(database, target.id, by=context.by, limits=bound_sweep.limits)
    context.report(f"{target} continues")
    return _published(context, target)


def _resume_execution(
    bound_sweep: _BoundSweep, target: ExecutionTarget, changes: Mapping[str, Value], allow_code_change: bool
) -> Continued:
    context, database, sweep, row = bound_sweep.context, bound_sweep.database, bound_sweep.sweep, target.row
    check_reach(database, bound_sweep.bound, row.head_id, changes)
    elsewhere = leases.runs_now(database, sweep)
    # The process that runs the sweep now would continue by its old limits.
    if bound_sweep.limits and elsewhere:
        raise ConflictError(
            f"other processes run sweep {sweep.id}; pause it with `wtb pause {sweep.id}` first, then change its limits"
        )
    if row.status == "paused" and row.choices is None:
        _accept(bound_sweep, allow_code_change)
    if not elsewhere:
        reclaim_sweep(database, sweep.id)
        row = queries.find_execution(database, target.id)
    if row.status != "pending" or changes:
        if row.status == "pending":  # its runner died or was interrupted
            reason = context.because("to change its state")
            executions.pause(database, target.id, reason=reason, by=context.by)
        executions.resume(database, target.id, by=context.by, changes=changes)
    # Another process or a worker may already run the sweep: it finds the resumed execution itself.
    if elsewhere:
        return _leave_to_others(bound_sweep, target)
    if row.choices is None:
        return _run_execution(bound_sweep, target)
    if context.local is not None:
        context.local.start(sweep.id, execution=target.id)
        return _continued(context, target, RunBy.here)
    ran = run_fork(context, sweep, target.id, bound_sweep.bound, run=bound_sweep.run)
    return _continued(context, target, RunBy.here, ran.ended)


@checked
@audited
def retry(
    context: Context,
    ref: str,
    *,
    failed_only: bool = False,
    provider: bool = False,
    limits: Limits | None = None,
    progress: ShowProgress | None = None,
    code: Code | None = None,
) -> Continued:
    """Run failed cells again, from their last good checkpoints, with the code as it is now.

    Args:
        context: Where, and who retries them.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
        failed_only: Only failed cells, not those cancelled or set aside.
        provider: Only cells that were lost to a provider; a sweep that paused for one continues, too.
        limits: Other limits from now on, as in a sweep file.
        progress: Called several times a second with how far a run here is.
        code: What runs here, and how; by default what its import path names, waited for.

    Returns:
        Who runs them, and how that ended if they ran here.

    Raises:
        InputError: If there is none, or a limit does not fit.
        ConflictError: If it is cancelled, others run it, or, of an execution, nothing of it has failed.
    """
    changed = None if limits is None else read_limits(limits)
    target = find_target(context.database, ref)
    check_payer(context, _sweep_of(context.database, target))
    check_no_pool(context.database, _sweep_of(context.database, target), "retried")
    if target.kind == "execution":
        return _retry_execution(_bind_sweep(context, target, changed, code or progress), target, failed_only, provider)
    _check_not_cancelled(target.row)
    bound_sweep = _bind_sweep(context, target, changed, code or progress)
    queued = target.row.queued
    # Workers that still run cells would continue them beside the new tries.
    if queued:
        _check_released(context.database, target)
        context.publisher.check()
    else:
        reclaim_sweep(context.database, target.id)
    statuses = ("failed",) if failed_only else RETRIED
    cells = retry_cells(context.database, target.id, statuses, kind="provider" if provider else None)
    if not cells and not (provider and target.row.status == "paused" and is_waiting(target.row.reason)):
        context.report(f"{target} has no cells to retry")
        return _continued(context, target, RunBy.workers if queued else RunBy.nobody)
    # Recorded only once there are cells to retry: a sweep where nothing happens keeps its record.
    _accept_present_code(bound_sweep)
    if queued:
        requeue(context.database, target.id, bound_sweep.bound)
        sweeps.resume(context.database, target.id, by=context.by, limits=bound_sweep.limits)
    context.report(f"{target}: {cells:,} cells again")
    return _published(context, target) if queued else _run_sweep(bound_sweep)


def _check_released(database: Database, target: Target) -> None:
    if activity.count_claimed(database, target.id):
        raise ConflictError(
            f"workers still run {target}; wait for its end (`wtb watch {target.id}`), or pause it first"
        )


def _retry_execution(bound_sweep: _BoundSweep, target: ExecutionTarget, failed_only: bool, provider: bool) -> Continued:
    context, database, sweep = bound_sweep.context, bound_sweep.database, bound_sweep.sweep
    elsewhere = leases.runs_now(database, sweep)
    if not elsewhere:
        reclaim_sweep(database, sweep.id)
    new_id = retry_execution(database, target.row, failed_only=failed_only, kind="provider" if provider else None)
    _accept_present_code(bound_sweep)
    context.report(f"execution {new_id} continues with the cells of {target.id}")
    new = ExecutionTarget(queries.find_execution(database, new_id))
    if not elsewhere:
        return _run_execution(bound_sweep, new)
    if sweep.queued:
        sweeps.resume(database, sweep.id, by=context.by, limits=bound_sweep.limits)
    return _leave_to_others(bound_sweep, new)


def _sweep_of(database: Database, target: Target) -> SweepRow:
    return queries.find_sweep(database, target.row.sweep_id) if target.kind == "execution" else target.row


def _bind_sweep(
    context: Context, target: Target, limits: Limits | None, how: Code | ShowProgress | None
) -> _BoundSweep:
    """Bind the code of a sweep, and check its new limits, before anything is written."""
    sweep = _sweep_of(context.database, target)
    check_runs_elsewhere(context, sweep)
    code = how if isinstance(how, Code) else Code(rebind(context, sweep), partial(follow, progress=how))
    bound = code.bound
    if limits:
        check_nodes(bound.workflow, limits.get("nodes") or (), Located(where="limits"))
        check_limits(context.database, sweep.id, limits)
    return _BoundSweep(context, sweep, bound, limits or Limits(), code.run)


def _continued(
    context: Context, target: Target, run_by: RunBy, ended: Ended | None = None, problem: str | None = None
) -> Continued:
    """Return the result: how the sweep or execution stands now, and who runs it."""
    database = context.database
    sweep = queries.find_sweep(database, target.id if target.kind == "sweep" else target.row.sweep_id)
    workers = len(crew(database)) if run_by is RunBy.workers else 0
    return Continued(
        target.kind, target.id, sweep.id, sweep.name, sweep.cells, sweep.status, run_by, ended, workers, problem
    )


def _run_sweep(bound_sweep: _BoundSweep) -> Continued:
    ran = _run(bound_sweep)
    return _continued(bound_sweep.context, SweepTarget(ran.sweep), RunBy.here, ran.ended)


def _run_execution(bound_sweep: _BoundSweep, target: Target) -> Continued:
    """Run one execution of a sweep, with what it forks into."""
    return _continued(bound_sweep.context, target, RunBy.here, _run(bound_sweep, target.id).ended)


def _run(bound_sweep: _BoundSweep, only: str | None = None) -> Ran:
    """Run what is pending of a sweep, or only one execution of it."""
    context, bound = bound_sweep.context, bound_sweep.bound
    begin_deferred(context.database, bound_sweep.sweep.id)
    if context.local is not None:
        context.local.start(bound_sweep.sweep.id, execution=only, limits=bound_sweep.limits)
        return Ran(queries.find_sweep(context.database, bound_sweep.sweep.id), Ended("running"))
    run = SweepRun(
        context.database, bound_sweep.sweep, bound, workspaces=context.workspaces, limits=bound_sweep.limits, only=only
    )
    return bound_sweep.run(context, run, bound.spec.run.grace)


def _accept(bound_sweep: _BoundSweep, allow: bool) -> None:
    """Record the present code and tools of servers. Raises ConflictError if they have changed, unless `allow`."""
    # Evaluators are recorded last: a refusal of code or tools leaves their record as it was.
    evaluators = accept_evaluators(bound_sweep.context, bound_sweep.sweep, bound_sweep.bound, allow=allow)
    accept_code(bound_sweep.database, bound_sweep.sweep, bound_sweep.bound, allow=allow)
    accept_tools(bound_sweep.database, bound_sweep.sweep, bound_sweep.bound, allow=allow)
    _record_evaluators(bound_sweep, evaluators)


def _accept_present_code(bound_sweep: _BoundSweep) -> None:
    """Record the present code, and report what has changed."""
    for node, variant in accept_code(bound_sweep.database, bound_sweep.sweep, bound_sweep.bound, allow=True):
        bound_sweep.context.report(
            f"the code of {node}={variant} has changed; the matrix has a warning if results are mixed"
        )
    if _record_evaluators(
        bound_sweep, accept_evaluators(bound_sweep.context, bound_sweep.sweep, bound_sweep.bound, allow=True)
    ):
        bound_sweep.context.report(
            "evaluators have changed since other cells were scored; `wtb score` scores all cells by the new ones"
        )
    for tool in accept_tools(bound_sweep.database, bound_sweep.sweep, bound_sweep.bound, allow=True):
        bound_sweep.context.report(f"a server has changed {tool}; the matrix has a warning if nodes called it before")


def _record_evaluators(bound_sweep: _BoundSweep, evaluators: RecordedCode | None) -> bool:
    """Record the present evaluators if they have changed. Returns whether they have."""
    if evaluators is not None:
        leases.record_evaluators(bound_sweep.database, bound_sweep.sweep.id, stored_evaluators(evaluators))
    return evaluators is not None


def requeue(database: Database, sweep_id: str, bound: Bound) -> None:
    """Send what a retry made to the queues of the next nodes."""
    workflow = bound.workflow
    sweeps.requeue(
        database, sweep_id, lambda nodes: graph.queue_of(workflow, workflow.entries if nodes is None else nodes)
    )


def _published(context: Context, target: Target) -> Continued:
    """Publish pending executions to the broker, and return the result."""
    problem = context.publisher.publish_pending(context.database)
    return _continued(context, target, RunBy.workers, problem=problem)


def _leave_to_others(bound_sweep: _BoundSweep, target: Target) -> Continued:
    if not bound_sweep.sweep.queued:
        if bound_sweep.context.local is not None:  # its run may be about to end
            bound_sweep.context.local.start(bound_sweep.sweep.id)
        return _continued(bound_sweep.context, target, RunBy.another_process)
    requeue(bound_sweep.database, bound_sweep.sweep.id, bound_sweep.bound)
    return _published(bound_sweep.context, target)


def _let_workers_see(database: Database, sweep_id: str) -> int:
    """Wait until every worker has seen that a sweep is paused, so that none continues under its old limits.

    Returns:
        The number of executions that workers still have.

    Raises:
        ConflictError: If workers do not release them in time.
    """
    ends = time.monotonic() + LET_GO_S
    while (claimed := activity.count_claimed(database, sweep_id)) or sweeps.stands_still_for(
        database, sweep_id
    ) < SEEN_S:
        if time.monotonic() > ends:
            if claimed:
                raise ConflictError(
                    f"sweep {sweep_id}: {claimed:,} executions are still being ended by workers; try again in a moment"
                )
            break
        time.sleep(0.1)
    return claimed


def _check_not_cancelled(row: SweepRow) -> None:
    if row.status == "cancelled":
        command = "submit" if row.queued else "run"
        raise ConflictError(f"sweep {row.id} is cancelled; start a new one with `wtb {command}`")
