"""The log of events: what its readers see, in one order.

Most of what happens is known by a row of its own: that a node run started or succeeded, that a step made a checkpoint,
that an execution completed and its cells with it. Such a row has the position of that in the log, (transaction, event),
and the log derives the event from it; of several events it has that of the last, and they follow one another. Only what
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
from typing import Any, Final

import sqlalchemy as sa

from wtb.core.status import OPEN_SWEEPS
from wtb.store.bulk import equal, insert_rows, parts
from wtb.store.rows.sweeps import EventRow, NewEvent
from wtb.store.tables.column_types import Json, array_length, score_object
from wtb.store.tables.schema import (
    cases,
    checkpoints,
    events,
    executions,
    exports,
    log_ids,
    metrics,
    node_runs,
    scores,
    sweeps,
)

LogPosition = tuple[int, int]  # (transaction, id) of an event
START: LogPosition = (-1, 0)
CHANNEL = "wtb_log"
ANNOUNCED_EVERY_S = 1.0

_SWEEP = sa.bindparam("sweep", type_=sa.String())
_LIMIT = sa.bindparam("most", type_=sa.Integer())
# On PostgreSQL: no event can come any more whose transaction is older than this one.
OLDEST_OPEN = sa.text("pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
_TAKING = 8_317_402_616_091_447  # of the advisory lock under which ids are taken again
_SEQUENCE = "(SELECT pg_get_serial_sequence('events', 'id')::regclass)"  # asked for once, not for each id


@dataclass(frozen=True)
class _Derived:
    """Events that rows of a table say.

    kinds: the kind of the first one of a row, and of those that follow it. id: of the last one.
    kept: what makes up the data, under the names of `_COLUMNS`.
    """

    kinds: tuple[str, ...]
    table: sa.Table
    transaction: sa.Column[Any]
    id: sa.Column[Any]
    at: sa.Column[Any]
    kept: dict[str, sa.ColumnElement[Any]]


_NODE_RUN: dict[str, sa.ColumnElement[Any]] = {name: node_runs.c[name] for name in ("node", "task", "variant")}
COMPLETED: Final = "execution.completed"
_OF_CASE = sa.select(cases.c.id).where(
    cases.c.sweep_id == executions.c.sweep_id, cases.c.number == executions.c.case_number
)
# All cells of an execution have the same ones. By way of the metrics: in the index of scores they come before the case.
# The empty text has SQLite go that way. Else it may read all scores of the sweep, for each execution.
_OF_CELL = (
    sa.select(scores.c.metric, scores.c.value, scores.c.error)
    .join(metrics, sa.and_(metrics.c.sweep_id == scores.c.sweep_id, scores.c.metric == metrics.c.name.concat("")))
    .where(
        metrics.c.sweep_id == executions.c.sweep_id,
        scores.c.case_number == executions.c.case_number,
        scores.c.repeat == executions.c.repeat,
        scores.c.combination == executions.c.combinations[0].as_integer(),
    )
    .order_by(metrics.c.number)
    .correlate(executions)
    .subquery()
)
_SCORES = sa.select(score_object(_OF_CELL.c.metric, _OF_CELL.c.value, _OF_CELL.c.error))
DERIVED = (
    _Derived(
        ("node_run.started",),
        node_runs,
        node_runs.c.started_transaction,
        node_runs.c.started_event,
        node_runs.c.started_at,
        _NODE_RUN,
    ),
    _Derived(
        ("node_run.succeeded",),
        node_runs,
        node_runs.c.ended_transaction,
        node_runs.c.ended_event,
        node_runs.c.ended_at,
        {**_NODE_RUN, "attempt": node_runs.c.attempts, "duration_s": node_runs.c.duration_s, "usd": node_runs.c.usd},
    ),
    _Derived(
        ("checkpoint.created",),
        checkpoints,
        checkpoints.c.created_transaction,
        checkpoints.c.created_event,
        checkpoints.c.created_at,
        {"node": checkpoints.c.id, "data": checkpoints.c.position},
    ),
    _Derived(
        (COMPLETED, "cell.succeeded"),
        executions,
        executions.c.ended_transaction,
        executions.c.ended_event,
        executions.c.finished_at,
        {
            "data": _SCORES.scalar_subquery(),
            "case": _OF_CASE.scalar_subquery(),
            "repeat": executions.c.repeat,
            "combinations": executions.c.combinations,
        },
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
    "case": sa.Text(),
    "repeat": sa.Integer(),
    "combinations": Json,
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
        The number of the transaction, and the ids, which follow one another.
    """
    _note_growth(connection)
    if connection.dialect.name != "sqlite":
        taken = f"SELECT nextval({_SEQUENCE}) AS id FROM generate_series(1, :count)"
        number = "pg_current_xact_id()::text::bigint"
        query = sa.text(f"SELECT {number}, min(id), max(id) FROM ({taken}) AS taken")
        while True:
            transaction, first, last = connection.execute(query, {"count": count}).one()
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
    branches = [(wanted, events.c.transaction, events.c.id, events.c.execution_id)]
    for one in DERIVED:
        said = not kinds or any(kind.startswith(kinds) for kind in one.kinds)
        if said and (not severities or "info" in severities):
            branches.append((_of(one, _SWEEP), one.transaction, one.id, _execution(one.table)))
    limit = _LIMIT if limited else None
    ordered = []
    for query, transaction, id, execution in branches:
        query = query.where(_is_after(transaction, id, one_transaction))
        if of_executions:
            query = query.where(execution.in_(sa.bindparam("executions", expanding=True)))
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
        _execution(derived.table).label("execution_id"),
        sa.literal(derived.kinds[0]).label("kind"),
        sa.literal("info").label("severity"),
        derived.at.label("at"),
        *more,
    ).where(derived.table.c.sweep_id == sweep_id, derived.id.is_not(None))


def _events(row: sa.RowMapping, after: LogPosition = START, kinds: Sequence[str] = ()) -> Iterator[EventRow]:
    """The events that one row says: those after a position, whose kinds begin with these."""
    if row["combinations"] is None:
        yield _event(row)
        return
    for event in _of_end(row):
        if (event["transaction"], event["id"]) > after and (not kinds or event["kind"].startswith(tuple(kinds))):
            yield event


def _of_end(row: sa.RowMapping) -> Iterator[EventRow]:
    """The end of an execution, and of each of its cells."""
    ended = _event(row)
    combinations, made = row["combinations"], row["data"] or {}
    found = {name: one if isinstance(one, str | None) else float(one) for name, one in made.items()}
    first = row["id"] - len(combinations)
    yield {**ended, "id": first, "data": {"cells": len(combinations)}}
    for id, combination in enumerate(combinations, first + 1):
        data = {"case": row["case"], "repeat": row["repeat"], "scores": found, "combination": combination}
        yield {**ended, "id": id, "kind": "cell.succeeded", "data": data}


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
        figures: dict[str, sa.ColumnElement[int]] = {}
        for derived in DERIVED:
            if derived.table is table:
                kind, *following = derived.kinds
                figures[kind] = sa.func.count(derived.id)
                length = sa.case((derived.id.is_not(None), array_length(executions.c.combinations)))
                figures |= {other: sa.func.sum(length) for other in following}
        query = sa.select(sa.func.count(), *figures.values()).where(table.c.sweep_id == sweep_id)
        query = query.where(*equal({_execution(table): execution}))
        rows[table.name], *found = connection.execute(query).one()
        counts |= {kind: int(count) for kind, count in zip(figures, found, strict=True) if count}
    return rows, counts


def _execution(table: sa.Table) -> sa.Column[Any]:
    """The column that says which execution a row is of."""
    return table.c.id if table is executions else table.c.execution_id


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
    for derived in DERIVED:
        for part in parts(ids) if derived.table is table else ():
            these = (table.c.id.in_(part), derived.id.is_not(None))
            for sweep_id in connection.scalars(sa.select(table.c.sweep_id).where(*these).distinct()).all():
                rows = connection.execute(_of(derived, sweep_id).where(*these)).mappings()
                insert_rows(connection, events, [event for row in rows for event in _events(row)])
            kept = {derived.transaction.name: None, derived.id.name: None}
            connection.execute(table.update().where(*these).values(kept))
