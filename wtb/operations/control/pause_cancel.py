"""Pausing and cancelling sweeps and executions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Reason
from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, InputError
from wtb.core.status import FINAL_CELLS, OPEN_EXECUTIONS
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.store.control import executions as store
from wtb.store.control import sweeps
from wtb.store.database import Database
from wtb.store.growth.retry import AGAIN
from wtb.store.growth.retry import retry as retry_cells
from wtb.store.process_identity import is_not_dead
from wtb.store.read import queries
from wtb.store.read.references import ExecutionTarget, TargetKind, find_target
from wtb.store.runs import leases
from wtb.store.runs.leases import runs_now
from wtb.store.runs.publishing import published_ids
from wtb.store.tables.executions import ExecutionRow

PATIENCE_S = 10.0  # for an execution to pause before its next step
LOOK_S = 0.05


@frozen
class Running:
    """An execution that has been asked to pause and is still in a node.

    Attributes:
        execution: Its id.
        nodes: What it is in: node, and for how many seconds.
    """

    execution: str
    nodes: tuple[tuple[str, float], ...]


@frozen
class Paused:
    """What `pause` did.

    Attributes:
        kind: Of what was to be paused: `sweep` or `execution`.
        id: Its id.
        name: What messages call it.
        already: Why it had been paused before; None if it was not.
        paused: Ids of executions that are paused now, of an execution and what it forked into; empty for a sweep.
        running: Those that pause as soon as their nodes have ended.
        status: How it stands now. Of an execution that was quicker it is the status in which it ended.
    """

    kind: TargetKind
    id: str
    name: str
    status: str
    already: str | None = None
    paused: tuple[str, ...] = ()
    running: tuple[Running, ...] = ()


@checked
@audited
def pause(context: Context, ref: str, reason: Reason | None = None, *, now: bool = False) -> Paused:
    """Pause a sweep or an execution until it is resumed. Of an execution it returns when that has paused.

    Args:
        context: Where, and who pauses it.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
        reason: A reason for people.
        now: Of an execution: end the node that it is in, which runs again on resume.

    Returns:
        What is paused now, and what will be.

    Raises:
        InputError: If there is no such sweep or execution, or `now` is given for a sweep.
        ConflictError: If it cannot be paused, as it has ended or has not begun.
    """
    target = find_target(context.database, ref)
    if target.kind == "execution":
        return _pause_execution(context, target, reason, now)
    row = target.row
    if now:
        raise InputError(f"only the nodes of one execution can be ended at once, and {ref!r} is a sweep; cancel it")
    if row.status == "paused":
        return Paused(target.kind, target.id, str(target), "paused", already=row.reason)
    if row.status not in ("pending", "running"):
        raise ConflictError(f"{target} is {row.status}: there is nothing to pause")
    if row.status == "pending" and not row.queued:
        raise ConflictError(f"{target} has not begun: there is nothing to pause")
    sweeps.pause(context.database, target.id, reason=context.because(reason), by=context.by)
    return Paused(target.kind, target.id, str(target), "paused")


def _pause_execution(context: Context, target: ExecutionTarget, reason: str | None, now: bool) -> Paused:
    if target.row.status == "paused":
        return Paused(target.kind, target.id, str(target), "paused", already=target.row.reason)
    line = pause_and_wait(context, target.id, reason=reason, at_once=now)
    return Paused(
        target.kind,
        target.id,
        str(target),
        line[0].status,
        paused=tuple(row.id for row in line if row.status == "paused"),
        running=tuple(_running(context.database, row.id) for row in line if row.status == "running"),
    )


def _running(database: Database, execution_id: str) -> Running:
    runs = store.node_runs_under_way(database, execution_id)
    return Running(execution_id, tuple((run.node, run.for_s) for run in runs))


def pause_and_wait(
    context: Context,
    execution_id: str,
    *,
    reason: str | None = None,
    at_once: bool = False,
    patience_s: float = PATIENCE_S,
) -> list[ExecutionRow]:
    """Pause an execution, and wait until it is: its process ends the node first.

    Args:
        context: Where it is, and who pauses it.
        execution_id: Its id.
        reason: A reason for people.
        at_once: Take it from its process, as from one that is dead.
        patience_s: Seconds to wait at most.

    Returns:
        Its row, followed by those of what it forked into meanwhile, which pause too.

    Raises:
        ConflictError: If it cannot be paused.
    """
    database, by, words = context.database, context.by, context.because(reason)
    lost = _held_by_the_dead(database, [queries.find_execution(database, execution_id)])
    store.pause(database, execution_id, reason=words, by=by, at_once=at_once, lost=lost.get(execution_id))
    ends = time.monotonic() + patience_s
    while True:
        line = store.line_of(database, execution_id)
        lost = _held_by_the_dead(database, line)
        for row in line:
            waits = row.asked is not None and row.status == "waiting"
            if row.status == "pending" or waits or row.id in lost:
                try:  # its runner released it, or died
                    store.pause(database, row.id, reason=words, by=by, lost=lost.get(row.id))
                except ConflictError:
                    continue
        if not any(row.status in ("pending", "running") for row in line) or time.monotonic() > ends:
            return line
        time.sleep(LOOK_S)


def _held_by_the_dead(database: Database, rows: Sequence[ExecutionRow]) -> dict[str, str]:
    """Execution -> its runner, for executions whose runners are provably dead."""
    owners = {row.id: row.owner_id for row in rows if row.status == "running" and row.owner_id}
    dead = {id for id, owner in leases.runner_rows(database, set(owners.values())).items() if not is_not_dead(owner)}
    return {execution: owner for execution, owner in owners.items() if owner in dead}


@frozen
class Cancelled:
    """What `cancel` did, or would do.

    Attributes:
        kind: Of what is cancelled: `sweep` or `execution`.
        id: Its id.
        name: What messages call it.
        cells: How many cells have no other outcome any more; of a fork, which owns none, 0.
        is_fork: Whether it is an execution that a person forked.
        already: Why it had been cancelled before; None if it was not.
    """

    kind: TargetKind
    id: str
    name: str
    cells: int
    is_fork: bool = False
    already: str | None = None


@checked
def preview_cancel(context: Context, ref: str) -> Cancelled:
    """Return what `cancel` would end, and end nothing.

    Args:
        context: Where.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.

    Returns:
        The counts that `cancel` would return.

    Raises:
        InputError: If there is no such sweep or execution.
        ConflictError: If it has ended.
    """
    target = find_target(context.database, ref)
    if target.kind == "execution":
        execution = target.row
        if execution.status not in OPEN_EXECUTIONS:
            raise store.impossible(execution, "cancelled")
        return Cancelled(
            target.kind, target.id, str(target), len(execution.combinations), is_fork=execution.choices is not None
        )
    row = target.row
    if row.status == "completed":
        raise ConflictError(f"{target} is completed: there is nothing to cancel (`wtb delete` removes it)")
    counts = queries.cell_counts(context.database, target.id)
    cells = sum(count for status, count in counts.items() if status not in FINAL_CELLS)
    already = row.reason if row.status == "cancelled" else None
    return Cancelled(target.kind, target.id, str(target), cells, already=already)


@checked
@audited
def cancel(context: Context, ref: str, reason: Reason | None = None) -> Cancelled:
    """End a sweep or an execution for good, wherever it runs. Its results so far stay.

    Args:
        context: Where, and who cancels it.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
        reason: A reason for people.

    Returns:
        How many cells were cancelled.

    Raises:
        InputError: If there is no such sweep or execution.
        ConflictError: If it has ended.
    """
    preview = preview_cancel(context, ref)
    if preview.already is not None:
        return preview
    is_sweep = preview.kind == "sweep"
    tasks = published_ids(context.database, preview.id) if is_sweep else []
    end = sweeps.cancel if is_sweep else store.cancel
    cells = end(context.database, preview.id, reason=context.because(reason), by=context.by)
    if tasks:
        context.publisher.revoke(tasks)  # so that their messages are dropped; without, they have no effect either
    return replace(preview, cells=cells)


def retry(database: Database, row: ExecutionRow, *, failed_only: bool = False, kind: str | None = None) -> str:
    """Give the failed cells of an execution a new one.

    Args:
        database: The database that it is in.
        row: Its row.
        failed_only: Leave out cells that were cancelled or set aside.
        kind: Only cells with failures of this kind.

    Returns:
        The id of the new execution.

    Raises:
        ConflictError: If it has no such cells, or if its sweep is cancelled.
    """
    sweep = queries.find_sweep(database, row.sweep_id)
    if sweep.status == "cancelled":
        raise ConflictError(f"sweep {sweep.id} is cancelled for good; start a new one")
    statuses = ("failed",) if failed_only else AGAIN
    if not retry_cells(database, sweep.id, statuses, execution_id=row.id, kind=kind):
        abandoned = row.status in ("pending", "running") and not runs_now(database, sweep)
        raise store.impossible(row, "retried: none of its cells has failed", left=abandoned)
    return store.newest_retry(database, row.id)
