"""The log of events: what its readers see, in one order.

Most of what happens is known by a row of its own: that a node run started or succeeded, that a step made a checkpoint.
Such a row has the position of that in the log, (transaction, event), and the log derives the event from it. Only what
has no row of its own, or happens to a row again, is a row of `events`. Before a row changes so that it would no longer
say what happened, or goes, `keep_events` writes its events as rows of `events`, so that nobody who reads notices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from wtb.store.bulk import equal, insert_rows, parts
from wtb.store.rows.sweeps import EventRow, NewEvent
from wtb.store.tables.column_types import Json
from wtb.store.tables.schema import checkpoints, events, exports, log_ids, node_runs, sweeps

LogPosition = tuple[int, int]  # (transaction, id) of an event
START: LogPosition = (-1, 0)
CHANNEL = "wtb_log"
ANNOUNCED_EVERY_S = 1.0

_SWEEP = sa.bindparam("sweep", type_=sa.String())
_LIMIT = sa.bindparam("most", type_=sa.Integer())
# On PostgreSQL: no event can come any more whose transaction is older than this one.
_OLDEST_OPEN = sa.text("pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
_SEQUENCE = "(SELECT pg_get_serial_sequence('events', 'id')::regclass)"  # asked for once, not for each id


@dataclass(frozen=True)
class _Derived:
    """Events of one kind that rows of a table say.

    kept: columns of the table that make up the data, under the names of `_COLUMNS`.
    """

    kind: str
    table: sa.Table
    transaction: sa.Column[Any]
    id: sa.Column[Any]
    at: sa.Column[Any]
    kept: dict[str, sa.Column[Any]]


_NODE_RUN: dict[str, sa.Column[Any]] = {name: node_runs.c[name] for name in ("node", "task", "variant")}
DERIVED = (
    _Derived(
        "node_run.started",
        node_runs,
        node_runs.c.started_transaction,
        node_runs.c.started_event,
        node_runs.c.started_at,
        _NODE_RUN,
    ),
    _Derived(
        "node_run.succeeded",
        node_runs,
        node_runs.c.ended_transaction,
        node_runs.c.ended_event,
        node_runs.c.ended_at,
        {**_NODE_RUN, "attempt": node_runs.c.attempts, "duration_s": node_runs.c.duration_s, "usd": node_runs.c.usd},
    ),
    _Derived(
        "checkpoint.created",
        checkpoints,
        checkpoints.c.created_transaction,
        checkpoints.c.created_event,
        checkpoints.c.created_at,
        {"node": checkpoints.c.id, "data": checkpoints.c.position},
    ),
)
# What a derived event is made of, beside the columns of `events`.
_COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "data": Json,
    "node": sa.String(),
    "task": sa.String(),
    "variant": sa.String(),
    "attempt": sa.Integer(),
    "duration_s": sa.Double(),
    "usd": sa.Double(),
}


class Announcer:
    """Announces that the log has grown, by NOTIFY of PostgreSQL, to who waits for more.

    It says nothing but that, and may be lost. A commit with an announcement waits for all others that have one
    (`PreCommit_Notify` in PostgreSQL's src/backend/commands/async.c), so a process makes one in `ANNOUNCED_EVERY_S` at
    most, and who hears one looks on for longer than that.
    """

    def __init__(self) -> None:
        self._at = -math.inf

    def announce(self, connection: sa.Connection) -> bool:
        """Announce it with a transaction, unless that was done just now; return whether it will be, once that ends."""
        if connection.dialect.name == "sqlite" or time.monotonic() < self._at + ANNOUNCED_EVERY_S:
            return False
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")
        return True

    def was_committed(self) -> None:
        """Take that a transaction with an announcement was committed."""
        self._at = time.monotonic()


@dataclass
class Growth:
    """Whether a transaction adds to the log; it is among the options of a connection that writes."""

    has_grown: bool = False


def _note_growth(connection: sa.Connection) -> None:
    growth: Growth | None = connection.get_execution_options().get("wtb_growth")
    if growth is not None:
        growth.has_grown = True


def take_positions(connection: sa.Connection, count: int) -> tuple[int, Sequence[int]]:
    """Take ids for events that this transaction writes.

    Returns:
        The number of the transaction, and the ids in their order.
    """
    _note_growth(connection)
    if connection.dialect.name != "sqlite":
        number = "pg_current_xact_id()::text::bigint"
        # One row: of as many rows as there are ids, the driver would make objects one by one.
        query = sa.text(f"SELECT {number}, array_agg(nextval({_SEQUENCE})) FROM generate_series(1, :count)")
        transaction, ids = connection.execute(query, {"count": count}).one()
        return transaction, ids or ()
    # Not by the table itself, which knows nothing of the ids that other rows have.
    last = connection.scalar(log_ids.update().values(last=log_ids.c.last + count).returning(log_ids.c.last))
    if last is None:
        last = (connection.scalar(sa.select(sa.func.max(events.c.id))) or 0) + count
        connection.execute(log_ids.insert().values(last=last))
    return 0, range(last - count + 1, last + 1)


def insert_events(connection: sa.Connection, rows: Sequence[NewEvent]) -> None:
    """Insert rows of `events`, after all events that are there."""
    if rows:
        _note_growth(connection)
    if rows and connection.dialect.name == "sqlite":
        _, ids = take_positions(connection, len(rows))
        numbered = [{**row, "id": id} for row, id in zip(rows, ids, strict=True)]
        insert_rows(connection, events, numbered)
    else:
        insert_rows(connection, events, rows)


def log_rows(
    connection: sa.Connection,
    sweep_id: str,
    *,
    kinds: Sequence[str] = (),
    severities: Sequence[str] = (),
    executions: Collection[str] | None = None,
    after: LogPosition = START,
    limit: int | None = None,
    settled: bool = False,
) -> Iterator[EventRow]:
    """Read events of a sweep in the order in which they became visible.

    Args:
        connection: In a transaction.
        sweep_id: The sweep.
        kinds: What their kinds begin with; by default all.
        severities: Their severities; by default all.
        executions: The executions that they are about; by default all.
        after: (transaction, id) of the last one that was seen.
        limit: How many at most.
        settled: Only those that none can come before any more.

    Yields:
        Rows as `events` has them.
    """
    on_sqlite = connection.dialect.name == "sqlite"
    filters = tuple(kinds), tuple(severities), executions is not None
    query = _query(*filters, on_sqlite and after[0] == 0, settled and not on_sqlite, limit is not None)
    given: dict[str, str | int | list[str]] = {"sweep": sweep_id, "transaction": after[0], "after": after[1]}
    given |= {} if limit is None else {"most": limit}
    given |= {} if executions is None else {"executions": list(executions)}
    for row in connection.execute(query, given).mappings():
        yield _event(row)


@lru_cache(maxsize=100)  # making it takes as long as executing it, and followers ask again and again
def _query(
    kinds: tuple[str, ...], severities: tuple[str, ...], of_executions: bool,
    one_transaction: bool, settled: bool, limited: bool,
) -> sa.Select[Any]:  # fmt: skip
    wanted = _of_events()
    if kinds:
        wanted = wanted.where(sa.or_(*(events.c.kind.startswith(kind) for kind in kinds)))
    if severities:
        wanted = wanted.where(events.c.severity.in_(list(severities)))
    branches = [(wanted, events.c.transaction, events.c.id, events.c.execution_id)]
    for one in DERIVED:
        if (not kinds or one.kind.startswith(kinds)) and (not severities or "info" in severities):
            branches.append((_of(one, _SWEEP), one.transaction, one.id, one.table.c.execution_id))
    limit = _LIMIT if limited else None
    ordered = []
    for query, transaction, id, execution in branches:
        query = query.where(_is_after(transaction, id, one_transaction))
        if of_executions:
            query = query.where(execution.in_(sa.bindparam("executions", expanding=True)))
        if settled:
            query = query.where(transaction < _OLDEST_OPEN)
        # Each in order by itself, so that no more of it is read than a page has.
        ordered.append(sa.select(query.order_by(transaction, id).limit(limit).subquery()))
    both = sa.union_all(*ordered).subquery()
    query = sa.select(both).order_by(both.c.transaction, both.c.id).limit(limit)
    return query if limited else query.execution_options(yield_per=500)


def _is_after(transaction: sa.Column[Any], id: sa.Column[Any], one_transaction: bool) -> sa.ColumnElement[bool]:
    after = sa.bindparam("after", type_=sa.BigInteger())
    if one_transaction:  # always on SQLite, which uses only the first of pairs to look in an index
        return sa.and_(transaction == 0, id > after)
    return sa.tuple_(transaction, id) > sa.tuple_(sa.bindparam("transaction", type_=sa.BigInteger()), after)


def _of_events() -> sa.Select[Any]:
    names = ("id", "transaction", "session_id", "sweep_id", "execution_id", "kind", "severity", "at", "data")
    rest = [sa.cast(sa.null(), type).label(name) for name, type in _COLUMNS.items() if name != "data"]
    return sa.select(*(events.c[name] for name in names), *rest).where(events.c.sweep_id == _SWEEP)


def _of(derived: _Derived, sweep_id: str | sa.BindParameter[str]) -> sa.Select[Any]:
    session = sa.select(sweeps.c.session_id).where(sweeps.c.id == sweep_id).scalar_subquery()
    more = [derived.kept.get(name, sa.cast(sa.null(), type)).label(name) for name, type in _COLUMNS.items()]
    return sa.select(
        derived.id.label("id"),
        derived.transaction.label("transaction"),
        session.label("session_id"),
        derived.table.c.sweep_id,
        derived.table.c.execution_id,
        sa.literal(derived.kind).label("kind"),
        sa.literal("info").label("severity"),
        derived.at.label("at"),
        *more,
    ).where(derived.table.c.sweep_id == sweep_id, derived.id.is_not(None))


def _event(row: sa.RowMapping) -> EventRow:
    """The row of an event, given what it is made of."""
    event: EventRow = {
        "id": row["id"],
        "transaction": row["transaction"],
        "session_id": row["session_id"],
        "sweep_id": row["sweep_id"],
        "execution_id": row["execution_id"],
        "kind": row["kind"],
        "severity": row["severity"],
        "at": row["at"],
        "data": row["data"],
    }
    if row["node"] is None:
        return event
    if row["variant"] is None:
        step, following = row["data"]["step"], row["data"]["next"]
        event["data"] = {"checkpoint": row["node"], "step": step, "next": following}
        return event
    several = {} if row["task"] == row["node"] else {"task": row["task"]}
    event["data"] = {"node": row["node"], **several, "variant": row["variant"]}
    if row["attempt"] is not None:
        event["data"] |= {"attempt": row["attempt"], "duration_s": row["duration_s"]}
        if row["usd"]:
            event["data"]["usd"] = row["usd"]
    return event


def derived_counts(connection: sa.Connection, sweep_id: str, execution: str | None = None) -> dict[str, int]:
    """How many events of each kind the rows of a sweep say, of kinds that there are. Their severity is info."""
    counts = {}
    for derived in DERIVED:
        query = sa.select(sa.func.count()).where(derived.table.c.sweep_id == sweep_id, derived.id.is_not(None))
        query = query.where(*equal({derived.table.c.execution_id: execution}))
        counts[derived.kind] = connection.scalar(query) or 0
    return {kind: count for kind, count in counts.items() if count}


def last_times(sweep: sa.ColumnElement[str]) -> list[sa.ColumnElement[float]]:
    """When the last event of each source of the log happened, for a query that `sweep` is a column of."""
    found = []
    sources = [(events, events.c.transaction, events.c.id, events.c.at)]
    sources += [(one.table, one.transaction, one.id, one.at) for one in DERIVED]
    for table, transaction, id, at in sources:
        query = sa.select(at).where(table.c.sweep_id == sweep, transaction.is_not(None))
        found.append(query.order_by(transaction.desc(), id.desc()).limit(1).scalar_subquery())
    return [sa.func.coalesce(one, 0.0) for one in found]


def last_position(connection: sa.Connection, sweep_id: str) -> LogPosition:
    """The position of the last event of a sweep that none can come before any more; START if there is none."""
    last = START
    for table, transaction, id in (
        (events, events.c.transaction, events.c.id),
        *((one.table, one.transaction, one.id) for one in DERIVED),
    ):
        query = sa.select(transaction, id).where(table.c.sweep_id == sweep_id, id.is_not(None))
        if connection.dialect.name != "sqlite":
            query = query.where(transaction < _OLDEST_OPEN)
        for row in connection.execute(query.order_by(transaction.desc(), id.desc()).limit(1)):
            last = max(last, (row[0], row[1]))
    return last


def is_of_another_server(connection: sa.Connection) -> bool:
    """Return whether PostgreSQL elsewhere wrote the log, which then was restored here.

    Numbers of transactions are the server's. Where it has not come to those that events have, nobody would see them,
    since what is still to come may come before them.
    """
    if connection.dialect.name == "sqlite":
        return False
    newest = "SELECT transaction FROM events ORDER BY id DESC LIMIT 100"
    to_come = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    query = f"SELECT max(transaction) >= {to_come} FROM ({newest}) AS newest"
    return bool(connection.scalar(sa.text(query)))


def adopt_log(connection: sa.Connection) -> None:
    """Have all that the log holds come before what this server writes, in the order of its ids."""
    columns = [events.c.transaction, *(one.transaction for one in DERIVED)]
    for column in columns:
        connection.execute(sa.update(column.table).where(column > 0).values({column: 0}))
    connection.execute(exports.delete())  # what was sent is sent again, with the same ids


def continue_log(connection: sa.Connection) -> None:
    """Have the next event come after all that the log holds, in a database that was loaded row by row."""
    ids = [events.c.id, *(one.id for one in DERIVED)]
    last = max(connection.scalar(sa.select(sa.func.max(id))) or 0 for id in ids)
    if connection.dialect.name == "sqlite":
        connection.execute(log_ids.delete())
        connection.execute(log_ids.insert().values(last=last))
    else:
        connection.execute(
            sa.text(f"SELECT setval({_SEQUENCE}, :last, :used)"), {"last": max(last, 1), "used": last > 0}
        )


def keep_events(connection: sa.Connection, table: sa.Table, ids: Sequence[str]) -> None:
    """Write the events that rows say as rows of `events`, under their positions, before these rows change or go.

    Args:
        connection: In a transaction that writes.
        table: `node_runs` or `checkpoints`.
        ids: Of the rows.
    """
    for derived in DERIVED:
        for part in parts(ids) if derived.table is table else ():
            these = (table.c.id.in_(part), derived.id.is_not(None))
            for sweep_id in connection.scalars(sa.select(table.c.sweep_id).where(*these).distinct()).all():
                rows = connection.execute(_of(derived, sweep_id).where(*these)).mappings()
                insert_rows(connection, events, [_event(row) for row in rows])
            kept = {derived.transaction.name: None, derived.id.name: None}
            connection.execute(table.update().where(*these).values(kept))
