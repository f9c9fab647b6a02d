"""Stopped combinations: their open cells are skipped, and executions that they share with others continue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.ids import new_ids
from wtb.core.status import CELL, OPEN_EXECUTIONS, sources
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import StoredStop
from wtb.core.values import Json
from wtb.store.bulk import fetch_records, insert_rows, parts
from wtb.store.cell_status import of_place
from wtb.store.control.executions import stopped_in
from wtb.store.control.fork_points import ForkPoints, NewRow, nearest_origins
from wtb.store.control.forks import retry_within
from wtb.store.control.sweeps import cancel_executions
from wtb.store.database import Database
from wtb.store.log import add_event, of_sweep
from wtb.store.read.lineage import marks
from wtb.store.records import Mark
from wtb.store.runs.leases import continuing, try_move
from wtb.store.tables.executions import ExecutionRow, NewExecution
from wtb.store.tables.schema import cells, combinations, executions, now, sweeps
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import clock


@frozen
class Stop:
    """Combinations to stop, with the person and the reason.

    Attributes:
        numbers: The combinations.
        by: The person who stops them.
        reason: The reason, including that person.
    """

    numbers: Sequence[int]
    by: str
    reason: str


def stopped_of(database: Database, sweep_id: str) -> dict[int, StoredStop]:
    """Return the combinations of a sweep that were stopped, by number."""
    query = sa.select(combinations.c.number, combinations.c.stopped).where(
        combinations.c.sweep_id == sweep_id, combinations.c.stopped.is_not(None)
    )
    return dict(database.tuples(query.order_by(combinations.c.number)))


def stopped_numbers(database: Database, sweep_id: str) -> frozenset[int]:
    """Return the numbers of the combinations of a sweep that were stopped."""
    with database.read() as connection:
        return stopped_in(connection, [sweep_id])[sweep_id]


def stop_combinations(database: Database, sweep: SweepRow, stop: Stop) -> int:
    """Skip the open cells of some combinations.

    Executions that stand for these only are cancelled, wherever they run. Executions that also stand for others
    continue for those; the part of a stopped combination is kept as an execution of its own, from which it can continue
    later.

    Args:
        database: The database of the sweep.
        sweep: Its row.
        stop: The combinations.

    Returns:
        How many cells were skipped.

    Raises:
        ConflictError: If the sweep has ended, or no combination would be left.
    """
    with database.write(long=True) as connection:
        rows = _lock_standing_for(connection, sweep.id, stop.numbers)
        query = sa.select(sweeps.c.status).where(sweeps.c.id == sweep.id)
        if connection.scalar(query.with_for_update()) not in ("pending", "running", "paused"):
            raise ConflictError(f"sweep {sweep.name} ({sweep.id}) has ended: there is nothing of it to stop")
        at = clock(connection)
        record: StoredStop = {"by": stop.by, "reason": stop.reason, "at": at}
        this = (combinations.c.sweep_id == sweep.id, combinations.c.number.in_(list(stop.numbers)))
        # Before the executions: runners read this mark and drop outcomes of the
        # combinations that they have not heard of yet.
        connection.execute(combinations.update().where(*this).values(stopped=record))
        _end_executions(connection, rows, stop, at)
        skipped = (
            cells.update()
            .where(
                cells.c.sweep_id == sweep.id,
                cells.c.combination.in_(list(stop.numbers)),
                cells.c.status.in_(sources(CELL, "skipped")),
            )
            .values(status="skipped", finished_at=now())
        )
        count = connection.execute(skipped).rowcount
        details = {**_details(connection, this, count), "by": stop.by, "reason": stop.reason}
        add_event(connection, of_sweep(sweep), "sweep.combination_stopped", details)
    return count


def end_stopped(database: Database, sweep_id: str, numbers: Collection[int]) -> None:
    """Cancel executions that stand for stopped combinations only, and that forked off after the stop."""
    with database.write() as connection:
        rows = _lock_standing_for(connection, sweep_id, numbers)
        ids = [row.id for row in rows if set(row.combinations) <= set(numbers)]
        if ids:
            cancel_executions(connection, ids, "its combination was stopped")


def restart_combinations(database: Database, sweep: SweepRow, numbers: Sequence[int], by: str) -> int:
    """Let stopped combinations run again, from where they were stopped. Returns how many cells are pending again."""
    with database.write(long=True) as connection:
        query = sa.select(sweeps.c.status).where(sweeps.c.id == sweep.id)
        status = connection.scalar(query.with_for_update())
        if status == "cancelled":
            raise ConflictError(f"sweep {sweep.name} ({sweep.id}) is cancelled: none of its cells runs again")
        this = (combinations.c.sweep_id == sweep.id, combinations.c.number.in_(list(numbers)))
        connection.execute(combinations.update().where(*this).values(stopped=None))
        _move_to_fork_points(connection, sweep, numbers)
        count = retry_within(connection, sweep.id, cells.c.status == "skipped", cells.c.combination.in_(list(numbers)))
        details = {**_details(connection, this, count), "by": by}
        add_event(connection, of_sweep(sweep), "sweep.combination_restarted", details)
        if sweep.queued and count and status in ("completed", "failed"):
            try_move(connection, sweep.id, "running", reason="a stopped combination runs again", by=by)
    return count


def _details(connection: sa.Connection, these: Iterable[sa.ColumnElement[bool]], count: int) -> dict[str, Json]:
    """Return the data of an event about combinations: at most 100 of them in words, and the number of their cells."""
    choices = connection.scalars(sa.select(combinations.c.choices).where(*these).order_by(combinations.c.number))
    return {"combinations": [in_words(row_choices) for row_choices in list(choices)[:100]], "cells": count}


def _move_to_fork_points(connection: sa.Connection, sweep: SweepRow, numbers: Sequence[int]) -> None:
    """Move stopped executions forward to the point where others reached a node that differs, because that part is
    shared.
    """
    query = sa.select(combinations.c.number, combinations.c.choices, combinations.c.stopped)
    rows = connection.execute(query.where(combinations.c.sweep_id == sweep.id).order_by(combinations.c.number)).all()
    active = [row for row in rows if row.stopped is None and row.number not in numbers]
    own = {row.number: row.choices for row in rows if row.number in numbers}
    new = [
        NewRow(choices, nearest_origins(choices, {row.number: row.choices for row in active}))
        for choices in own.values()
    ]
    skipped = (
        sa.select(cells.c.case_number, cells.c.repeat, cells.c.combination, executions.c.id, executions.c.head_id)
        .join(executions, executions.c.id == cells.c.execution_id)
        .where(cells.c.sweep_id == sweep.id, cells.c.status == "skipped", cells.c.combination.in_(list(numbers)))
    )
    stopped_rows = connection.execute(skipped).all()
    heads = marks(connection, [row.head_id for row in stopped_rows])
    points = ForkPoints(connection, sweep, new, strict=False)
    places = list(own)
    heads_by_execution: dict[str, dict[str | None, Mark | None]] = {}
    for part in parts(sorted({(row.case_number, row.repeat) for row in stopped_rows})):
        starts = dict(zip(part, points.starts(part), strict=True))
        for row in stopped_rows:
            if (pair := (row.case_number, row.repeat)) in starts:
                start = starts[pair][places.index(row.combination)]
                if start.is_deferred:
                    raise ConflictError(
                        f"sweep {sweep.name} ({sweep.id}) still runs nodes that a stopped combination shares with "
                        f"others: `wtb pause {sweep.id}` first, restart it, then `wtb resume {sweep.id}`"
                    )
                head = start.head
                heads_by_execution.setdefault(row.id, {})[None if head is None else head.id] = head
    before = {row.id: -1 if row.head_id is None else heads[row.head_id].position["step"] for row in stopped_rows}
    for id, marks_of in heads_by_execution.items():
        head = next(iter(marks_of.values()))
        # Of several combinations that would begin at different places, their common head is the last one they share.
        # A head only moves forward: moving it back would run node runs of the stopped combination again.
        if len(marks_of) == 1 and head is not None and head.position["step"] > before[id]:
            connection.execute(executions.update().where(executions.c.id == id).values(head_id=head.id))


def _lock_standing_for(connection: sa.Connection, sweep_id: str, numbers: Collection[int]) -> list[ExecutionRow]:
    """Return the open executions of a sweep that stand for some combinations, locked in the order of their ids."""
    query = sa.select(executions).where(
        executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS), executions.c.choices.is_(None)
    )
    rows = fetch_records(connection, ExecutionRow, query.order_by(executions.c.id).with_for_update())
    number_set = set(numbers)
    return [row for row in rows if not number_set.isdisjoint(row.combinations)]


def _end_executions(connection: sa.Connection, rows: Sequence[ExecutionRow], stop: Stop, at: float) -> None:
    """Cancel executions that stand for stopped combinations only, and split the others."""
    stopped = set(stop.numbers)
    alone = [row for row in rows if stopped.issuperset(row.combinations)]
    shared = [row for row in rows if not stopped.issuperset(row.combinations)]
    for part in parts([row.id for row in alone]):
        cancel_executions(connection, list(part), stop.reason)
    for row in alone:
        _own(connection, row, row.id, row.combinations)
    ids, new_executions = new_ids(len(shared)), list[NewExecution]()
    for place, row in enumerate(shared):
        lost = [number for number in row.combinations if number in stopped]
        remaining = [number for number in row.combinations if number not in stopped]
        connection.execute(executions.update().where(executions.c.id == row.id).values(combinations=remaining))
        ended: NewExecution = {"status": "cancelled", "reason": stop.reason, "created_at": at, "finished_at": at}
        new_executions.append({**continuing(ids[place], "fork", row, lost), **ended})
    insert_rows(connection, executions, new_executions)
    # After the executions exist, because cells refer to them.
    for execution, row in zip(new_executions, shared, strict=True):
        _own(connection, row, execution["id"], execution["combinations"])


def _own(connection: sa.Connection, row: ExecutionRow, id: str, numbers: Sequence[int]) -> None:
    """Point the open cells of an execution to the one from which they can continue."""
    connection.execute(
        cells.update()
        .where(*of_place(cells, row), cells.c.combination.in_(list(numbers)))
        .where(cells.c.status.in_(sources(CELL, "skipped")))
        .values(execution_id=id)
    )
