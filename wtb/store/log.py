"""The log of events, which readers see in one order.

Most events are derived from a row of their own, for example the start or success of a node run, a checkpoint, the
completion of an execution with its cells, or a call of a model. Such a row has the position of its event in the log,
(transaction, event), and `event_sources.py` describes how the log derives the event. Only events without such a row,
or about a later change of a row, are rows of `events`. Before a row changes or is removed, so that its events could no
longer be derived, `keep_events` stores them as rows of `events`, and readers notice nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import sqlalchemy as sa

from wtb.core.status import OPEN_SWEEPS
from wtb.core.values import Json
from wtb.store.bulk import insert_rows, parts
from wtb.store.event_sources import COLUMNS, DERIVED, EVENT_COLUMNS, events_of_row, select_derived
from wtb.store.records import OfExecution
from wtb.store.tables.schema import comments, events, exports, log_ids, sweeps
from wtb.store.tables.sweeps import ALERTING, EventRow, NewEvent, Subject, SweepRow

LogPosition = tuple[int, int]  # (transaction, id) of an event
START: LogPosition = (-1, 0)
CHANNEL = "wtb_log"
ANNOUNCED_EVERY_S = 1.0

_SWEEP = sa.bindparam("sweep", type_=sa.String())
_LIMIT = sa.bindparam("most", type_=sa.Integer())
_EXECUTIONS: sa.BindParameter[str] = sa.bindparam("executions", expanding=True)
# On PostgreSQL: all events of transactions older than this one are visible.
OLDEST_OPEN = sa.text("pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
_TAKING = 8_317_402_616_091_447  # the key of the advisory lock under which ids are taken again
_SEQUENCE = "(SELECT pg_get_serial_sequence('events', 'id')::regclass)"  # looked up once, not for each id
_TAKE = sa.text(
    "SELECT pg_current_xact_id()::text::bigint, min(id), max(id) "
    f"FROM (SELECT nextval({_SEQUENCE}) AS id FROM generate_series(1, :count)) AS taken"
)


class Announcer:
    """Announces that the log has grown, by NOTIFY of PostgreSQL, to followers.

    An announcement has no content and may be lost. A commit with one waits for all other commits that have one
    (`PreCommit_Notify` in PostgreSQL's src/backend/commands/async.c), so a process sends at most one in
    `ANNOUNCED_EVERY_S`, and a follower that receives one reads the log for longer than that.
    """

    def __init__(self) -> None:
        self._at = -math.inf

    def announce(self, connection: sa.Connection) -> bool:
        """Announce growth with a transaction, unless that was done just now. Returns whether it will be, at its
        commit.
        """
        if connection.dialect.name == "sqlite" or time.monotonic() < self._at + ANNOUNCED_EVERY_S:
            return False
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")
        return True

    def was_committed(self) -> None:
        """Record that a transaction with an announcement was committed."""
        self._at = time.monotonic()


@dataclass
class Growth:
    """The growth of the log by a transaction, an option of its connection."""

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
            # The sequence may have given ids to another transaction in between: then they are not consecutive.
            if last - first < count:
                return transaction, range(first, last + 1)
            # Another transaction took ids in between. Those to which that happens take turns.
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_TAKING})"))
    # Not by AUTOINCREMENT, which does not count the ids in rows of other tables.
    last = connection.scalar(log_ids.update().values(last=log_ids.c.last + count).returning(log_ids.c.last))
    if last is None:
        last = (connection.scalar(sa.select(sa.func.max(events.c.id))) or 0) + count
        connection.execute(log_ids.insert().values(last=last))
    return 0, range(last - count + 1, last + 1)


def insert_events(connection: sa.Connection, rows: Sequence[NewEvent]) -> None:
    """Insert rows of `events`, after all present events."""
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
    is_settled: bool = False,
) -> Iterator[EventRow]:
    """Read events of a sweep in the order in which they became visible.

    Args:
        connection: In a transaction.
        sweep_id: The sweep.
        kinds: The beginnings of their kinds; by default all.
        severities: Their severities; by default all.
        executions: The executions that the events are about; by default all.
        after: The (transaction, id) of the last event that was read.
        limit: Maximum number.
        is_settled: Only events before which no other can become visible.

    Yields:
        Rows as `events` has them.
    """
    on_sqlite = connection.dialect.name == "sqlite"
    filters = tuple(kinds), tuple(severities), executions is not None
    query = _query(*filters, on_sqlite and after[0] == 0, is_settled and not on_sqlite, limit is not None)
    parameters: dict[str, str | int | list[str]] = {"sweep": sweep_id, "transaction": after[0], "after": after[1]}
    # One row more, because the row of `after` may have no further events.
    parameters |= {} if limit is None else {"most": limit + 1}
    parameters |= {} if executions is None else {"executions": list(executions)}
    matching = (
        event for row in connection.execute(query, parameters).mappings() for event in _events(row, after, kinds)
    )
    yield from islice(matching, limit)


@lru_cache(maxsize=100)  # making it takes as long as executing it, and followers read repeatedly
def _query(
    kinds: tuple[str, ...], severities: tuple[str, ...], of_executions: bool,
    one_transaction: bool, is_settled: bool, limited: bool,
) -> sa.Select[Any]:  # fmt: skip
    own_events = _of_events()
    if kinds:
        own_events = own_events.where(sa.or_(*(events.c.kind.startswith(kind) for kind in kinds)))
    if severities:
        own_events = own_events.where(events.c.severity.in_(list(severities)))
    branches: list[tuple[sa.Select[Any], sa.Column[Any], sa.Column[Any]]]
    branches = [(own_events, events.c.transaction, events.c.id)]
    if of_executions:
        branches[0] = (own_events.where(events.c.execution_id.in_(_EXECUTIONS)), *branches[0][1:])
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
        if is_settled:
            query = query.where(transaction < OLDEST_OPEN)
        # Each branch is ordered and limited by itself, so that an index yields a page without reading the rest.
        ordered.append(sa.select(query.order_by(transaction, id).limit(limit).subquery()))
    both = sa.union_all(*ordered).subquery()
    query = sa.select(both).order_by(both.c.transaction, both.c.id).limit(limit)
    return query if limited else query.execution_options(yield_per=500)


def _is_after(transaction: sa.Column[Any], id: sa.Column[Any], one_transaction: bool) -> sa.ColumnElement[bool]:
    after = sa.bindparam("after", type_=sa.BigInteger())
    if one_transaction:  # always on SQLite, whose index search uses only the first of a pair
        return sa.and_(transaction == 0, id > after)
    return sa.tuple_(transaction, id) > sa.tuple_(sa.bindparam("transaction", type_=sa.BigInteger()), after)


def _of_events() -> sa.Select[Any]:
    rest = [sa.cast(sa.null(), type).label(name) for name, type in COLUMNS.items()]
    return sa.select(*(events.c[name] for name in EVENT_COLUMNS), *rest).where(events.c.sweep_id == _SWEEP)


def _events(row: sa.RowMapping, after: LogPosition, kinds: Sequence[str]) -> Iterator[EventRow]:
    """Yield the events of a row that are after a position, and whose kinds match."""
    for event in events_of_row(row):
        if (event["transaction"], event["id"]) > after and (not kinds or event["kind"].startswith(tuple(kinds))):
            yield event


def derived_counts(connection: sa.Connection, sweep_id: str, execution: str | None = None) -> dict[str, int]:
    """Return the numbers of events that are derived from rows of a sweep, by kind, without zeros. Their severity is
    info.
    """
    return row_counts(connection, sweep_id, execution)[1]


def row_counts(
    connection: sa.Connection, sweep_id: str, execution: str | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """Count the rows of a sweep and their events in one scan of each table, because there may be millions.

    Returns:
        The numbers of rows by the name of their table, and the result of `derived_counts`.
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
    """Return the times of the last event of each source of the log, for a query with the column `sweep`."""
    times = []
    sources = [(events, events.c.transaction, events.c.id, events.c.at)]
    sources += [(source.table, source.transaction, source.id, source.at) for source in DERIVED]
    for table, transaction, id, at in sources:
        query = sa.select(at).where(table.c.sweep_id == sweep, id.is_not(None))
        last = query.order_by(transaction.desc(), id.desc()).limit(1).correlate_except(table)
        times.append(last.scalar_subquery())
    return [sa.func.coalesce(time, 0.0) for time in times]


def last_position(connection: sa.Connection, sweep_id: str) -> LogPosition:
    """Return the position of the last event of a sweep before which no other can become visible; START without
    events.
    """
    last = START
    for table, transaction, id in (
        (events, events.c.transaction, events.c.id),
        *((source.table, source.transaction, source.id) for source in DERIVED),
    ):
        query = sa.select(transaction, id).where(table.c.sweep_id == sweep_id, id.is_not(None))
        if connection.dialect.name != "sqlite":
            query = query.where(transaction < OLDEST_OPEN)
        for row in connection.execute(query.order_by(transaction.desc(), id.desc()).limit(1)):
            last = max(last, (row[0], row[1]))
    return last


def is_of_another_server(connection: sa.Connection) -> bool:
    """Return whether PostgreSQL elsewhere wrote the log, which was then restored here.

    Numbers of transactions belong to a server. Until this server reaches the numbers in the events, nobody would see
    these, because events with lower numbers could still come.
    """
    if connection.dialect.name == "sqlite":
        return False
    newest = sa.select(events.c.transaction).order_by(events.c.id.desc()).limit(100).subquery()
    numbers = [sa.select(sa.func.max(newest.c.transaction))]
    for source in DERIVED:  # the newest event of an ended sweep is a row of `events`
        last = sa.select(source.transaction).where(source.table.c.sweep_id == sweeps.c.id, source.id.is_not(None))
        last = last.order_by(source.transaction.desc(), source.id.desc()).limit(1)
        numbers.append(sa.select(sa.func.max(last.scalar_subquery())).where(sweeps.c.status.in_(OPEN_SWEEPS)))
    to_come = connection.scalar(sa.text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))
    return any(number is not None and number >= to_come for number in map(connection.scalar, numbers))


def rebase_log(connection: sa.Connection) -> None:
    """Move the whole log before all that this server writes, in the order of its ids."""
    columns = [events.c.transaction, *(source.transaction for source in DERIVED)]
    for column in columns:
        connection.execute(sa.update(column.table).where(column > 0).values({column: 0}))
    connection.execute(exports.delete())  # all events are sent again, with the same ids


def continue_log(connection: sa.Connection) -> None:
    """Continue the ids after the whole log, in a database that was loaded row by row."""
    ids = [events.c.id, *(source.id for source in DERIVED)]
    last = max(connection.scalar(sa.select(sa.func.max(id))) or 0 for id in ids)
    if connection.dialect.name == "sqlite":
        connection.execute(log_ids.delete())
        connection.execute(log_ids.insert().values(last=last))
    else:
        connection.execute(
            sa.text(f"SELECT setval({_SEQUENCE}, :last, :used)"), {"last": max(last, 1), "used": last > 0}
        )


def keep_events(connection: sa.Connection, table: sa.Table, ids: Sequence[str]) -> None:
    """Store the events that are derived from rows, under their positions, before these rows change or are removed.

    Args:
        connection: In a transaction that writes.
        table: `node_runs`, `checkpoints` or `executions`.
        ids: The ids of the rows.
    """
    for number, derived in enumerate(DERIVED):
        owner, id = derived.belongs_to
        for part in parts(ids) if owner is table else ():
            these = (id.in_(part), derived.id.is_not(None))
            for sweep_id in connection.scalars(sa.select(derived.table.c.sweep_id).where(*these).distinct()).all():
                rows = connection.execute(select_derived(number, sweep_id).where(*these)).mappings()
                insert_rows(connection, events, [event for row in rows for event in events_of_row(row)])
            marks = () if derived.mark is None else (derived.mark,)
            cleared = {column.name: None for column in (derived.transaction, derived.id, *marks)}
            connection.execute(derived.table.update().where(*these).values(cleared))


def subject(session_id: str, sweep_id: str, execution_id: str | None = None) -> Subject:
    """Return the subject of an event, as columns of `events`."""
    return {"session_id": session_id, "sweep_id": sweep_id, "execution_id": execution_id}


def of_sweep(sweep: SweepRow) -> Subject:
    """Return the subject of an event about a sweep."""
    return subject(sweep.session_id, sweep.id)


def of_execution(execution: OfExecution) -> Subject:
    """Return the subject of an event about an execution."""
    return subject(execution.session_id, execution.sweep_id, execution.id)


def event_row(about: Subject, kind: str, details: Mapping[str, Json], severity: str = "info") -> NewEvent:
    """Return a row of `events` with the present time.

    Args:
        about: The subject, from `subject`, `of_sweep` or `of_execution`.
        kind: The kind, for example "sweep.paused".
        details: The data of the event, as JSON.
        severity: debug, info, warning or error.

    Returns:
        A row for `insert_rows`.
    """
    return {**about, "kind": kind, "severity": severity, "at": time.time(), "data": dict(details)}


def add_event(
    connection: sa.Connection, about: Subject, kind: str, details: Mapping[str, Json], severity: str = "info"
) -> None:
    """Append an event, described as for `event_row`, within a transaction."""
    insert_events(connection, [event_row(about, kind, details, severity)])


def last_comment_number(connection: sa.Connection, sweep_id: str) -> int:
    """Return the highest number that a comment of a sweep has or had; 0 if there was none.

    Numbers of deleted comments, and of comments on erased cases, are in events about the sweep, which are indexed.
    """
    # Numbers of deleted comments count as well, so that a reference never leads to another comment.
    present = connection.scalar(sa.select(sa.func.max(comments.c.number)).where(comments.c.sweep_id == sweep_id))
    deleted = sa.select(events.c.data["number"].as_integer(), events.c.data["comments"].as_integer()).where(
        events.c.sweep_id == sweep_id, events.c.kind.in_(("comment.deleted", "case.erased")), sa.text(f"({ALERTING})")
    )
    return max([present or 0, *(number or 0 for row in connection.execute(deleted) for number in row)])


def add_execution_event(connection: sa.Connection, execution: OfExecution, kind: str, **details: Any) -> None:
    """Append an event about an execution, given its row, within a transaction."""
    add_event(connection, of_execution(execution), kind, details)
