"""Going on with a node run that has begun: of the executions at one head, one at a time is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.tables.sweeps import checkpoints, executions, node_runs

Taken = Literal["ours", "busy", "changed", "lost"]


def take_up(
    database: Database, execution_id: str, token: int, head_id: str, known: Mapping[str, Mapping[str, Any]]
) -> Taken:
    """Have an execution go on with node runs that started from its head: all of them, or none.

    known: their rows by id, as the execution was told them. Retries, and who waited for an answer, may share them.
    Busy: another execution is in one of them. Changed: another one was since. Lost: its lease is gone.
    """
    own = sa.select(executions.c.status, executions.c.token).where(executions.c.id == execution_id)
    query = (
        sa.select(node_runs.c.id, node_runs.c.status, node_runs.c.attempts)
        .add_columns(executions.c.id.label("of"), executions.c.status.label("goes"), executions.c.head_id)
        .outerjoin(executions, executions.c.id == node_runs.c.execution_id)
        .where(node_runs.c.id.in_(sorted(known)))
    )
    with database.write() as connection:
        # The head stands for its node runs: who asks for some of them asks for it, so nobody waits in a circle.
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
