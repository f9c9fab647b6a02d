"""The log of events: what its readers see, in one order.

Most of what happens is known by a row of its own: that a node run started or succeeded, that a step made a checkpoint,
that an execution completed and its cells with it, that a model was called. Such a row has the position of that in the
log, (transaction, event), and the log derives the event from it, as `rows/event_sources.py` describes. Only what
has no row of its own, or happens to a row again, is a row of `events`. Before a row changes so that it would no longer
say what happened, or goes, `keep_events` writes its events as rows of `events`, so that nobody who reads notices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import sqlalchemy as sa

from wtb.core.status import OPEN_SWEEPS
from wtb.store.bulk import insert_rows, parts
from wtb.store.rows.event_sources import COLUMNS, DERIVED, events_of_row, select_derived
from wtb.store.tables.schema import events, exports, log_ids, sweeps
from wtb.store.tables.sweeps import EventRow, NewEvent

LogPosition = tuple[int, int]  # (transaction, id) of an event
START: LogPosition = (-1, 0)
CHANNEL = "wtb_log"
ANNOUNCED_EVERY_S = 1.0

_SWEEP = sa.bindparam("sweep", type_=sa.String())
_LIMIT = sa.bindparam("most", type_=sa.Integer())
_EXECUTIONS: sa.BindParameter[str] = sa.bindparam("executions", expanding=True)
# On PostgreSQL: no event can come any more whose transaction is older than this one.
OLDEST_OPEN = sa.text("pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
_TAKING = 8_317_402_616_091_447  # of the advisory lock under which ids are taken again
_SEQUENCE = "(SELECT pg_get_serial_sequence('events', 'id')::regclass)"  # asked for once, not for each id
_TAKE = sa.text(
    "SELECT pg_current_xact_id()::text::bigint, min(id), max(id) "
    f"FROM (SELECT nextval({_SEQUENCE}) AS id FROM generate_series(1, :count)) AS taken"
)


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
        The number of the transaction, and the ids, which follow one another.
    """
    _note_growth(connection)
    if connection.dialect.name != "sqlite":
        while True:
            transaction, first, last = connection.execute(_TAKE, {"count": count}).one()
            if last - first < count:
                return transaction, range(first, last + 1)
            # Somebody took some in between. Whoever that happens to goes after the others to whom it did.
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_TAKING})"))
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
    # One more: of the row that `after` is within, nothing may be left.
    given |= {} if limit is None else {"most": limit + 1}
    given |= {} if executions is None else {"executions": list(executions)}
    found = (event for row in connection.execute(query, given).mappings() for event in _events(row, after, kinds))
    yield from islice(found, limit)


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
    branches: list[tuple[sa.Select[Any], sa.Column[Any], sa.Column[Any]]]
    branches = [(wanted, events.c.transaction, events.c.id)]
    if of_executions:
        branches[0] = (wanted.where(events.c.execution_id.in_(_EXECUTIONS)), *branches[0][1:])
    for number, derived in enumerate(DERIVED):
        holds = derived.holds(kinds)
        if holds is not None and (not severities or "info" in severities):
            rows = select_derived(number, _SWEEP).where(holds)
            rows = rows.where(derived.of_executions(_EXECUTIONS)) if of_executions else rows
            branches.append((rows, derived.transaction, derived.id))
    limit = _LIMIT if limited else None
    ordered = []
    for query, transaction, id in branches:
        query = query.where(_is_after(transaction, id, one_transaction))
        if settled:
            query = query.where(transaction < OLDEST_OPEN)
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
    rest = [sa.cast(sa.null(), type).label(name) for name, type in COLUMNS.items()]
    return sa.select(*(events.c[name] for name in names), *rest).where(events.c.sweep_id == _SWEEP)


def _events(row: sa.RowMapping, after: LogPosition, kinds: Sequence[str]) -> Iterator[EventRow]:
    """The events of a row that are after a position, and whose kinds begin so."""
    for event in events_of_row(row):
        if (event["transaction"], event["id"]) > after and (not kinds or event["kind"].startswith(tuple(kinds))):
            yield event


def derived_counts(connection: sa.Connection, sweep_id: str, execution: str | None = None) -> dict[str, int]:
    """How many events of each kind the rows of a sweep say, of kinds that there are. Their severity is info."""
    return row_counts(connection, sweep_id, execution)[1]


def row_counts(
    connection: sa.Connection, sweep_id: str, execution: str | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """Count the rows of a sweep that say events, each of which may be one of millions, in one scan of each table.

    Returns:
        How many there are by the name of their table, and what `derived_counts` returns.
    """
    rows, counts = dict[str, int](), dict[str, int]()
    for table in dict.fromkeys(derived.table for derived in DERIVED):
        sources = [derived for derived in DERIVED if derived.table is table]
        figures = [(kind, derived.count(kind)) for derived in sources for kind in derived.kinds]
        query = sa.select(sa.func.count(), *(figure for _, figure in figures)).where(table.c.sweep_id == sweep_id)
        if execution is not None:
            query = query.where(sources[0].of_executions([execution]))
        rows[table.name], *numbers = connection.execute(query).one()
        for (kind, _), number in zip(figures, numbers, strict=True):
            if number:
                counts[kind] = counts.get(kind, 0) + int(number)
    return rows, counts


def last_times(sweep: sa.ColumnElement[str]) -> list[sa.ColumnElement[float]]:
    """When the last event of each source of the log happened, for a query that `sweep` is a column of."""
    found = []
    sources = [(events, events.c.transaction, events.c.id, events.c.at)]
    sources += [(one.table, one.transaction, one.id, one.at) for one in DERIVED]
    for table, transaction, id, at in sources:
        query = sa.select(at).where(table.c.sweep_id == sweep, id.is_not(None))
        last = query.order_by(transaction.desc(), id.desc()).limit(1).correlate_except(table)
        found.append(last.scalar_subquery())
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
            query = query.where(transaction < OLDEST_OPEN)
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
    newest = sa.select(events.c.transaction).order_by(events.c.id.desc()).limit(100).subquery()
    found = [sa.select(sa.func.max(newest.c.transaction))]
    for one in DERIVED:  # of a sweep that has ended its end is the newest, or what was done to it since
        last = sa.select(one.transaction).where(one.table.c.sweep_id == sweeps.c.id, one.id.is_not(None))
        last = last.order_by(one.transaction.desc(), one.id.desc()).limit(1)
        found.append(sa.select(sa.func.max(last.scalar_subquery())).where(sweeps.c.status.in_(OPEN_SWEEPS)))
    to_come = connection.scalar(sa.text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))
    return any(number is not None and number >= to_come for number in map(connection.scalar, found))


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
        table: `node_runs`, `checkpoints` or `executions`.
        ids: Of the rows.
    """
    for number, derived in enumerate(DERIVED):
        owner, id = derived.belongs_to
        for part in parts(ids) if owner is table else ():
            these = (id.in_(part), derived.id.is_not(None))
            for sweep_id in connection.scalars(sa.select(derived.table.c.sweep_id).where(*these).distinct()).all():
                rows = connection.execute(select_derived(number, sweep_id).where(*these)).mappings()
                insert_rows(connection, events, [event for row in rows for event in events_of_row(row)])
            marks = () if derived.mark is None else (derived.mark,)
            gone = {column.name: None for column in (derived.transaction, derived.id, *marks)}
            connection.execute(derived.table.update().where(*these).values(gone))
