"""Deletion of sweeps and sessions. Values and files stay until nothing references them any more.

One update hides a sweep at once; its rows are removed later, in transactions so short that nobody waits for one. If a
process is killed in between, garbage collections and the scheduler continue with the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.fault_points import point
from wtb.store.access.sessions import check_not_default, locked_session
from wtb.store.access.usage import remember_spent, total
from wtb.store.database import Database
from wtb.store.database_url import QUERY_CANCELED, gave_way, sqlstate
from wtb.store.housekeeping.retention import check_in_no_pool, locked_sweep, note_scored
from wtb.store.process_identity import Owner
from wtb.store.read.baselines import check_no_baseline
from wtb.store.read.queries import usd_spent
from wtb.store.records import OwnerRow, SlotHolder
from wtb.store.runs.leases import owners_of, releasing
from wtb.store.runs.slots import slot_holders
from wtb.store.tables.schema import (
    baselines,
    budgets,
    cases,
    cells,
    checkpoints,
    combinations,
    events,
    executions,
    files,
    is_visible,
    looks,
    metadata,
    node_runs,
    now,
    pooled,
    runners,
    scores,
    sessions,
    sweeps,
    thread_checkpoints,
    thread_writes,
)

SUBMISSION_S = 600.0  # after its last batch a submission counts as given up
PART_S = 0.02  # target duration of a transaction that deletes
_LEAST, _MOST = 50, 5_000  # rows of such a transaction
ITSELF_S = 0.3  # limit for a statement of the transaction that removes the sweep's own row
_TRIES = 5

# Tables of a sweep, those that refer to others first, each with the columns of an index that orders its rows: otherwise
# every part would read again the rows that earlier parts deleted. Node runs take their attempts and calls with them.
_OWNED: tuple[tuple[sa.Table, tuple[str, ...]], ...] = (
    (events, ("transaction", "id")),
    (scores, ("metric", "case_number", "repeat", "combination")),
    (node_runs, ("ended_transaction", "ended_event")),
    (checkpoints, ("created_transaction", "created_event")),
    (cells, ("case_number", "repeat", "combination")),
    (executions, ("case_number", "repeat")),
    (cases, ("number",)),
    (combinations, ("number",)),
)
_OF_SESSION: tuple[tuple[sa.Table, tuple[str, ...]], ...] = (
    (files, ("digest",)),
    (thread_writes, ("thread_id", "namespace", "checkpoint_id")),
    (thread_checkpoints, ("thread_id", "namespace", "id")),
)


def delete_sweep(database: Database, sweep_id: str, until: Callable[[], bool] = lambda: False) -> bool:
    """Delete a sweep: hide it at once, and then remove its rows.

    Args:
        database: The database.
        sweep_id: The sweep; if it is being deleted already, its deletion continues.
        until: Called between two transactions; when it returns True, the rest stays for `remove_hidden`.

    Returns:
        True if all its rows are removed.

    Raises:
        ConflictError: If it is a baseline; nothing was deleted then.
    """
    begin_deletion(database, sweep_id)
    return remove_rows(database, sweep_id, until)


def begin_deletion(database: Database, sweep_id: str, *conditions: sa.ColumnElement[bool]) -> bool:
    """Hide a sweep. Returns False if it does not exist or does not meet these conditions.

    Raises:
        ConflictError: If it is a baseline, or part of a pool.
    """
    usd = usd_spent(database, sweep_id)  # read before any lock: there may be a million attempts
    with database.write() as connection:
        if locked_sweep(connection, sweep_id, *conditions) is None:  # so that it becomes no baseline meanwhile
            return False
        check_no_baseline(connection, sweep_id)
        check_in_no_pool(connection, sweep_id)
        remember_spent(connection, sweep_id, usd)
        _hide(connection, sweeps.c.id == sweep_id)
    point("delete.hidden")
    return True


def _hide(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Hide sweeps, and take their executions from the runners that still have them."""
    ids = sa.select(sweeps.c.id).where(which)
    note_scored(connection, looks.c.sweep_id.in_(ids))
    connection.execute(pooled.delete().where(pooled.c.pool_id.in_(ids)))  # so that its sources can be deleted, too
    connection.execute(releasing().where(executions.c.sweep_id.in_(ids), executions.c.status == "running"))
    connection.execute(sweeps.update().where(which).values(status="deleting", notify=None))


def discard_submission(database: Database, sweep_id: str) -> None:
    """Delete the rows of a submission, unless it was completed."""
    with database.write() as connection:
        _hide(connection, sa.and_(sweeps.c.id == sweep_id, sweeps.c.status == "submitting"))
    remove_rows(database, sweep_id)


def remove_hidden(database: Database, until: Callable[[], bool] = lambda: False) -> int:
    """Remove the rows of sweeps that were deleted, or whose submission was given up.

    Args:
        database: The database.
        until: As for `delete_sweep`.

    Returns:
        The number of these sweeps that are removed completely.
    """
    with database.read() as connection:
        hidden = hidden_sweeps(connection)
    if hidden:
        with database.write() as connection:
            _hide(connection, _given_up())
    return sum(remove_rows(database, sweep_id, until) for sweep_id in hidden)


def hidden_sweeps(connection: sa.Connection) -> list[str]:
    """Return the sweeps whose rows `remove_hidden` removes."""
    query = sa.select(sweeps.c.id).where(sa.or_(sweeps.c.status == "deleting", _given_up()))
    return list(connection.scalars(query.order_by(sweeps.c.id)))


def _given_up() -> sa.ColumnElement[bool]:
    # Each batch of a submission renews the time.
    return sa.and_(sweeps.c.status == "submitting", sweeps.c.created_at < now() - SUBMISSION_S)


def remove_rows(database: Database, sweep_id: str, until: Callable[[], bool] = lambda: False) -> bool:
    """Remove the rows of a sweep that is being deleted. Returns whether all are removed. `until` is as for
    `delete_sweep`.
    """
    if database.scalar(sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id)) != "deleting":
        return False
    for table, order in _OWNED:
        if not _remove_parts(database, table, table.c.sweep_id == sweep_id, order, until):
            return False
    for _ in range(1 if database.is_sqlite else _TRIES):
        _pass_what_was_removed(database, sweep_id)
        try:
            # Rows that came late, from a runner that had not noticed, make it
            # fail or take long: then it is tried again.
            _remove_itself(database, sweep_id)
        except StoreError as error:
            if sqlstate(error) != QUERY_CANCELED:
                raise
        else:
            return True
        if until():
            break
    return False  # its own row, which nobody sees, stays for a later round


def _remove_itself(database: Database, sweep_id: str) -> None:
    """Remove the row of a sweep and late rows of it, or nothing if a statement takes longer than `ITSELF_S`."""
    with database.write() as connection:
        _by_index(connection)
        if not database.is_sqlite:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {round(1000 * ITSELF_S)}")
        connection.execute(budgets.delete().where(budgets.c.scope == "sweep", budgets.c.key == sweep_id))
        connection.execute(events.delete().where(events.c.sweep_id == sweep_id))
        connection.execute(sweeps.delete().where(sweeps.c.id == sweep_id, sweeps.c.status == "deleting"))


def _pass_what_was_removed(database: Database, sweep_id: str) -> None:
    """Read the index entries of removed rows, so that PostgreSQL can skip them when the row of the sweep is removed.

    On removal PostgreSQL checks each table that refers to sweeps. A million rows that were just removed are still in
    its indexes then. The first reader that passes them marks them as dead, unless an open transaction may still see
    them. In the transaction that removes the sweep, all followers of the log would wait for that. Rows that another
    process is removing are skipped.
    """
    if database.is_sqlite:
        return
    for table in metadata.sorted_tables:
        for key in table.foreign_keys:
            if key.column is sweeps.c.id:
                references = sa.select(sa.literal(1)).where(key.parent == sweep_id)
                with database.write(long=True) as connection:
                    _by_index(connection)
                    # The same lock as PostgreSQL takes for its check, so that the planner chooses the same index.
                    connection.execute(references.with_for_update(read=True, key_share=True, skip_locked=True))


def _by_index(connection: sa.Connection) -> None:
    """Make PostgreSQL look up rows by an index in a transaction, whatever its statistics.

    They still count the rows that were just removed, so that it would read the whole table for the few others.
    """
    if connection.dialect.name != "sqlite":
        for way in ("seqscan", "bitmapscan"):
            connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")


def _remove_parts(
    database: Database,
    table: sa.Table,
    which: sa.ColumnElement[bool],
    order: tuple[str, ...],
    until: Callable[[], bool],
) -> bool:
    """Remove rows from a table, as many at a time as take about `PART_S`. Returns whether all are gone."""
    size, since = _LEAST, None
    while not until():
        started = time.monotonic()
        try:
            removed, last = _remove_part(database, table, which, order, since, size)
        except StoreError as error:
            if not gave_way(error):
                raise
            continue  # a scheduler removes them, too, or a runner has not noticed yet
        point("delete.part")
        if removed < size and since is None:
            return True
        since = last if removed == size else None  # at the end, once more from the beginning: rows may have come late
        took = max(time.monotonic() - started, 1e-6)
        # At most twice as many as before, because the time of a small part is mostly overhead and varies.
        size = max(_LEAST, min(_MOST, 2 * size, round(size * PART_S / took)))
    return False


_Place = tuple[Any, ...]  # of a row in the order in which rows go


def _remove_part(
    database: Database,
    table: sa.Table,
    which: sa.ColumnElement[bool],
    order: tuple[str, ...],
    since: _Place | None,
    limit: int,
) -> tuple[int, _Place | None]:
    """Remove the next rows. Returns how many, and the place of the last one.

    `since` is the end of the part before, if known. On PostgreSQL the removed rows are still in the index, and a search
    from the beginning would pass all of them.
    """
    row: sa.ColumnElement[Any] = sa.literal_column("rowid" if database.is_sqlite else "ctid")
    columns = [table.c[name] for name in order]
    first = sa.select(row).select_from(table).where(which).order_by(*columns).limit(limit)
    if since is not None and not database.is_sqlite:
        place = (sa.literal(coordinate, column.type) for coordinate, column in zip(since, columns, strict=True))
        first = first.where(sa.tuple_(*columns) >= sa.tuple_(*place))
    # PostgreSQL looks up a list of places in the table at once, and would join with what a query gives.
    some = row.in_(first) if database.is_sqlite else row == sa.func.any(sa.func.array(first.scalar_subquery()))
    with database.write(long=True) as connection:
        removed = connection.execute(table.delete().where(some).returning(*columns)).all()
    places = [tuple(key) for key in removed if None not in key]
    return len(removed), max(places, default=None) if len(places) == len(removed) else None


class MayLive(Protocol):
    def __call__(self, owner: Owner, *, expired: bool) -> bool: ...


def check_deletable(session_id: str) -> None:
    """Raise ConflictError for the default session."""
    check_not_default(session_id, "deleted")


def sweeps_of(database: Database, session_id: str) -> list[tuple[str, str]]:
    """List the sweeps of a session by id, with the project of each."""
    return database.tuples(sa.select(sweeps.c.id, sweeps.c.project).where(sweeps.c.session_id == session_id))


def delete_session(database: Database, session_id: str, *, may_live: MayLive) -> dict[str, int]:
    """Delete a session with its sweeps, events and runners.

    Args:
        database: The database.
        session_id: The session.
        may_live: Returns False for a runner that is dead, by the identity of its process and by `expired`: whether
            its leases have run out.

    Returns:
        How many `sweeps`, `cells` and `files` it had.

    Raises:
        ConflictError: For the default session, or naming a runner that may live; nothing is deleted then.
    """
    check_deletable(session_id)
    mine = sweeps.c.session_id == session_id
    count = sa.func.count()
    with database.write() as connection:
        _check_idle(connection, session_id, may_live)
        had, of_cells = connection.execute(sa.select(count, total(sweeps.c.cells)).where(mine, is_visible)).one()
        noted = connection.scalar(sa.select(count).where(files.c.session_id == session_id)) or 0
        connection.execute(baselines.delete().where(baselines.c.session_id == session_id))
        _hide(connection, mine)
        for sweep_id in connection.scalars(
            sa.select(pooled.c.sweep_id).join(sweeps, sweeps.c.id == pooled.c.sweep_id).where(mine)
        ).all():
            check_in_no_pool(connection, sweep_id)  # a pool of another session
    # Outside of that transaction, in short ones: the sweeps are hidden, and a session may have millions of rows.
    for sweep_id in database.scalars(sa.select(sweeps.c.id).where(mine)):
        remove_rows(database, sweep_id)
    for table, order in _OF_SESSION:
        _remove_parts(database, table, table.c.session_id == session_id, order, lambda: False)
    with database.write() as connection:
        _by_index(connection)
        _check_idle(connection, session_id, may_live)  # of what was submitted meanwhile, too
        ids = sa.select(sweeps.c.id).where(mine)
        connection.execute(events.delete().where(events.c.sweep_id.in_(ids)))
        theirs = sa.and_(budgets.c.scope == "sweep", budgets.c.key.in_(ids))
        own = sa.and_(budgets.c.scope == "session", budgets.c.key == session_id)
        connection.execute(budgets.delete().where(sa.or_(theirs, own)))
        for table in (baselines, sweeps, files, runners, thread_checkpoints, thread_writes):
            connection.execute(table.delete().where(table.c.session_id == session_id))
        connection.execute(sessions.delete().where(sessions.c.id == session_id))
    return {"sweeps": had, "cells": of_cells, "files": noted}


def _check_idle(connection: sa.Connection, session_id: str, may_live: MayLive) -> None:
    """Lock a session that is to be deleted. Raises ConflictError that names a runner that may live."""
    session = locked_session(connection, session_id, to_delete=True)
    running = owners_of(connection, sweeps.c.session_id == session_id)
    owners: list[OwnerRow | SlotHolder] = [*running, *slot_holders(connection, session_id)]
    for owner in owners:
        runs = owner if isinstance(owner, OwnerRow) else None
        if may_live(
            owner, expired=runs is not None and runs.expired
        ):  # a runner that holds slots has a recent heartbeat
            sweep = "a sweep of it" if runs is None else f"sweep {runs.sweep}"
            raise ConflictError(
                f"session {session.name!r}: process {owner.pid} on {owner.host} is running {sweep}; "
                "stop that process first"
            )
