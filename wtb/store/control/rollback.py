"""Rollback of an execution to a checkpoint, in two transactions with the reverses of its tools in between.

`begin` takes the execution from its runner, pauses it at its present head, reclaims its cells and cancels the
executions that had forked from the part that is left; `end` moves the head. An interruption in between leaves a paused
execution whose rollback must be finished before it can continue. If no tools were called, `begin` does both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa
from msgspec import structs

from wtb.core.documents.execution_events import Rollback as RollbackData
from wtb.core.documents.questions import CompensationDocument
from wtb.core.errors import ConflictError, StoreError
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.status import CELL, OPEN_EXECUTIONS, sources
from wtb.store.bulk import fetch_record, fetch_records, insert_rows, parts, update_rows
from wtb.store.cell_status import CELL_KEY, of_place
from wtb.store.control.approvals import withdraw
from wtb.store.control.edits import edited_head, locked
from wtb.store.control.pending_rollbacks import (
    CallOfTool,
    Calls,
    Way,
    calls_between,
    command,
    find_resumable,
    no_calls,
    start,
    superseded_by,
)
from wtb.store.control.sweeps import cancel_executions
from wtb.store.database import Database
from wtb.store.log import add_execution_event, keep_events
from wtb.store.read.lineage import descendants, is_edited, line, marks, rollbacks_in
from wtb.store.records import Mark
from wtb.store.runs.leases import releasing, stop_nodes, try_move
from wtb.store.tables.control import NewRollback, RollbackRow
from wtb.store.tables.executions import AskedRow, ExecutionRow, UnfinishedRollback
from wtb.store.tables.schema import (
    cells,
    combinations,
    executions,
    node_runs,
    now,
    rollbacks,
    scores,
    sweeps,
    workflows,
)

if TYPE_CHECKING:
    from wtb.core.documents.workflows import WorkflowDocument

SUPERSEDED = "superseded by a rollback"


@frozen
class Leaving:
    """The part of an execution that a rollback leaves, once the execution is paused.

    Attributes:
        head: The new head, if it was moved already.
        nodes: The nodes that are rolled back, the last first.
        superseded: Executions that are superseded.
        undo: Tool calls to reverse, the newest first.
        redo: Tool calls that an earlier rollback reversed, to be made again, the oldest first.
        shared: Tool calls that other executions depend on, too.
    """

    execution: ExecutionRow
    status: str
    from_id: str
    to_id: str
    nodes: list[str]
    superseded: list[str] = field(default_factory=list)
    undo: Sequence[CallOfTool] = ()
    redo: Sequence[CallOfTool] = ()
    shared: Sequence[CallOfTool] = ()
    head: str | None = None


@frozen
class Ending:
    """The end of a rollback.

    Attributes:
        by: The person who rolls back.
        reason: The reason of that person.
        status_reason: The reason for the pause of the execution afterwards.
        words: A description of the target for people.
        queue: The queue that its next node requires.
        redoes: The rollback that this one undoes.
    """

    by: str
    reason: str | None
    status_reason: str
    words: str
    queue: str | None
    redoes: str | None = None


def begin(database: Database, execution_id: str, to_id: str, ending: Ending) -> Leaving:
    """Take an execution from its runner, and collect the part that a rollback to a checkpoint leaves.

    A rollback that was interrupted is continued.

    Raises:
        ConflictError: If another process is at a rollback of it, a rollback that leads elsewhere is not finished, its
            cells belong to another execution by now, or its sweep is cancelled.
    """
    with database.write(long=True) as connection:
        way = _way_back(connection, execution_id, to_id, ending)
        rollback = start(
            connection, to_id=to_id, redoes=ending.redoes, status_before=way.status_before, superseded=way.superseded
        )
        leaving = _pause(connection, way, rollback, ending)
        # Calls have to be reversed first, outside of any transaction; `end` moves the head after them.
        if leaving.execution.asked is not None:
            return leaving
        return replace(leaving, head=_move_head(connection, leaving, ending, no_calls()))


@frozen
class _WayBack:
    """The way from the head of an execution back to a checkpoint. All that it touches is locked.

    Attributes:
        row: The execution.
        from_id: Its head.
        to_id: The checkpoint.
        status_before: Its status before this rollback began, possibly in an earlier try.
        sweep: Its sweep.
        undone: The checkpoints that are left, the newest last.
        forked_off: The executions that had forked from what is left.
        superseded: Their ids, and those of an earlier try.
        calls: The calls of tools on the way.
    """

    row: ExecutionRow
    from_id: str
    to_id: str
    status_before: str
    sweep: _Sweep
    undone: Sequence[Mark]
    forked_off: Sequence[ExecutionRow]
    superseded: list[str]
    calls: Calls

    @property
    def nodes(self) -> list[str]:
        """The nodes whose writes are left, the last one first."""
        return [writer[0] for mark in reversed(self.undone) for writer in reversed(mark.writers)]


def _way_back(connection: sa.Connection, execution_id: str, to_id: str, ending: Ending) -> _WayBack:
    """Lock an execution and its descendants, and find the way back to a checkpoint. Raises as `begin` does."""
    row = locked(connection, execution_id)
    from_id = row.head_id
    if from_id is None:
        raise ConflictError(f"execution {execution_id} has not started, so it has no checkpoint to roll back to")
    interrupted = find_resumable(connection, row, to_id, ending.redoes)
    descendant_rows = _still(connection, execution_id)
    sweep = _sweep(connection, row)
    past = rollbacks_in(connection, row.sweep_id)
    superseded_ids = {id for rollback in past for id in rollback.superseded}
    _check(connection, row, descendant_rows, superseded_ids)
    all_marks = marks(connection, [from_id, to_id])
    current_line, target_line = line(all_marks, from_id), line(all_marks, to_id)
    if not current_line or not target_line:
        raise StoreError(f"checkpoint {to_id} was removed by `wtb admin gc`, with its line")
    on_target = {mark.id for mark in target_line}
    undone = [mark for mark in current_line if mark.id not in on_target]
    forked_off = [child for child in descendant_rows if child.combinations and child.id not in superseded_ids]
    forked_off += _forked_by_people(connection, descendant_rows, undone, forked_off)
    superseded = superseded_by(interrupted, [child.id for child in forked_off])
    rolled = {rollback.head_id for rollback in past}  # what ran before a rollback was left by that one
    left_before = {mark.parent_id for mark in current_line if mark.id in rolled and mark.parent_id is not None}
    lines = Way(current_line, target_line, descendant_rows, superseded_ids, superseded, left_before)
    calls = calls_between(connection, row, sweep.graph, lines)
    status_before = row.status if interrupted is None else interrupted["was"]
    return _WayBack(row, from_id, to_id, status_before, sweep, undone, forked_off, superseded, calls)


def _pause(connection: sa.Connection, way: _WayBack, rollback: UnfinishedRollback, ending: Ending) -> Leaving:
    """Pause an execution at its head, reclaim its cells, and cancel the executions that forked from the part it
    leaves.
    """
    row, by = way.row, ending.by
    why = f"by {by}" + (f": {ending.reason}" if ending.reason else "")
    phase = "having its rollback undone" if ending.redoes else f"being rolled back to {way.to_id}"
    request: AskedRow | None = None
    if any(way.calls):
        request = {"to": phase, "by": by, "reason": why, "rollback": rollback}
    keep_events(connection, executions, [row.id])
    status_reason = f"{phase} {why}; until that is done: {command(row.id, rollback)}"
    paused = releasing().values(status="paused", reason=status_reason, asked=request, failure=None, finished_at=None)
    connection.execute(paused.where(executions.c.id == row.id))
    stop_nodes(connection, [row.id])
    withdraw(connection, [row.id])
    _cancel(connection, row, [child.id for child in way.forked_off if child.status in OPEN_EXECUTIONS])
    cell_count = _take_cells(connection, row, edited=is_edited(connection, way.to_id, row.edited))
    _reopen(connection, row, way.sweep, ending)
    is_redo = ending.redoes is not None
    event_data = {"by": by, "to": way.to_id, "status": row.status, "cells": cell_count, "redo": is_redo}
    add_execution_event(connection, row, "rollback.begun", **event_data)
    # Every release changes the token, so `end` notices if anybody had the execution since.
    paused_row = structs.replace(row, token=row.token + 1, asked=request)
    return Leaving(paused_row, way.status_before, way.from_id, way.to_id, way.nodes, way.superseded, *way.calls)


def end(database: Database, leaving: Leaving, ending: Ending, outcomes: CompensationDocument) -> str:
    """Move the head to a new checkpoint below the target. Returns its id. `outcomes` has the results of reversing
    calls.

    Raises:
        ConflictError: If another process moved it first.
    """
    execution = leaving.execution
    with database.write() as connection:
        row = locked(connection, execution.id)
        if row.token != execution.token or row.status != "paused" or row.head_id != leaving.from_id:
            raise ConflictError(
                f"execution {row.id} is {row.status}: another process continued it meanwhile, so its head was not "
                f"moved; if you still want to, roll it back again"
            )
        return _move_head(connection, leaving, ending, outcomes)


def _move_head(connection: sa.Connection, leaving: Leaving, ending: Ending, outcomes: CompensationDocument) -> str:
    """Move an execution to a new head at the checkpoint, and record the rollback or its undoing. Returns the head."""
    row, by, reason = leaving.execution, ending.by, ending.reason
    head = edited_head(connection, row, {}, parent_id=leaving.to_id)
    at_head = executions.update().values(passed_id=head, reason=ending.status_reason, queue=ending.queue)
    connection.execute(at_head.values(kills=0, losses=0, asked=None).where(executions.c.id == row.id))
    details: RollbackData = {
        "from": leaving.from_id,
        "to": leaving.to_id,
        "head": head,
        "nodes": leaving.nodes,
        "words": ending.words,
        "by": by,
        "reason": reason,
        "undone": outcomes["undone"],
        "redone": outcomes["redone"],
        "irreversible": outcomes["irreversible"],
        "failed": outcomes["failed"],
        "shared": outcomes["shared"],
    }
    if ending.redoes is None:
        insert_rows(connection, rollbacks, [_new_rollback(leaving, head, by, reason)])
        add_execution_event(connection, row, "execution.rolled_back", **details, superseded=leaving.superseded)
    else:
        connection.execute(rollbacks.update().where(rollbacks.c.id == ending.redoes).values(redone_at=now()))
        add_execution_event(connection, row, "execution.redone", **details)
    return head


def _new_rollback(leaving: Leaving, head: str, by: str, reason: str | None) -> NewRollback:
    return {
        "id": new_id(),
        "sweep_id": leaving.execution.sweep_id,
        "execution_id": leaving.execution.id,
        "from_id": leaving.from_id,
        "to_id": leaving.to_id,
        "head_id": head,
        "status": leaving.status,
        "nodes": leaving.nodes,
        "superseded": leaving.superseded,
        "by": by,
        "reason": reason,
    }


@frozen(slots=True)
class _Sweep:
    """The sweep of an execution that is rolled back."""

    id: str
    name: str
    status: str
    queued: bool
    graph: WorkflowDocument


def _sweep(connection: sa.Connection, execution: ExecutionRow) -> _Sweep:
    """Lock the sweep against its end and its cancellation. All executions are locked before it."""
    query = sa.select(sweeps.c.id, sweeps.c.name, sweeps.c.status, sweeps.c.queued, workflows.c.graph)
    query = query.join(workflows, workflows.c.id == sweeps.c.workflow_id).where(sweeps.c.id == execution.sweep_id)
    (sweep,) = fetch_records(connection, _Sweep, query.with_for_update(of=sweeps, key_share=True))
    if sweep.status == "cancelled":
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) is cancelled, so nothing of it can be rolled back; submit it again"
        )
    return sweep


def _still(connection: sa.Connection, execution_id: str) -> list[ExecutionRow]:
    """Return the locked descendants of an execution. An execution may fork before its lock is taken, so the search
    repeats.
    """
    locked_ids: set[str] = set()
    while True:
        rows = descendants(connection, execution_id)
        new = [row.id for row in rows if row.status in OPEN_EXECUTIONS and row.id not in locked_ids]
        if not new:
            return rows
        query = sa.select(executions.c.id).where(executions.c.id.in_(new)).order_by(executions.c.id)
        locked_ids.update(connection.scalars(query.with_for_update()))


def _check(
    connection: sa.Connection, row: ExecutionRow, descendant_rows: Sequence[ExecutionRow], superseded_ids: set[str]
) -> None:
    """Check that the cells still belong to this execution. Raises ConflictError."""
    if row.id in superseded_ids:
        raise ConflictError(
            f"execution {row.id} was superseded by a rollback of one that it came from: roll that one back "
            f"(`wtb tree {row.id}` shows it), or continue beside it with `wtb fork {row.id}`"
        )
    mine = set(row.combinations)
    for child in descendant_rows:
        if child.id not in superseded_ids and not mine.issuperset(child.combinations):
            raise _shared(row, child.id)
    if row.status in OPEN_EXECUTIONS or not mine:
        return  # whoever is open has its cells; they name an ancestor until there is an outcome
    family = {row.id, *(child.id for child in descendant_rows)}
    if row.status == "forked":
        holders = {id for id, its in _open_beside(connection, row) if not mine.isdisjoint(its)}
    else:
        holders = _holders(connection, row)
    for other in sorted(holders - family):
        raise _shared(row, other)


def _shared(row: ExecutionRow, other: str) -> ConflictError:
    return ConflictError(
        f"execution {row.id}: execution {other} has its cells by now, and others with them: roll that one back, or "
        f"go on beside this one with `wtb fork {row.id}`"
    )


def _open_beside(connection: sa.Connection, row: ExecutionRow) -> list[tuple[str, list[int]]]:
    """Return open executions of the same case and repeat with their combinations, because a retry may join forked
    cells.
    """
    query = sa.select(executions.c.id, executions.c.combinations).where(
        executions.c.status.in_(OPEN_EXECUTIONS), *of_place(executions, row)
    )
    return [(id, mine) for id, mine in connection.execute(query)]


def _holders(connection: sa.Connection, row: ExecutionRow) -> set[str]:
    """Return the executions that hold the cells of an execution now."""
    mine = set(row.combinations)
    query = sa.select(cells.c.combination, cells.c.execution_id).where(*of_place(cells, row))
    return {holder for combination, holder in connection.execute(query) if combination in mine}


def _forked_by_people(
    connection: sa.Connection,
    descendant_rows: Sequence[ExecutionRow],
    undone: Sequence[Mark],
    forked_off: Sequence[ExecutionRow],
) -> list[ExecutionRow]:
    """Return the open executions that people forked from the left part: from its line, or from forks of it."""
    manual_forks = [
        fork for fork in descendant_rows if fork.origin == "manual" and fork.status in OPEN_EXECUTIONS and fork.head_id
    ]
    marks_by_id = marks(connection, (fork.head_id for fork in manual_forks))
    ids, forked_ids = {mark.id for mark in undone}, {fork.id for fork in forked_off}
    return [
        fork
        for fork in manual_forks
        if any(mark.id in ids or mark.execution_id in forked_ids for mark in line(marks_by_id, fork.head_id))
    ]


def _cancel(connection: sa.Connection, execution: ExecutionRow, ids: list[str]) -> None:
    if ids:
        cancel_executions(connection, ids, SUPERSEDED)
    for id in ids:
        add_execution_event(
            connection, structs.replace(execution, id=id), "execution.superseded", by_rollback_of=execution.id
        )


def _take_cells(connection: sa.Connection, row: ExecutionRow, *, edited: bool) -> int:
    """Make the cells of an execution pending again, and delete their outcomes and scores. Returns how many.

    Args:
        connection: In a transaction that writes.
        row: The execution.
        edited: Whether a person changed the state on the line that it goes back to.
    """
    if not row.combinations:
        return 0
    shared = {key: getattr(row, key) for key in CELL_KEY[:3]}
    shared |= {"status": "pending", "execution_id": row.id, "failure": None, "finished_at": None}
    shared["edited"] = edited
    mine = [{**shared, "combination": combination} for combination in row.combinations]
    update_rows(connection, cells, mine, CELL_KEY, only={"status": (*sources(CELL, "pending"), "pending")})
    conditions = of_place(scores, row)
    # Most executions at a root stand for all combinations, for which the condition on the case is enough.
    if len(mine) == _count(connection, row):
        connection.execute(scores.delete().where(*conditions))
    else:
        for part in parts(row.combinations):
            connection.execute(scores.delete().where(*conditions, scores.c.combination.in_(part)))
    return len(mine)


def _count(connection: sa.Connection, row: ExecutionRow) -> int:
    return connection.scalar(sa.select(sa.func.count()).where(combinations.c.sweep_id == row.sweep_id)) or 0


def _reopen(connection: sa.Connection, row: ExecutionRow, sweep: _Sweep, ending: Ending) -> None:
    """Reopen an ended sweep whose cells run again: workers continue it; one without workers is paused until resumed."""
    if sweep.status not in ("completed", "failed") or not row.combinations:
        return
    how = "rolled back" if ending.redoes is None else "taken forward again"
    status_reason = f"execution {row.id} was {how}"
    try_move(
        connection, row.sweep_id, "running", reason=f"open again, so that it can go on: {status_reason}", by=ending.by
    )
    if not sweep.queued:
        try_move(connection, row.sweep_id, "paused", reason=f"{status_reason}: wtb resume {row.id}", by=ending.by)


def last_rollback(database: Database, row: ExecutionRow) -> RollbackRow:
    """Return the last rollback of an execution that was not undone. Raises ConflictError if it cannot be undone."""
    of = (rollbacks.c.execution_id == row.id, rollbacks.c.redone_at.is_(None))
    query = sa.select(rollbacks).where(*of).order_by(rollbacks.c.at.desc(), rollbacks.c.id.desc()).limit(1)
    with database.read() as connection:
        last = fetch_record(connection, RollbackRow, query)
        if last is None:
            raise ConflictError(f"execution {row.id} ({row.status}) has no rollback to undo")
        since = _since(connection, row, last)
    if since is not None or row.status != "paused":
        why = since or f"it is {row.status}, not paused"
        raise ConflictError(
            f"execution {row.id}: the rollback to {last.to_id} can no longer be undone: {why}; go back to "
            f"the line that it left with: wtb rollback {row.id} --to {last.from_id}"
        )
    return last


def _since(connection: sa.Connection, row: ExecutionRow, last: RollbackRow) -> str | None:
    """Return a description of what happened since a rollback; None if nothing did."""
    way = line(marks(connection, [row.head_id]), row.head_id)
    ids = [mark.id for mark in way]
    if last.head_id not in ids:
        return "the execution went on since"
    since = way[ids.index(last.head_id) :]
    ran = sa.select(node_runs.c.id).where(node_runs.c.checkpoint_id.in_([mark.id for mark in since])).limit(1)
    if any(mark.writers for mark in since) or connection.execute(ran).first() is not None:
        return "nodes ran since"
    return None
