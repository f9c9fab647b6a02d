"""Maintenance of sweeps that workers run: the statements of the scheduler.

Executions of dead workers are reclaimed, those that keep killing workers are given up, and sweeps without open
executions are ended. Each call is a transaction of its own; several schedulers may make it at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import sqlalchemy as sa

from wtb.core.status import OPEN_EXECUTIONS
from wtb.store.access.reservations import forget_reservations_of_lost
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.log import event_row, insert_events, of_execution
from wtb.store.read.queries import select_sweeps
from wtb.store.records import LostExecution, OpenSweep
from wtb.store.runs.leases import last_outcome, move_cells, releasing, stop_nodes, try_move
from wtb.store.runs.queue import is_open
from wtb.store.runs.slots import LEASE_S, is_fresh
from wtb.store.tables.column_types import is_ahead, is_over
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import (
    cases,
    executions,
    is_pending,
    is_visible,
    matrices,
    node_runs,
    now,
    runners,
    sweeps,
    working,
)
from wtb.store.tables.sweeps import NewEvent, SweepRow

SCHEDULER_INTERVAL_S = float(os.environ.get("WTB_SCHEDULER_INTERVAL_S", "5"))  # between two rounds of the scheduler
FREEZE_WITHIN_S = 600.0
SILENT_S = max(LEASE_S, 5.0)  # between two statements of a transaction that writes
SET_ASIDE_LOSSES = 8  # leases that ran out while one and the same execution was in a node


def _is_up_long_enough() -> sa.ColumnElement[bool]:
    """Return the condition that the database has been up for as long as a lease, so that runners could renew theirs."""
    since = _up_since()
    return sa.or_(since < now() - LEASE_S, is_ahead(since))


def reclaim(database: Database) -> list[LostExecution]:
    """Make executions pending again whose lease has expired, and count the loss.

    Executions that were in a node count one more loss. Others count as lost once, whatever happened before, so that the
    next runner is careful. Nobody can renew a lease while the database is down, so none expires before it has been up
    for LEASE_S seconds.

    Returns:
        Their rows, with the columns that `set_aside` needs, and owner_id: the runner that had claimed them.
    """
    leased = executions.alias("held")
    expired = (
        sa.select(leased.c.id, leased.c.owner_id)
        # `is_leased`, of an alias.
        .where(leased.c.status == "running", leased.c.owner_id.is_not(None), is_over(leased.c.lease_until))
        .where(_is_up_long_enough())
        .order_by(leased.c.id)
        .limit(1000)
        # A locked row is one that another scheduler reclaims, or whose runner is just renewing the lease.
        .with_for_update(skip_locked=True)
        .cte("gone")
    )
    in_a_node = (
        sa.select(sa.literal(1))
        .where(node_runs.c.execution_id == executions.c.id, node_runs.c.status == "running")
        .exists()
    )
    query = (
        releasing()
        .where(executions.c.id == expired.c.id, executions.c.sweep_id == sweeps.c.id, sweeps.c.queued, is_visible)
        .values(
            # A worker that died before it recorded that it was in a node is only suspected to have died there.
            losses=sa.case((in_a_node, executions.c.losses + 1), else_=sa.func.greatest(executions.c.losses, 1))
        )
        .returning(
            *(executions.c[name] for name in ("id", "session_id", "sweep_id")),
            expired.c.owner_id,
            *(executions.c[name] for name in ("losses", "case_number", "repeat", "combinations", "task_id")),
        )
    )
    with database.write() as connection:
        rows = fetch_records(connection, LostExecution, query)
        forget_reservations_of_lost(connection)
        insert_events(connection, [_reclaimed_event(row) for row in rows])
    return rows


def _reclaimed_event(row: LostExecution) -> NewEvent:
    about = of_execution(row)
    return event_row(about, "execution.taken_back", {"runner": row.owner_id, "losses": row.losses}, "warning")


def _up_since() -> sa.ColumnElement[float]:
    """Return the time at which the server started, on its clock. Queues need PostgreSQL."""
    return sa.cast(sa.extract("epoch", sa.func.pg_postmaster_start_time()), sa.Double)


def end_silent_sessions(database: Database) -> int:
    """End database sessions whose client fell silent in the middle of a transaction that writes. Returns how many.

    A process that was stopped there keeps its locks, and no timeout of PostgreSQL applies within a pipeline.
    """
    # A transaction has an xid once it has written, and waits for its client while no statement of it runs.
    query = sa.text(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
        "AND usename = current_user AND backend_xid IS NOT NULL AND wait_event_type = 'Client' "
        "AND greatest(query_start, state_change) < clock_timestamp() - make_interval(secs => :silent)"
    )
    with database.write() as connection:
        return connection.scalar(query, {"silent": SILENT_S}) or 0


def count_loss(database: Database, line: Sequence[str], reason: str) -> None:
    """Count that an execution broke its worker and was released; after several losses it is given up.

    Args:
        database: The database.
        line: The id of the execution, after those of the executions that it replaced. Uncommitted ones have no row.
        reason: The last failure of its worker.
    """
    query = (
        executions.update()
        .where(executions.c.id.in_(list(line)), executions.c.status == "pending")
        .values(losses=executions.c.losses + 1)
        .returning(executions)
    )
    with database.write() as connection:
        rows = fetch_records(connection, ExecutionRow, query)
    for row in rows:
        if row.losses >= SET_ASIDE_LOSSES:
            set_aside(database, row, f"it broke its worker {row.losses} times, at last by {reason}")


def set_aside(database: Database, row: ExecutionRow | LostExecution, why: str | None = None) -> bool:
    """Give up an execution whose workers kept dying while it was in a node. Returns True if this call did."""
    message = why or f"its worker died {row.losses} times while it was in a node"
    failure = {"kind": "killed", "type": "WorkerLost", "message": message, "trace": "", "final": True}
    with database.write() as connection:
        moved = connection.execute(
            executions.update()
            .where(executions.c.id == row.id, executions.c.status == "pending")
            .values(status="failed", failure=failure, finished_at=now(), token=executions.c.token + 1)
        )
        if not moved.rowcount:
            return False
        stop_nodes(connection, [row.id])
        case = connection.scalar(
            sa.select(cases.c.id).where(cases.c.sweep_id == row.sweep_id, cases.c.number == row.case_number)
        )
        move_cells(connection, row, "set_aside", failure=failure, finished_at=now())
        about, shared = of_execution(row), {"case": case, "repeat": row.repeat, "error": message}
        events = [event_row(about, "execution.failed", {"cells": len(row.combinations), "error": message}, "error")]
        for number in row.combinations:
            events.append(event_row(about, "cell.set_aside", {**shared, "combination": number}, "error"))
        insert_events(connection, events)
    return True


def forget_dead_slots(database: Database) -> None:
    """Free the slots of runners whose heartbeat is too old."""
    stale = sa.select(runners.c.id).where(sa.not_(is_fresh()))
    database.execute(working.delete().where(working.c.runner_id.in_(stale)))


def open_sweeps(database: Database) -> list[OpenSweep]:
    """Return the sweeps that workers run or will run, in the order in which they are served."""
    has_unfinished = (
        sa.select(sa.literal(1))
        .where(executions.c.sweep_id == sweeps.c.id, executions.c.status.in_(("pending", "running", "waiting")))
        .exists()
    )
    query = (
        select_sweeps(has_unfinished.label("unfinished"), (now() - sweeps.c.running_since).label("running_s"))
        .where(is_open())
        .order_by(sweeps.c.priority.desc(), sweeps.c.created_at)
    )
    return database.records(OpenSweep, query)


def unfrozen(database: Database) -> list[str]:
    """Return the sweeps that ended lately and whose matrix has not been stored since."""
    query = (
        sa.select(sweeps.c.id)
        .outerjoin(matrices, matrices.c.sweep_id == sweeps.c.id)
        .where(
            sweeps.c.queued,
            sweeps.c.status == "completed",
            sweeps.c.finished_at > now() - FREEZE_WITHIN_S,
            # A sweep that was reopened since has a matrix of its earlier end.
            sa.func.coalesce(matrices.c.frozen_at, 0.0) < sweeps.c.finished_at,
        )
    )
    return database.scalars(query)


def finish(database: Database, sweep_id: str) -> bool:
    """Complete a sweep that has nothing left to run. Returns True if this call did."""
    # Forks that people made own no cells, so a sweep does not wait until people continue them.
    forked_by_people = sa.and_(executions.c.origin == "manual", executions.c.status.in_(("waiting", "paused")))
    unfinished = sa.select(sa.literal(1)).where(
        executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS), ~forked_by_people
    )
    if database.scalar(unfinished.limit(1)) is not None:
        return False
    # Read before anything is locked, because there may be a million cells.
    finished_at = database.scalar(last_outcome(sweep_id))
    with database.write() as connection:
        status = connection.scalar(
            sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id, sweeps.c.queued).with_for_update()
        )
        # Checked again under the lock, because an execution may have been reopened since.
        if status != "running" or connection.execute(unfinished.limit(1)).first() is not None:
            return False
        return try_move(connection, sweep_id, "completed", by="worker", finished_at=finished_at)


def left_by_servers(database: Database) -> list[SweepRow]:
    """Return the sweeps that a server runs itself and that have not ended, the oldest first."""
    has_not_ended = sweeps.c.status.in_(("pending", "running", "paused"))
    query = select_sweeps().where(~sweeps.c.queued, has_not_ended).order_by(sweeps.c.id)
    return [row for row in database.records(SweepRow, query) if row.spec.get("served")]


def has_pending(database: Database, sweep_id: str) -> bool:
    """Return whether an execution of a sweep waits to be run."""
    query = sa.select(executions.c.id).where(executions.c.sweep_id == sweep_id, is_pending).limit(1)
    return bool(database.scalars(query))
