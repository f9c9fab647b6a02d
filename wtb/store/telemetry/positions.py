"""What was sent of the log to a collector, and what is still to be sent: a position for each sweep, kept durably.

An execution is sent once an event says that it has ended, so what is read is final but for what somebody undoes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.store.database import Database
from wtb.store.log import START, LogPosition, last_position, log_rows
from wtb.store.read.queries import select_sweeps
from wtb.store.rows.sweeps import BehindSweep
from wtb.store.runs.queue import is_open
from wtb.store.tables.column_types import is_over
from wtb.store.tables.control import ExporterRow
from wtb.store.tables.schema import events, executions, exporters, exports, now, sweeps

MOST_SWEEPS: Final = 50
_ENDS: Final = tuple(f"execution.{how}" for how in ("completed", "failed", "forked", "cancelled"))
_LAST: Final = tuple(f"sweep.{how}" for how in ("completed", "failed", "cancelled"))


@frozen
class Ended:
    """Executions that have ended, and up to where of the log they are all.

    Attributes:
        executions: Their ids.
        position: Of the last event that was read.
    """

    executions: Sequence[str]
    position: LogPosition


def claim_exporter(database: Database, endpoint: str, owner: str, lease_s: float) -> ExporterRow | None:
    """Claim a collector, or claim it longer, so that no one else sends to it.

    Args:
        database: The database.
        endpoint: The collector's.
        owner: An id of whoever wants to send.
        lease_s: For how long.

    Returns:
        What is known of it; None while somebody else sends.
    """
    free = sa.or_(exporters.c.lease_until.is_(None), is_over(exporters.c.lease_until), exporters.c.owner_id == owner)
    taken = (
        exporters.update()
        .where(exporters.c.endpoint == endpoint, free)
        .values(owner_id=owner, lease_until=now() + lease_s)
        .returning(exporters)
    )
    with database.write() as connection:
        if connection.scalar(sa.select(sa.true()).where(exporters.c.endpoint == endpoint)) is None:
            connection.execute(exporters.insert().values(endpoint=endpoint))
        row = connection.execute(taken).one_or_none()
    return None if row is None else ExporterRow(*row)


def behind(database: Database, exporter: ExporterRow) -> list[BehindSweep]:
    """Return sweeps that have events after what was sent of them, the oldest first; `MOST_SWEEPS` at most.

    A sweep that had ended before its collector was first named is left alone until somebody tries it again.
    """
    transaction = sa.func.coalesce(exports.c.transaction, START[0])
    event = sa.func.coalesce(exports.c.event, START[1])
    after = [
        sa.select(sa.literal(1))
        .where(table.c.sweep_id == sweeps.c.id, table.c[id].is_not(None))  # the index of executions has no others
        .where(sa.tuple_(table.c[of], table.c[id]) > sa.tuple_(transaction, event))
        .correlate_except(table)
        .exists()
        for table, of, id in ((events, "transaction", "id"), (executions, "ended_transaction", "ended_event"))
    ]
    query = (
        select_sweeps(transaction, event)
        .outerjoin(exports, sa.and_(exports.c.sweep_id == sweeps.c.id, exports.c.endpoint == exporter.endpoint))
        .where(sa.or_(sweeps.c.finished_at.is_(None), sweeps.c.finished_at >= exporter.began_at))
        .where(sa.or_(*after))
        .order_by(sweeps.c.created_at)
        .limit(MOST_SWEEPS)
    )
    return database.records(BehindSweep, query)


def ended_after(database: Database, sweep_id: str, position: LogPosition, limit: int) -> Ended:
    """Return executions that ended after a position of the log, in the order in which they did.

    What a sweep ends with itself has no event of its own: it is found where the sweep ends.

    Args:
        database: The database.
        sweep_id: The sweep.
        position: Up to where they are known.
        limit: How many events are read.
    """
    with database.read() as connection:
        kinds = (*_ENDS, *_LAST)
        found = list(log_rows(connection, sweep_id, kinds=kinds, after=position, limit=limit, settled=True))
        ids = [row["execution_id"] for row in found if row["kind"] in _ENDS and row["execution_id"] is not None]
        if any(row["kind"] in _LAST for row in found):
            cancelled = sa.select(executions.c.id).where(
                executions.c.sweep_id == sweep_id, executions.c.status == "cancelled"
            )
            ids += connection.scalars(cancelled.order_by(executions.c.id))
        if len(found) == limit:
            last = (found[-1]["transaction"], found[-1]["id"])
        else:
            last = max(position, last_position(connection, sweep_id))
    return Ended(list(dict.fromkeys(ids)), last)


def note_sent(
    database: Database, exporter: ExporterRow, sweep_id: str, position: LogPosition, *, spans: int, rejected: int
) -> bool:
    """Record that everything of a sweep up to a position was sent. Returns False if somebody else sends by now."""
    change = {
        "spans": exporters.c.spans + spans,
        "rejected": exporters.c.rejected + rejected,
        "failing_since": None,
        "error": None,
    } | ({"sent_at": now()} if spans else {})
    mine = (exporters.c.endpoint == exporter.endpoint, exporters.c.owner_id == exporter.owner_id)
    here = (exports.c.endpoint == exporter.endpoint, exports.c.sweep_id == sweep_id)
    place = {"transaction": position[0], "event": position[1]}
    with database.write() as connection:
        if not connection.execute(exporters.update().where(*mine).values(change)).rowcount:
            return False
        if connection.execute(exports.update().where(*here).values(place)).rowcount:
            return True
        there = sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id).with_for_update(read=True, key_share=True)
        if connection.scalar(there) is not None:  # else it was deleted meanwhile
            row = {"endpoint": exporter.endpoint, "sweep_id": sweep_id, **place}
            connection.execute(exports.insert().values(row))
    return True


def note_failure(database: Database, exporter: ExporterRow, error: str) -> None:
    """Record that a collector takes nothing, and why."""
    mine = (exporters.c.endpoint == exporter.endpoint, exporters.c.owner_id == exporter.owner_id)
    since = sa.func.coalesce(exporters.c.failing_since, now())
    database.execute(exporters.update().where(*mine).values(error=error, failing_since=since))


def collectors(database: Database) -> list[ExporterRow]:
    """Return the collectors that somebody sends to, or did lately."""
    return database.records(ExporterRow, sa.select(exporters).order_by(exporters.c.endpoint))


def is_busy(database: Database) -> bool:
    """Return whether executions wait for workers, or are run by them."""
    open_ones = executions.c.status.in_(("pending", "running"))
    query = sa.select(executions.c.id).where(executions.c.sweep_id == sweeps.c.id, open_ones)
    return database.scalar(sa.select(sa.literal(1)).where(is_open(), query.exists()).limit(1)) is not None
