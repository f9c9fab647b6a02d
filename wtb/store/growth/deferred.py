"""Cells of new combinations that wait until running executions have come to what differs, and then begin there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from wtb.core.errors import StoreError
from wtb.core.tree.extensions import extensions
from wtb.store.bulk import fetch_record, fetch_records
from wtb.store.database import Database
from wtb.store.database_errors import gave_way
from wtb.store.growth.fork_points import ForkPoints, NewRow, Start, nearest_origins
from wtb.store.growth.row_cells import Begun, QueueFor, RowCells
from wtb.store.read.queries import select_sweeps
from wtb.store.runs.queue import is_open
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import combinations, executions, sweeps
from wtb.store.tables.sweeps import SweepRow

AT_START = ""  # stands for the first nodes, among the queues of nodes
_is_deferred = sa.and_(executions.c.deferred.is_not(None), executions.c.status == "pending")


def open_with_deferred(database: Database) -> list[str]:
    """Return the sweeps that workers run in which cells are deferred."""
    query = sa.select(executions.c.sweep_id).join(sweeps, sweeps.c.id == executions.c.sweep_id)
    return database.scalars(query.where(_is_deferred, is_open()).distinct().order_by(executions.c.sweep_id))


def begin_deferred(database: Database, sweep_id: str) -> int:
    """Have deferred cells of a sweep begin whose executions have come to what differs, or have ended.

    Several processes may call it at once. One that is in the way of others does nothing, and is called again.

    Args:
        database: Where the sweep is.
        sweep_id: The sweep.

    Returns:
        How many cells began; those that failed alike are among them.
    """
    some = sa.select(executions.c.id).where(executions.c.sweep_id == sweep_id, _is_deferred).limit(1)
    if database.scalar(some) is None:
        return 0
    try:
        with database.write(long=True) as connection:
            return _begin(connection, sweep_id)
    except StoreError as error:
        if not gave_way(error):
            raise
        return 0


def _begin(connection: sa.Connection, sweep_id: str) -> int:
    query = sa.select(executions).where(executions.c.sweep_id == sweep_id, _is_deferred).order_by(executions.c.id)
    held = fetch_records(connection, ExecutionRow, query.with_for_update(skip_locked=True))
    sweep = fetch_record(connection, SweepRow, select_sweeps().where(sweeps.c.id == sweep_id))
    if not held or sweep is None:
        return 0
    rows = _rows(connection, sweep, {number for execution in held for number in execution.combinations})
    points = ForkPoints(connection, sweep, list(rows.values()), strict=False)
    pairs = [(execution.case_number, execution.repeat) for execution in held]
    places = {number: place for place, number in enumerate(rows)}
    count = 0
    for execution, starts in zip(held, points.starts(pairs), strict=True):
        known = [number for number in execution.combinations if not starts[places[number]].is_deferred]
        if known:
            _settle(connection, sweep, execution, {number: starts[places[number]] for number in known})
            count += len(known)
    return count


def _settle(connection: sa.Connection, sweep: SweepRow, execution: ExecutionRow, starts: Mapping[int, Start]) -> None:
    """Give cells of a deferred execution those that they begin with, and remove it once it stands for none."""
    queues = execution.deferred or {}
    builder = RowCells(connection, sweep, _queue_for(queues), Begun(), share=True, queues=queues, are_present=True)
    builder.add((execution.case_number, execution.repeat), list(starts), list(starts.values()))
    builder.write()
    left = [number for number in execution.combinations if number not in starts]
    this = executions.c.id == execution.id
    if left:
        connection.execute(executions.update().where(this).values(combinations=left))
    else:
        connection.execute(executions.delete().where(this))


def _queue_for(queues: Mapping[str, str]) -> QueueFor:
    def queue_for(nodes: Sequence[str] | None) -> str | None:
        names = [AT_START] if nodes is None else nodes
        return next((queues[name] for name in names if name in queues), None)

    return queue_for


def _rows(connection: sa.Connection, sweep: SweepRow, numbers: Collection[int]) -> dict[int, NewRow]:
    """Return deferred combinations by number, each with those added before it that it may be made from."""
    query = sa.select(combinations.c.number, combinations.c.choices, combinations.c.stopped)
    every = connection.execute(query.where(combinations.c.sweep_id == sweep.id).order_by(combinations.c.number)).all()
    choices = {row.number: row.choices for row in every}
    firsts = {number: min(one["combinations"]) for one in extensions(sweep.spec) for number in one["combinations"]}
    found = {}
    for number in sorted(numbers):
        others = {row.number: row.choices for row in every if row.number < firsts[number] and row.stopped is None}
        found[number] = NewRow(choices[number], nearest_origins(choices[number], others))
    return found
