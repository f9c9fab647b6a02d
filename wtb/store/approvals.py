"""Questions to people in the database: asked within a flush, answered once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from wtb.store.bulk import insert_missing
from wtb.store.schema import approvals, awaiting, executions, now

Row = dict[str, Any]


def ask(connection: sa.Connection, asked: Sequence[tuple[str, Row]]) -> None:
    """Note what executions wait for: (execution, row of `approvals`). Who asks what was asked here before shares it.

    An execution whose question has been answered meanwhile is pending at once.
    """
    for execution, row in sorted(asked, key=lambda one: (one[1]["checkpoint_id"], one[1]["key"])):
        timeout = row.pop("timeout")
        insert_missing(connection, approvals, [row])
        same = (approvals.c.checkpoint_id == row["checkpoint_id"], approvals.c.key == row["key"])
        id, status = connection.execute(
            sa.select(approvals.c.id, approvals.c.status).where(*same).with_for_update()
        ).one()
        if id == row["id"] and timeout is not None:
            connection.execute(approvals.update().where(approvals.c.id == id).values(expires_at=now() + timeout))
        insert_missing(connection, awaiting, [{"approval_id": id, "execution_id": execution}])
        if status != "open":
            connection.execute(
                executions.update()
                .where(executions.c.id == execution, executions.c.status == "waiting")
                .values(status="pending")
            )
