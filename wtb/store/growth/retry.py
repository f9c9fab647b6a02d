"""Trying failed cells again: new executions from the heads at which the old ones ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.store.bulk import equal, fetch_records, insert_rows
from wtb.store.database import Database
from wtb.store.events import add_execution_event
from wtb.store.log import keep_events
from wtb.store.rows.executions import CellsOfExecution
from wtb.store.runs.leases import move_cells, of_cells
from wtb.store.runs.submit import next_id
from wtb.store.tables.executions import NewExecution
from wtb.store.tables.schema import cells, checkpoints, executions, is_visible, node_runs, scores, sweeps
from wtb.store.transactions import clock

AGAIN = ("failed", "cancelled", "set_aside")

# Cells that succeeded although their execution was not at its end. Workers recorded such cells before the database
# rejected them (migration 1040), with the state from before their last node.
_is_cut_short = sa.and_(
    cells.c.status == "succeeded",
    sa.or_(
        sa.cast(checkpoints.c.position["next"], sa.Text) != "[]",
        sa.exists().where(node_runs.c.checkpoint_id == executions.c.head_id, node_runs.c.status == "running"),
    ),
)


@frozen(slots=True)
class _Again:
    """A cell that is tried again, with the execution of its outcome."""

    case_number: int
    repeat: int
    combination: int
    id: str
    head_id: str | None
    queue: str | None
    edited: bool


def count_cut_short(database: Database) -> dict[str, int]:
    """Count the cells that succeeded without their last node, which `retry` repairs.

    Returns:
        The number of such cells by the id of their sweep; sweeps that have none are left out.
    """
    query = (
        sa.select(cells.c.sweep_id, sa.func.count())
        .join(executions, executions.c.id == cells.c.execution_id)
        .join(checkpoints, checkpoints.c.id == executions.c.head_id)
        .join(sweeps, sweeps.c.id == cells.c.sweep_id)
        .where(_is_cut_short, is_visible)
        .group_by(cells.c.sweep_id)
        .order_by(cells.c.sweep_id)
    )
    return dict(database.tuples(query, long=True))


def retry(
    database: Database,
    sweep_id: str,
    statuses: Sequence[str] = AGAIN,
    *,
    execution_id: str | None = None,
    kind: str | None = None,
) -> int:
    """Give failed cells new executions, and cells that succeeded without their last node.

    Cells that ended at the same head share one execution, so a node run that failed for several of them is tried
    once. The old executions stay as history.

    Args:
        database: The database.
        sweep_id: The sweep.
        statuses: The statuses of the cells.
        execution_id: Only the cells of this execution.
        kind: Only the cells with failures of this kind.

    Returns:
        How many cells are pending again.
    """
    of_kind = sa.and_(cells.c.status.in_(list(statuses)), cells.c.failure["kind"].as_string() == kind)
    which = sa.or_(cells.c.status.in_(list(statuses)), _is_cut_short) if kind is None else of_kind
    with database.write() as connection:
        return retry_within(connection, sweep_id, which, *equal({executions.c.id: execution_id}))


def retry_within(connection: sa.Connection, sweep_id: str, *which: sa.ColumnElement[bool]) -> int:
    """Give cells new executions as `retry` does, within a transaction.

    Args:
        connection: The transaction.
        sweep_id: The sweep.
        which: Conditions for the cells, their executions and the heads of these.

    Returns:
        How many cells are pending again.
    """
    place = (cells.c.case_number, cells.c.repeat, cells.c.combination)
    query = (
        sa.select(*place, executions.c.id, executions.c.head_id, executions.c.queue, executions.c.edited)
        .join(executions, executions.c.id == cells.c.execution_id)
        .outerjoin(checkpoints, checkpoints.c.id == executions.c.head_id)
        .where(cells.c.sweep_id == sweep_id, *which)
        .order_by(*place)
    )
    # One at a time, or two would give the same cells an execution each.
    owner = sa.select(sweeps.c.session_id).where(sweeps.c.id == sweep_id)
    session = connection.scalar(owner.with_for_update()) or ""
    rows = fetch_records(connection, _Again, query)
    groups: defaultdict[tuple[int, int, str], list[_Again]] = defaultdict(list)
    for row in rows:
        groups[row.case_number, row.repeat, row.head_id or row.id].append(row)
    keep_events(connection, executions, sorted({row.id for row in rows}))  # some say scores, which go
    at = clock(connection)  # answers of people are older, or newer, by the same clock
    for members in groups.values():
        first = members[0]
        mine = [row.combination for row in members]
        id = next_id(connection, sweep_id)
        retry = CellsOfExecution(id, session, sweep_id, first.case_number, first.repeat, mine)
        new_execution: NewExecution = {
            "id": id,
            "session_id": session,
            "sweep_id": sweep_id,
            "parent_id": first.id,
            "origin": "retry",
            "case_number": first.case_number,
            "repeat": first.repeat,
            "combinations": mine,
            "status": "pending",
            "head_id": first.head_id,
            "queue": first.queue,
            "edited": first.edited,
            "created_at": at,
        }
        insert_rows(connection, executions, [new_execution])
        move_cells(connection, retry, "pending", failure=None, finished_at=None)
        connection.execute(scores.delete().where(*of_cells(scores, retry)))
        data = {"cells": len(members), "from": first.id}
        add_execution_event(connection, retry, "execution.retried", **data)
    return len(rows)
