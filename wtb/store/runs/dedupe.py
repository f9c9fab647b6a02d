"""Continuing a node run that has begun: of the executions at one head, one at a time may be in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.tables.sweeps import checkpoints, executions, node_runs

Adoption = Literal["ours", "busy", "changed", "lost"]


def adopt(
    database: Database, execution_id: str, token: int, head_id: str, known: Mapping[str, Mapping[str, Any]]
) -> Adoption:
    """Let an execution continue node runs that started from its head: all of them, or none.

    known: their rows by id, as the execution was loaded with them. Executions that retry, or waited for an answer, may
    share them.

    Returns ours if the execution has them now, busy if another execution is in one of them, changed if another one was
    in one since they were loaded, lost if the lease of the execution is gone.
    """
    own = sa.select(executions.c.status, executions.c.token).where(executions.c.id == execution_id)
    query = (
        sa.select(node_runs.c.id, node_runs.c.status, node_runs.c.attempts)
        .add_columns(executions.c.id.label("of"), executions.c.status.label("goes"), executions.c.head_id)
        .outerjoin(executions, executions.c.id == node_runs.c.execution_id)
        .where(node_runs.c.id.in_(sorted(known)))
    )
    with database.write() as connection:
        # Lock the head in place of its node runs: with one lock for all of them there can be no deadlock.
        lock = sa.select(checkpoints.c.id).where(checkpoints.c.id == head_id)
        connection.execute(lock.with_for_update(key_share=True))
        mine = connection.execute(own).one_or_none()
        if mine is None or mine.status != "running" or mine.token != token:
            return "lost"
        rows = connection.execute(query).all()
        if any(row.of != execution_id and row.goes == "running" and row.head_id == head_id for row in rows):
            return "busy"
        if any(row.status in ("succeeded", "skipped") or row.attempts != known[row.id]["attempts"] for row in rows):
            return "changed"
        theirs = [row.id for row in rows if row.of != execution_id]
        if theirs:
            connection.execute(node_runs.update().where(node_runs.c.id.in_(theirs)).values(execution_id=execution_id))
        return "ours"
