"""Pausing executions: at once if they are not claimed, else as soon as their runner releases them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.core.status import CELL, sources
from wtb.store.bulk import fetch_rows, insert_rows
from wtb.store.tables.sweeps import cells, events, executions

Row = Mapping[str, Any]


def grant(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Carry out the requests for executions that were released."""
    if not ids:
        return
    query = sa.select(executions).where(executions.c.id.in_(ids), executions.c.asked.is_not(None))
    for row in fetch_rows(connection, query.order_by(executions.c.id)):
        pause_at_once(connection, row, reason=row["asked"]["reason"], by=row["asked"]["by"])


def pause_at_once(connection: sa.Connection, row: Row, *, reason: str, by: str) -> None:
    """Pause an execution, whose row is locked. Its runner loses it, with whatever is not committed."""
    connection.execute(
        executions.update()
        .where(executions.c.id == row["id"])
        .values(
            status="paused",
            reason=reason,
            asked=None,
            owner_id=None,
            lease_until=None,
            token=executions.c.token + (1 if row["status"] == "running" else 0),
        )
    )
    move_cells(connection, row, "pending")
    add_event(connection, row, "execution.paused", reason=reason, by=by)


def move_cells(connection: sa.Connection, row: Row, status: str, **changes: Any) -> list[int]:
    """Set the status of the cells of an execution as far as transitions allow. Returns their combinations."""
    return list(
        connection.scalars(
            cells.update()
            .where(
                cells.c.sweep_id == row["sweep_id"],
                cells.c.case_number == row["case_number"],
                cells.c.repeat == row["repeat"],
                cells.c.combination.in_(list(row["combinations"])),
                cells.c.status.in_(sources(CELL, status)),
            )
            .values(status=status, execution_id=row["id"], **changes)
            .returning(cells.c.combination)
        )
    )


def add_event(connection: sa.Connection, row: Row, kind: str, **data: Any) -> None:
    """Append an event about an execution."""
    event = {"session_id": row["session_id"], "sweep_id": row["sweep_id"], "execution_id": row["id"]}
    event |= {"kind": kind, "severity": "info", "at": time.time(), "data": data}
    insert_rows(connection, events, [event])
