"""Followers of the log: announcements that it has grown, and the positions up to which collectors have received it.

`Announcer` in the log announces, so that followers need not query all the time. Positions are kept durably, of each
sweep. An execution is sent once an event reports its end, so the rows that are read are final unless somebody undoes
them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any, Final

import sqlalchemy as sa

from wtb.core.frozen import frozen
from wtb.store.database import Database
from wtb.store.log import CHANNEL, START, LogPosition, last_position, log_rows
from wtb.store.read.queries import select_sweeps
from wtb.store.records import BehindSweep
from wtb.store.runs.queue import is_open
from wtb.store.tables.column_types import is_over
from wtb.store.tables.control import ExporterRow
from wtb.store.tables.schema import events, executions, exporters, exports, now, sweeps

MOST_SWEEPS: Final = 50
_ENDS: Final = tuple(f"execution.{how}" for how in ("completed", "failed", "forked", "cancelled"))
_LAST: Final = tuple(f"sweep.{how}" for how in ("completed", "failed", "cancelled"))


@frozen
class Ended:
    """Executions that have ended up to a position of the log.

    Attributes:
        executions: Their ids.
        position: The position of the last event that was read.
    """

    executions: Sequence[str]
    position: LogPosition


def claim_exporter(database: Database, endpoint: str, owner: str, lease_s: float) -> ExporterRow | None:
    """Claim a collector, or renew the claim, so that no other process sends to it.

    Args:
        database: The database.
        endpoint: The address of the collector.
        owner: The id of the sending process.
        lease_s: Seconds until the claim expires.

    Returns:
        The row of the collector; None while another process sends.
    """
    free = sa.or_(exporters.c.lease_until.is_(None), is_over(exporters.c.lease_until), exporters.c.owner_id == owner)
    claim = (
        exporters.update()
        .where(exporters.c.endpoint == endpoint, free)
        .values(owner_id=owner, lease_until=now() + lease_s)
        .returning(exporters)
    )
    with database.write() as connection:
        if connection.scalar(sa.select(sa.true()).where(exporters.c.endpoint == endpoint)) is None:
            connection.execute(exporters.insert().values(endpoint=endpoint))
        row = connection.execute(claim).one_or_none()
    return None if row is None else ExporterRow(*row)


def behind(database: Database, exporter: ExporterRow) -> list[BehindSweep]:
    """Return the sweeps with events that were not sent yet, the oldest first; at most `MOST_SWEEPS`.

    A sweep that had ended before its collector was first named is left out until somebody retries it.
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
    """Return executions that ended after a position of the log, in the order in which they ended.

    Executions that the end of a sweep cancels have no events of their own; they are found at the end of the sweep.

    Args:
        database: The database.
        sweep_id: The sweep.
        position: The position up to which they were read.
        limit: How many events are read.
    """
    with database.read() as connection:
        kinds = (*_ENDS, *_LAST)
        rows = list(log_rows(connection, sweep_id, kinds=kinds, after=position, limit=limit, is_settled=True))
        ids = [row["execution_id"] for row in rows if row["kind"] in _ENDS and row["execution_id"] is not None]
        if any(row["kind"] in _LAST for row in rows):
            # `cancel_executions` changes all executions of a sweep with one statement, and adds no event for each.
            cancelled = sa.select(executions.c.id).where(
                executions.c.sweep_id == sweep_id, executions.c.status == "cancelled"
            )
            ids += connection.scalars(cancelled.order_by(executions.c.id))
        if len(rows) == limit:
            last = (rows[-1]["transaction"], rows[-1]["id"])
        # Other events may follow the last end; skipping them here keeps the sweep from being read again for them.
        else:
            last = max(position, last_position(connection, sweep_id))
    return Ended(list(dict.fromkeys(ids)), last)


def note_sent(
    database: Database, exporter: ExporterRow, sweep_id: str, position: LogPosition, *, spans: int, rejected: int
) -> bool:
    """Record that everything of a sweep up to a position was sent. Returns False if another process sends by now."""
    change = {
        "spans": exporters.c.spans + spans,
        "rejected": exporters.c.rejected + rejected,
        "failing_since": None,
        "error": None,
    } | ({"sent_at": now()} if spans else {})
    mine = (exporters.c.endpoint == exporter.endpoint, exporters.c.owner_id == exporter.owner_id)
    own_export = (exports.c.endpoint == exporter.endpoint, exports.c.sweep_id == sweep_id)
    place = {"transaction": position[0], "event": position[1]}
    with database.write() as connection:
        if not connection.execute(exporters.update().where(*mine).values(change)).rowcount:
            return False
        if connection.execute(exports.update().where(*own_export).values(place)).rowcount:
            return True
        # Locked, so that the sweep is not deleted before the row that refers to it is written.
        sweep_query = sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id).with_for_update(read=True, key_share=True)
        if connection.scalar(sweep_query) is not None:  # else it was deleted meanwhile
            row = {"endpoint": exporter.endpoint, "sweep_id": sweep_id, **place}
            connection.execute(exports.insert().values(row))
    return True


def note_failure(database: Database, exporter: ExporterRow, error: str) -> None:
    """Record that a collector rejects everything, with the error."""
    mine = (exporters.c.endpoint == exporter.endpoint, exporters.c.owner_id == exporter.owner_id)
    since = sa.func.coalesce(exporters.c.failing_since, now())
    database.execute(exporters.update().where(*mine).values(error=error, failing_since=since))


def collectors(database: Database) -> list[ExporterRow]:
    """Return the collectors that receive events, or did lately."""
    return database.records(ExporterRow, sa.select(exporters).order_by(exporters.c.endpoint))


def is_busy(database: Database) -> bool:
    """Return whether executions wait for workers, or are run by them."""
    open_ones = executions.c.status.in_(("pending", "running"))
    query = sa.select(executions.c.id).where(executions.c.sweep_id == sweeps.c.id, open_ones)
    return database.scalar(sa.select(sa.literal(1)).where(is_open(), query.exists()).limit(1)) is not None


def roots(database: Database, ids: Collection[str]) -> dict[str, tuple[str, int, int, int | None]]:
    """Return the keys of the traces of executions: sweep, number of the case, repeat, and combination if none is
    shared.

    Args:
        database: The database.
        ids: The ids of the executions; deleted ones are left out.
    """
    columns = (executions.c[name] for name in ("id", "sweep_id", "case_number", "repeat", "combinations"))
    query = sa.select(*columns, sweeps.c.spec).join(sweeps, sweeps.c.id == executions.c.sweep_id)
    by_execution = {}
    for id, sweep_id, case_number, repeat, combinations, spec in database.tuples(query.where(executions.c.id.in_(ids))):
        alone = combinations[0] if combinations and not spec["run"]["share"] else None
        by_execution[id] = (sweep_id, case_number, repeat, alone)
    return by_execution


_SNAPSHOT = sa.text(
    "SELECT pg_snapshot_xmin(now)::text::bigint AS oldest, pg_snapshot_xmax(now)::text::bigint AS next "
    "FROM pg_current_snapshot() AS now"
)


class Announcements:
    """Received announcements, on a connection of its own."""

    def __init__(self, database: Database) -> None:
        """Create it; nothing is received before `open`. The database is PostgreSQL."""
        self._database = database
        self._connection: Any = None
        self._is_closed = False
        self._changing = threading.Lock()

    def open(self) -> None:
        """Listen from now on. Raises StoreError if the database is out of reach."""
        connection = self._database.detached()
        with self._changing:
            if self._is_closed:  # closed meanwhile, by a follower that stopped waiting
                connection.close()
                return
            self._connection = connection
        with self._database.reached():
            connection.execute(f"LISTEN {CHANNEL}")

    def try_out(self) -> None:
        """Send an announcement, to test whether it is received. Raises StoreError if the database is out of reach."""
        with self._database.write(is_note=True) as connection:
            connection.exec_driver_sql(f"NOTIFY {CHANNEL}")

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when something arrives."""
        return int(self._connection.fileno())

    def take(self) -> bool:
        """Take the announcements that have arrived, without waiting.

        Returns:
            True if there were any.

        Raises:
            StoreError: If the connection is lost.
        """
        with self._database.reached():
            self._connection.pgconn.consume_input()
            has_come = False
            while self._connection.pgconn.notifies() is not None:
                has_come = True
            return has_come

    def close(self) -> None:
        """Stop listening."""
        with self._changing:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()


def open_transactions(database: Database) -> tuple[int, int]:
    """Return the oldest open transaction, and the next one. Rows of transactions before the oldest are visible to
    all.
    """
    with database.read() as connection:
        row = connection.execute(_SNAPSHOT).one()
        return row.oldest, row.next
