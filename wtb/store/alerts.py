"""Alerts in the database: events that are to be sent to targets, and the processes that send them."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from wtb.store.bulk import fetch_record, insert_missing
from wtb.store.database import Database
from wtb.store.records import AlertRow, ListeningSweep, StalledRow, UndeliveredAlert
from wtb.store.tables.column_types import is_over
from wtb.store.tables.schema import ALERTING, alerts, cases, events, executions, is_visible, now, sweeps

MOST_TRIES = 5
LEASE_S = 120.0  # longer than sending takes
KEPT_S = 86_400.0  # after the end of a sweep, whose last alerts may wait for somebody to send them


def listening(database: Database, sweep_id: str | None = None) -> list[ListeningSweep]:
    """Return sweeps that have targets: id, name, notify. Without `sweep_id`, those that no process runs by itself."""
    query = sa.select(sweeps.c.id, sweeps.c.name, sweeps.c.notify).where(sweeps.c.notify.is_not(None), is_visible)
    if sweep_id is not None:
        query = query.where(sweeps.c.id == sweep_id)
    else:
        recent = sa.or_(sweeps.c.finished_at.is_(None), sweeps.c.finished_at > now() - KEPT_S)
        query = query.where(sweeps.c.runner_id.is_(None), recent)
    return database.records(ListeningSweep, query)


def note(database: Database, sweep_id: str, kinds_by_target: Sequence[Sequence[str]]) -> int:
    """Create alerts for the events of a sweep, once for each target.

    Args:
        database: The database.
        sweep_id: The sweep.
        kinds_by_target: The kinds of events that each target of the sweep's `notify` selects.

    Returns:
        The number of alerts created.
    """
    kinds = sorted({kind for target in kinds_by_target for kind in target})
    new = sa.select(events.c.id, events.c.kind).where(
        events.c.sweep_id == sweep_id,
        # The condition of a partial index, so that the few events that may alert are found among millions.
        sa.text(f"({ALERTING})"),
        events.c.kind.in_(kinds),
        ~sa.exists().where(alerts.c.event_id == events.c.id),
    )
    rows = [
        {"event_id": id, "target": number, "sweep_id": sweep_id}
        for id, kind in database.tuples(new)
        for number, target in enumerate(kinds_by_target)
        if kind in target
    ]
    if rows:
        with database.write() as connection:
            insert_missing(connection, alerts, rows)
    return len(rows)


def _is_due(sweep_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    free = sa.or_(alerts.c.lease_until.is_(None), is_over(alerts.c.lease_until))
    return alerts.c.sweep_id == sweep_id, alerts.c.sent_at.is_(None), alerts.c.tries < MOST_TRIES, free


def claim(database: Database, sweep_id: str) -> AlertRow | None:
    """Claim the oldest alert that nobody is sending, for the time of a lease. Returns it with its event, or None."""
    due = sa.select(alerts.c.event_id, alerts.c.target).where(*_is_due(sweep_id))
    # Mostly nothing is due, and a reading transaction does not wait for writers on SQLite.
    if database.scalar(due.limit(1)) is None:
        return None
    with database.write() as connection:
        # A locked alert is being claimed by another process.
        query = due.order_by(alerts.c.event_id, alerts.c.target).limit(1).with_for_update(skip_locked=True)
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        mine = (alerts.c.event_id == row.event_id, alerts.c.target == row.target)
        changes = {"tries": alerts.c.tries + 1, "lease_until": now() + LEASE_S}
        connection.execute(alerts.update().where(*mine).values(changes))
        event = (events.c.id, events.c.execution_id, events.c.kind, events.c.severity, events.c.at, events.c.data)
        both = sa.select(*event, alerts.c.target, alerts.c.tries).join(events, events.c.id == alerts.c.event_id)
        return fetch_record(connection, AlertRow, both.where(*mine))


def settle(database: Database, alert: AlertRow, error: str | None = None, again_in_s: float = 0.0) -> None:
    """Record that an alert was sent, or the error and the time of the next try."""
    mine = alerts.update().where(alerts.c.event_id == alert.event_id, alerts.c.target == alert.target)
    if error is None:
        database.execute(mine.values(sent_at=now(), error=None, lease_until=None))
    else:
        database.execute(mine.values(error=error, lease_until=now() + again_in_s))


def stalled(database: Database, sweep_id: str) -> list[StalledRow]:
    """Return executions in which a running node has reported nothing for too long, those that wait longest first."""
    same_case = sa.and_(cases.c.sweep_id == executions.c.sweep_id, cases.c.number == executions.c.case_number)
    query = (
        sa.select(executions.c.id, cases.c.id.label("case"), executions.c.stalled_at.label("since"))
        .join(cases, same_case)
        .where(executions.c.sweep_id == sweep_id, executions.c.status == "running")
        .where(executions.c.stalled_at.is_not(None))
        .order_by(executions.c.stalled_at)
    )
    return database.records(StalledRow, query)


def undelivered(database: Database, sweep_id: str) -> list[UndeliveredAlert]:
    """Return alerts that could not be sent so far."""
    query = (
        sa.select(alerts.c.event_id, alerts.c.target, alerts.c.tries, alerts.c.error)
        .where(alerts.c.sweep_id == sweep_id, alerts.c.sent_at.is_(None), alerts.c.error.is_not(None))
        .order_by(alerts.c.event_id)
    )
    return database.records(UndeliveredAlert, query)
