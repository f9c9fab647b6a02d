"""Trying failed cells again: new executions from the heads at which the old ones ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import sqlalchemy as sa

from wtb.store.bulk import Row, equal, fetch_rows, insert_rows
from wtb.store.database import Database
from wtb.store.events import add_execution_event
from wtb.store.rows import CellsOfExecution
from wtb.store.runs.leases import move_cells, of_cells
from wtb.store.runs.submit import next_id
from wtb.store.tables.schema import cells, executions, now, scores, sweeps

AGAIN = ("failed", "cancelled", "set_aside")


def retry(
    database: Database, sweep_id: str, statuses: Sequence[str] = AGAIN, *, execution_id: str | None = None
) -> int:
    """Give failed cells new executions.

    Cells that ended at the same head share one execution, so a node run that failed for several of them is tried
    once. The old executions stay as history.

    Args:
        database: The database.
        sweep_id: The sweep.
        statuses: The statuses of the cells.
        execution_id: Only the cells of this execution.

    Returns:
        How many cells are pending again.
    """
    place = (cells.c.case_number, cells.c.repeat, cells.c.combination)
    query = (
        sa.select(*place, executions.c.id, executions.c.head_id, executions.c.queue, executions.c.edited)
        .join(executions, executions.c.id == cells.c.execution_id)
        .where(
            cells.c.sweep_id == sweep_id, cells.c.status.in_(list(statuses)), *equal({executions.c.id: execution_id})
        )
        .order_by(*place)
    )
    with database.write() as connection:
        # One at a time, or two would give the same cells an execution each.
        session = connection.scalar(sa.select(sweeps.c.session_id).where(sweeps.c.id == sweep_id).with_for_update())
        rows = fetch_rows(connection, query)
        groups: defaultdict[tuple[int, int, str], list[Row]] = defaultdict(list)
        for row in rows:
            groups[row["case_number"], row["repeat"], row["head_id"] or row["id"]].append(row)
        at = connection.scalar(sa.select(now()))  # answers of people are older, or newer, by the same clock
        for members in groups.values():
            first = members[0]
            made = {name: first[name] for name in ("case_number", "repeat", "head_id", "queue", "edited")}
            made |= {"id": next_id(connection, sweep_id), "session_id": session, "sweep_id": sweep_id}
            made |= {"parent_id": first["id"], "origin": "retry", "status": "pending", "created_at": at}
            made |= {"combinations": [row["combination"] for row in members]}
            insert_rows(connection, executions, [made])
            retry = CellsOfExecution(*(made[name] for name in CellsOfExecution._fields))
            move_cells(connection, retry, "pending", failure=None, finished_at=None)
            connection.execute(scores.delete().where(*of_cells(scores, retry)))
            data = {"cells": len(members), "from": first["id"]}
            add_execution_event(connection, retry, "execution.retried", **data)
    return len(rows)
