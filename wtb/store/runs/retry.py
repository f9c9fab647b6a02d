"""Trying failed cells again: new executions from the heads at which the old ones ended."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from wtb.store.bulk import insert_rows
from wtb.store.database import Database
from wtb.store.events import add_execution_event
from wtb.store.runs.leases import move_cells, of_cells
from wtb.store.runs.submit import next_id
from wtb.store.tables.sweeps import cells, executions, now, scores, sweeps

AGAIN = ("failed", "cancelled", "set_aside")


def retry(
    database: Database, sweep_id: str, statuses: Sequence[str] = AGAIN, *, execution_id: str | None = None
) -> int:
    """Give the cells of these statuses new executions, or those of one execution. Returns how many are pending again.

    Cells that ended at the same head share one execution, so a node run that failed for several of them is tried
    once. The old executions stay as history.
    """
    holding = sa.select(
        cells.c.case_number,
        cells.c.repeat,
        cells.c.combination,
        executions.c.id,
        executions.c.head_id,
        executions.c.queue,
        executions.c.edited,
    ).join(executions, executions.c.id == cells.c.execution_id)
    if execution_id is not None:
        holding = holding.where(executions.c.id == execution_id)
    with database.write() as connection:
        # One at a time, or two would give the same cells an execution each.
        connection.execute(sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id).with_for_update())
        rows = connection.execute(
            holding.where(cells.c.sweep_id == sweep_id, cells.c.status.in_(list(statuses))).order_by(
                cells.c.case_number, cells.c.repeat, cells.c.combination
            )
        ).all()
        groups: dict[tuple[int, int, str], list[int]] = {}
        before: dict[tuple[int, int, str], tuple[str, str | None, str | None, bool]] = {}
        for case, repeat, combination, execution, head, queue, edited in rows:
            key = (case, repeat, head or execution)
            groups.setdefault(key, []).append(combination)
            before.setdefault(key, (execution, head, queue, edited))
        at = connection.scalar(sa.select(now()))  # answers of people are older, or newer, by the same clock
        session = connection.scalar(
            sa.select(executions.c.session_id).where(executions.c.sweep_id == sweep_id).limit(1)
        )
        for key, combinations in groups.items():
            case, repeat, _ = key
            parent, head, queue, edited = before[key]
            made = next_id(connection, sweep_id)
            row = {"id": made, "session_id": session, "sweep_id": sweep_id, "parent_id": parent}
            row |= {"origin": "retry", "case_number": case, "repeat": repeat, "combinations": combinations}
            row |= {"status": "pending", "head_id": head, "queue": queue, "edited": edited, "created_at": at}
            insert_rows(connection, executions, [row])
            move_cells(connection, row, "pending", failure=None, finished_at=None)
            connection.execute(scores.delete().where(*of_cells(scores, row)))
            add_execution_event(connection, row, "execution.retried", **{"cells": len(combinations), "from": parent})
    return len(rows)
