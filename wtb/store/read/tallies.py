"""Sums of a sweep's scores that grow while its cells finish, and matrices and counts of cells, kept once it has ended.

Both depend on one place in the sweep's events: all events up to there are counted, and a kept matrix is valid while
that event is the last one of the sweep. Every change of state is an event in the same transaction, so every change
invalidates the kept matrix, and no code has to remember to discard it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson
import sqlalchemy as sa

from wtb.store.bulk import insert_of, parts
from wtb.store.cell_status import combination, executions_with_combinations, has_cell, running_cells, with_running
from wtb.store.database import Database
from wtb.store.event_sources import COMPLETED
from wtb.store.log import OLDEST_OPEN
from wtb.store.tables.results import TallyRow
from wtb.store.tables.schema import cells, events, executions, matrices, metrics, now, scores, sweeps, tallies

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument


Place = tuple[int, int]  # transaction and id of an event

START: Place = (-1, 0)
RESCORED = (
    "execution.retried",
    "score.recorded",
    "rollback.begun",
    "case.erased",
)  # kinds of events after which counted scores may be missing

PART_S = 0.1  # target duration of a transaction that counts
_LEAST = 500  # events of such a transaction

_ENDS = (executions, executions.c.ended_transaction, executions.c.ended_event)
_SOURCES = ((events, events.c.transaction, events.c.id), _ENDS)  # of events by which scores come and go
_Source = tuple[sa.Table, sa.Column[Any], sa.Column[Any]]


def _last_place(source: _Source) -> list[sa.ScalarSelect[Any]]:
    """Return the place of the last event of a source, for a query of `matrices`."""
    table, transaction, id = source
    conditions = (table.c.sweep_id == matrices.c.sweep_id, id.is_not(None))
    last = (transaction.desc(), id.desc())
    return [
        sa.select(column).where(*conditions).order_by(*last).limit(1).scalar_subquery() for column in (transaction, id)
    ]


_KEPT_COUNTS = sa.select(
    matrices.c.sweep_id,
    matrices.c.cells,
    matrices.c.transaction,
    matrices.c.event_id,
    *(column for source in _SOURCES for column in _last_place(source)),
).where(matrices.c.cells.is_not(None))
_counted_to = sa.tuple_(matrices.c.transaction, matrices.c.event_id)


def tally(database: Database, sweep_id: str, within_s: float = math.inf) -> bool:
    """Add the scores of cells that finished since the last time, each exactly once. Returns whether there were any.

    If another process is tallying this sweep, it returns at once. On PostgreSQL, events younger than the oldest running
    transaction wait for the next time. After a retry, a rollback or a rescoring, everything is counted again. Counting
    takes transactions of about `PART_S`, because followers of a log wait for the end of each. No further one begins
    after `within_s`, unless everything is counted again.
    """
    with database.read() as connection:
        goal, place = _last_event(connection, sweep_id, is_settled=True), _counted(connection, sweep_id) or START
    if goal is None or goal <= place:  # so that nothing is locked or written for a sweep at rest
        return False
    size, counted = _LEAST, False
    started = time.monotonic()
    end = started + within_s
    while started < end:
        with database.write(long=True) as connection:
            since = _lock(connection, sweep_id)
            if since is None or since >= goal:
                return counted
            if not counted and _has_rescored(connection, sweep_id, since, goal):
                connection.execute(tallies.delete().where(tallies.c.sweep_id == sweep_id))
                since, end = START, math.inf  # a later call would find the same event again and restart
            until = _part(connection, sweep_id, since, goal, size)
            _add(connection, sweep_id, since, until)
            moved = {"transaction": until[0], "event_id": until[1], "tallied_at": now()}
            forgotten = dict.fromkeys(("document", "frozen_at", "cells"))
            connection.execute(matrices.update().where(matrices.c.sweep_id == sweep_id).values(**moved, **forgotten))
        counted = True
        now_s = time.monotonic()
        size = max(_LEAST, min(2 * size, round(size * PART_S / max(now_s - started, 1e-6))))
        started = now_s
    return counted


def tally_rows(database: Database, sweep_id: str) -> list[TallyRow]:
    """Return the tallies of a sweep, by metric and combination."""
    query = sa.select(tallies).where(tallies.c.sweep_id == sweep_id)
    return database.records(TallyRow, query.order_by(*tallies.primary_key))


def tallied_at(database: Database, sweep_id: str) -> float | None:
    """Return when something was last added."""
    return database.scalar(sa.select(matrices.c.tallied_at).where(matrices.c.sweep_id == sweep_id))


def whole_at(database: Database, sweep_id: str) -> Place | None:
    """Return the place of the tallies, if it is that of the sweep's last event."""
    with database.read() as connection:
        row = connection.execute(_whole(sa.select(matrices.c.transaction, matrices.c.event_id), sweep_id)).first()
    return None if row is None else (row[0], row[1])


def kept_matrix(database: Database, sweep_id: str) -> MatrixDocument | None:
    """Return the kept matrix, unless the sweep has changed since."""
    query = _whole(sa.select(matrices.c.document), sweep_id).where(matrices.c.frozen_at.is_not(None))
    stored = database.scalar(query)
    return None if stored is None else orjson.loads(stored)


def keep(database: Database, sweep_id: str, document: MatrixDocument, place: Place) -> bool:
    """Keep the matrix that was made when the sweep's last event was at this place. Returns False if there are later
    events.
    """
    # As text: PostgreSQL's JSONB forgets the order of keys, which is that of nodes and metrics.
    text = orjson.dumps(document).decode()
    query = matrices.update().where(matrices.c.sweep_id == sweep_id, _counted_to == _literal(place))
    with database.write(long=True) as connection:
        counts = _count(connection, [sweep_id])[sweep_id]
        return connection.execute(query.values(document=text, frozen_at=now(), cells=counts)).rowcount == 1


def cell_counts(connection: sa.Connection, sweep_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return cells of sweeps by status, counted if they are not kept, or the sweep has changed since."""
    counts: dict[str, dict[str, int]] = {}
    for part in parts(sweep_ids):
        query = _KEPT_COUNTS.where(matrices.c.sweep_id.in_(part))
        for sweep_id, kept_counts, *place in connection.execute(query):
            at, *lasts = zip(*[iter(place)] * 2, strict=True)
            if at == max((last for last in lasts if last[1] is not None), default=None):
                counts[sweep_id] = kept_counts
    return counts | _count(connection, [id for id in sweep_ids if id not in counts])


_COUNTS = sa.select(cells.c.sweep_id, cells.c.status, sa.func.count()).group_by(cells.c.sweep_id, cells.c.status)


def _count(connection: sa.Connection, sweep_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count cells by status in as few statements as possible: for a small sweep, a statement takes longer than
    counting.
    """
    counts: dict[str, dict[str, int]] = {sweep_id: {} for sweep_id in sweep_ids}
    for part in parts(sweep_ids):
        for sweep_id, status, count in connection.execute(_COUNTS.where(cells.c.sweep_id.in_(part))):
            counts[sweep_id][status] = count
    for sweep_id, running in running_cells(connection, [id for id in sweep_ids if counts[id].get("pending")]).items():
        counts[sweep_id] = with_running(counts[sweep_id], sum(running.values()))
    return counts


def _whole(query: sa.Select[Any], sweep_id: str) -> sa.Select[Any]:
    """Restrict a query to the tallies of a sweep if they include its last event.

    No open transaction can add an event before that one: it was counted after all transactions up to it had ended.
    """
    last = _last(sweep_id).subquery()
    same = sa.and_(matrices.c.transaction == last.c.transaction, matrices.c.event_id == last.c.id)
    return query.join(last, same).where(matrices.c.sweep_id == sweep_id)


def _counted(connection: sa.Connection, sweep_id: str, *, lock: bool = False) -> Place | None:
    query = sa.select(matrices.c.transaction, matrices.c.event_id).where(matrices.c.sweep_id == sweep_id)
    if lock:
        query = query.with_for_update(skip_locked=True)
    row = connection.execute(query).first()
    return None if row is None else (row[0], row[1])


def _lock(connection: sa.Connection, sweep_id: str) -> Place | None:
    """Lock the tallies of a sweep. Returns their place; None if they are locked by others, or the sweep is being
    deleted.
    """
    # The sweep is locked before its rows, as on deletion, so that the two never wait for each other in a circle.
    sweep_query = sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id)
    if connection.scalar(sweep_query.with_for_update(read=True, key_share=True, skip_locked=True)) is None:
        return None
    connection.execute(insert_of(connection, matrices).values(sweep_id=sweep_id).on_conflict_do_nothing())
    return _counted(connection, sweep_id, lock=True)


def _last(sweep_id: str, *, is_settled: bool = False) -> sa.Select[Any]:
    branches = []
    for table, transaction, id in _SOURCES:
        query = sa.select(transaction.label("transaction"), id.label("id"))
        query = query.where(table.c.sweep_id == sweep_id, id.is_not(None))
        if is_settled:
            query = query.where(transaction < OLDEST_OPEN)
        branches.append(sa.select(query.order_by(transaction.desc(), id.desc()).limit(1).subquery()))
    both = sa.union_all(*branches).subquery()
    return sa.select(both).order_by(both.c.transaction.desc(), both.c.id.desc()).limit(1)


def _last_event(connection: sa.Connection, sweep_id: str, *, is_settled: bool) -> Place | None:
    """Return the place of the last event; if settled, of those before which no other can become visible."""
    row = connection.execute(_last(sweep_id, is_settled=is_settled and connection.dialect.name != "sqlite")).first()
    return None if row is None else (row[0], row[1])


def _literal(place: Place) -> sa.Tuple:
    return sa.tuple_(*(sa.literal(number, sa.BigInteger()) for number in place))


def _between(source: _Source, sweep_id: str, since: Place, until: Place) -> sa.ColumnElement[bool]:
    table, transaction, id = source
    mine = sa.and_(table.c.sweep_id == sweep_id, id.is_not(None))  # the index of executions has no others
    if since[0] == until[0]:  # always on SQLite, which would read all events of the sweep for pairs
        return sa.and_(mine, transaction == until[0], id > since[1], id <= until[1])
    place = sa.tuple_(transaction, id)
    return sa.and_(mine, place > _literal(since), place <= _literal(until))


def _part(connection: sa.Connection, sweep_id: str, since: Place, goal: Place, size: int) -> Place:
    """Return the place up to which about `size` events are counted, or the goal if fewer are left."""
    ends = [goal]
    for source in _SOURCES:
        _, transaction, id = source
        query = sa.select(transaction, id).where(_between(source, sweep_id, since, goal))
        row = connection.execute(query.order_by(transaction, id).offset(size - 1).limit(1)).first()
        ends += [] if row is None else [(row[0], row[1])]
    return min(ends)


def _has_rescored(connection: sa.Connection, sweep_id: str, since: Place, until: Place) -> bool:
    between = _between(_SOURCES[0], sweep_id, since, until)
    query = sa.select(events.c.id).where(between, events.c.kind.in_(RESCORED)).limit(1)
    return connection.scalar(query) is not None


def _add(connection: sa.Connection, sweep_id: str, since: Place, until: Place) -> None:
    """Add the scores of executions that ended in between.

    A cell names the execution of its outcome, so executions that a retry superseded do not count. Cells whose state a
    person edited are left out, as in the matrix.
    """
    # Not a join: without statistics of a new sweep, PostgreSQL would begin with its scores, and takes all of its
    # scores to be a single row; nor SQLite, which would then read all of them for each cell.
    score = (
        sa.select(scores.c.value)
        .where(
            scores.c.sweep_id == sweep_id,
            scores.c.metric == metrics.c.name,
            metrics.c.figure.is_(None),  # a figure over a row is no sum
            scores.c.case_number == executions.c.case_number,
            scores.c.repeat == executions.c.repeat,
            scores.c.combination == combination.element,
        )
        .correlate_except(scores)
        .scalar_subquery()
        .label("value")
    )
    written, ends = (_between(source, sweep_id, since, until) for source in _SOURCES)
    completed = sa.union(  # an event is a row of its own, or derived from the execution's row
        sa.select(events.c.execution_id).where(written, events.c.kind == COMPLETED),
        sa.select(executions.c.id).where(ends, executions.c.children.is_(None)).correlate(None),
    )
    # PostgreSQL takes the rows between two places for a third of all, and would read all cells of the sweep for them.
    # A list it looks up one by one.
    id = executions.c.id
    on_sqlite = connection.dialect.name == "sqlite"
    is_completed = id.in_(completed) if on_sqlite else id == sa.func.any(sa.func.array(completed.scalar_subquery()))
    ended = (
        sa.select(metrics.c.name.label("metric"), combination, score)
        .select_from(executions_with_combinations)
        .join(metrics, metrics.c.sweep_id == sweep_id)
        .where(is_completed, has_cell(~cells.c.edited))
        .cte("ended")
        .prefix_with("MATERIALIZED", dialect="postgresql")  # otherwise each score is searched several times
    )
    new = (
        sa.select(
            sa.literal(sweep_id), ended.c.metric, ended.c.combination, sa.func.count(), sa.func.sum(ended.c.value)
        )
        .where(ended.c.value.is_not(None))
        .group_by(ended.c.metric, ended.c.combination)
    )
    insert = insert_of(connection, tallies).from_select([column.name for column in tallies.c], new)
    added = {name: tallies.c[name] + insert.excluded[name] for name in ("n", "total")}
    connection.execute(insert.on_conflict_do_update(index_elements=list(tallies.primary_key), set_=added))
