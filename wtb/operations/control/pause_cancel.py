"""Pausing and cancelling of sweeps and executions, and stopping of combinations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wtb.authoring.breakpoints import parse_breakpoints
from wtb.core.arguments import Reason, checked
from wtb.core.errors import ConflictError, InputError, meant_or_known
from wtb.core.frozen import frozen
from wtb.core.status import FINAL_CELLS, OPEN_EXECUTIONS
from wtb.core.tree.combinations import in_words
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_payer
from wtb.operations.results.pools import check_no_pool
from wtb.planning.prepare import matching
from wtb.store.control import executions, sweeps
from wtb.store.control.forks import RETRIED
from wtb.store.control.forks import retry as retry_cells
from wtb.store.control.stopped import Stop, stop_combinations, stopped_of
from wtb.store.database import Database
from wtb.store.process_identity import is_not_dead
from wtb.store.read import queries
from wtb.store.read.details import ExecutionTarget, TargetKind, find_target
from wtb.store.runs import leases
from wtb.store.runs.leases import runs_now
from wtb.store.runs.publishing import published_ids
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

PATIENCE_S = 10.0  # for an execution to pause before its next step
LOOK_S = 0.05


@frozen
class Running:
    """An execution that is asked to pause and is still in a node.

    Attributes:
        execution: Its id.
        nodes: Its running nodes, each with seconds.
    """

    execution: str
    nodes: tuple[tuple[str, float], ...]


@frozen
class Paused:
    """The result of `pause`.

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
        now: Of an execution: stop its running node, which runs again on resume.

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
    runs = executions.node_runs_under_way(database, execution_id)
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
    # A runner that died keeps its executions `running` until their leases expire; a pause need not wait for that.
    lost = _held_by_the_dead(database, [queries.find_execution(database, execution_id)])
    executions.pause(database, execution_id, reason=words, by=by, at_once=at_once, lost=lost.get(execution_id))
    ends = time.monotonic() + patience_s
    while True:
        line = executions.line_of(database, execution_id)
        lost = _held_by_the_dead(database, line)
        for row in line:
            waits = row.asked is not None and row.status == "waiting"
            if row.status == "pending" or waits or row.id in lost:
                try:  # its runner released it, or died
                    executions.pause(database, row.id, reason=words, by=by, lost=lost.get(row.id))
                # Another process changed its status in between; the next look shows how.
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
    """The result of `cancel`, or its preview.

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
            raise executions.impossible(execution, "cancelled")
        return Cancelled(
            target.kind, target.id, str(target), len(execution.combinations), is_fork=execution.choices is not None
        )
    row = target.row
    if row.status == "completed":
        raise ConflictError(f"{target} is completed, so it cannot be cancelled; delete it with `wtb delete`")
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
    # Read before the cancellation, which removes the ids of published tasks.
    tasks = published_ids(context.database, preview.id) if is_sweep else []
    end = sweeps.cancel if is_sweep else executions.cancel
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
        raise ConflictError(f"sweep {sweep.id} is cancelled; start a new one")
    statuses = ("failed",) if failed_only else RETRIED
    # Nothing to retry has two reasons, and the error distinguishes an execution that nobody runs.
    if not retry_cells(database, sweep.id, statuses, execution_id=row.id, kind=kind):
        abandoned = row.status in ("pending", "running") and not runs_now(database, sweep)
        raise executions.impossible(row, "retried: none of its cells has failed", is_unclaimed=abandoned)
    return executions.newest_retry(database, row.id)


@frozen
class Breakpoints:
    """The breakpoints of a sweep.

    Attributes:
        sweep: Its id.
        breakpoints: Each as it is written: `[before|after] NODE [if CONDITION]`.
    """

    sweep: str
    breakpoints: tuple[str, ...]


@checked
def list_breakpoints(context: Context, ref: str) -> Breakpoints:
    """List breakpoints, where executions pause.

    Args:
        context: Where.
        ref: A sweep or an execution of it: its id, the beginning of it, or a sweep's name.

    Returns:
        The breakpoints that it has.

    Raises:
        InputError: If there is no such sweep or execution.
    """
    sweep = _sweep(context, ref)
    return Breakpoints(sweep.id, tuple(sweep.breakpoints or ()))


@checked
@audited
def set_breakpoints(
    context: Context, ref: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), clear: bool = False
) -> Breakpoints:
    """Change breakpoints; who runs the sweep sees that within a second.

    Args:
        context: Where, and who changes them.
        ref: A sweep or an execution of it: its id, the beginning of it, or a sweep's name.
        add: `[before|after] NODE [if CONDITION]`.
        remove: As they are listed.
        clear: Remove all that there were.

    Returns:
        The breakpoints that it has then.

    Raises:
        InputError: For a breakpoint that is not there, or that its workflow cannot have.
        AccessDenied: If whoever removes one acts by a token with a budget, with which the sweep was not submitted.
    """
    database, sweep = context.database, _sweep(context, ref)
    graph = queries.workflow_graph(database, sweep.workflow_id)
    nodes = [node["name"] for node in graph["nodes"]]
    before = list(sweep.breakpoints or ())
    removed = [str(place) for place in parse_breakpoints(remove, nodes)]
    for text in removed:
        if text not in before:
            raise InputError(f"there is no breakpoint {text!r}{meant_or_known(text, before) if before else ''}")
    remaining = [] if clear else [text for text in before if text not in removed]
    texts = [str(place) for place in parse_breakpoints([*remaining, *add], nodes, list(graph["state"]))]
    if not set(before) <= set(texts):  # executions that stop there now continue, and spend
        check_payer(context, sweep)
    if texts != before:
        if sweep.status == "cancelled":
            raise InputError(f"sweep {sweep.id} is cancelled: none of its cells runs again")
        executions.set_breakpoints(database, sweep.id, texts, by=context.by)
    return Breakpoints(sweep.id, tuple(texts))


def _sweep(context: Context, ref: str) -> SweepRow:
    """Return the named sweep, or that of a named execution."""
    target = find_target(context.database, ref)
    return queries.find_sweep(context.database, target.row.sweep_id) if target.kind == "execution" else target.row


Choices = Mapping[str, str]


@frozen
class StoppedCombinations:
    """The result of `stop_combination`.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        combinations: The combinations that were stopped.
        already: How many that match had been stopped before.
        cells: How many cells were skipped.
    """

    sweep: str
    name: str
    combinations: tuple[Choices, ...]
    already: int
    cells: int


@checked
@audited
def stop_combination(
    context: Context, ref: str, combination: Mapping[str, str], *, reason: Reason | None = None
) -> StoppedCombinations:
    """Skip the open cells of the combinations that choose so, wherever the sweep runs; the others go on.

    What they share with others goes on for those; a node run that no other cell needs is stopped. `extend` lets them
    run again.

    Args:
        context: Where, and who stops them.
        ref: The sweep: its id, the beginning of it, or its name.
        combination: Node -> variant; combinations that choose all of these are meant.
        reason: A reason for people.

    Returns:
        The combinations, and how many cells were skipped.

    Raises:
        InputError: If there is no such sweep or combination.
        ConflictError: If the sweep has ended, it is the baseline that others are compared with, or none would be left.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    if sweep.kind == "single":
        raise InputError(f"{sweep.id} is a single execution; expected a sweep", argument="ref")
    check_no_pool(database, sweep, "stopped in part")
    every = queries.choices(database, sweep.id)
    numbers = matching(every, combination)
    before = stopped_of(database, sweep.id)
    new = [number for number in numbers if number not in before]
    _check_left(sweep, every, new, len(every) - len(before))
    cells = 0
    if new:
        cells = stop_combinations(database, sweep, Stop(new, context.by, context.because(reason)))
    return StoppedCombinations(
        sweep.id, sweep.name, tuple(every[number] for number in new), len(numbers) - len(new), cells
    )


def _check_left(sweep: SweepRow, every: list[dict[str, str]], new: list[int], running: int) -> None:
    """Reject to stop the baseline, or the last combinations."""
    baseline = sweep.spec.get("baseline_row")
    if any(every[number] == baseline for number in new):
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}): {in_words(baseline or {})} is the baseline that others are compared "
            "with, so it cannot be stopped"
        )
    if new and len(new) == running:
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}): no other combination would be left; `wtb cancel {sweep.id}` ends it"
        )
