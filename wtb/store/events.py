"""Events: what happened to a sweep or an execution, written in the transaction that made it happen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from wtb.core.values import Json
from wtb.store.log import insert_events
from wtb.store.rows.executions import OfExecution
from wtb.store.tables.schema import comments, events
from wtb.store.tables.sweeps import ALERTING, NewEvent, Subject, SweepRow


def subject(session_id: str, sweep_id: str, execution_id: str | None = None) -> Subject:
    """Return what an event is about, as columns of `events`."""
    return {"session_id": session_id, "sweep_id": sweep_id, "execution_id": execution_id}


def of_sweep(sweep: SweepRow) -> Subject:
    """Return what an event is about, given the row of a sweep."""
    return subject(sweep.session_id, sweep.id)


def of_execution(execution: OfExecution) -> Subject:
    """Return what an event is about, given the row of an execution."""
    return subject(execution.session_id, execution.sweep_id, execution.id)


def event_row(about: Subject, kind: str, data: Mapping[str, Json], severity: str = "info") -> NewEvent:
    """Make a row of `events` that happens now.

    Args:
        about: From `subject`, `of_sweep` or `of_execution`.
        kind: Such as "sweep.paused".
        data: What readers of the event get, as JSON.
        severity: debug, info, warning or error.

    Returns:
        A row for `insert_rows`.
    """
    return {**about, "kind": kind, "severity": severity, "at": time.time(), "data": dict(data)}


def add_event(
    connection: sa.Connection, about: Subject, kind: str, data: Mapping[str, Json], severity: str = "info"
) -> None:
    """Append an event, described as for `event_row`, within a transaction."""
    insert_events(connection, [event_row(about, kind, data, severity)])


def last_comment_number(connection: sa.Connection, sweep_id: str) -> int:
    """Return the highest number that a comment of a sweep has or had; 0 if there was none.

    Numbers of comments that were deleted, or were on cases that were erased, are in events about the sweep, which an
    index has.
    """
    present = connection.scalar(sa.select(sa.func.max(comments.c.number)).where(comments.c.sweep_id == sweep_id))
    gone = sa.select(events.c.data["number"].as_integer(), events.c.data["comments"].as_integer()).where(
        events.c.sweep_id == sweep_id, events.c.kind.in_(("comment.deleted", "case.erased")), sa.text(f"({ALERTING})")
    )
    return max([present or 0, *(number or 0 for row in connection.execute(gone) for number in row)])


def add_execution_event(connection: sa.Connection, execution: OfExecution, kind: str, **data: Any) -> None:
    """Append an event about an execution, given its row, within a transaction."""
    add_event(connection, of_execution(execution), kind, data)
