"""Maintenance of sweeps that workers run: the statements of the scheduler.

Executions of dead workers are reclaimed, those that keep killing workers are given up, and sweeps without open
executions are ended. Each call is a transaction of its own; several schedulers may make it at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import sqlalchemy as sa

from wtb.core.status import OPEN_EXECUTIONS
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.events import event_row, of_execution
from wtb.store.limits.reservations import forget_reservations_of_lost
from wtb.store.log import insert_events
from wtb.store.read.queries import select_sweeps
from wtb.store.rows.executions import LostExecution
from wtb.store.rows.sweeps import OpenSweep
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
    """Whether runners have had the time to renew their leases since the database was started."""
    since = _up_since()
    return sa.or_(since < now() - LEASE_S, is_ahead(since))


def reclaim(database: Database) -> list[LostExecution]:
    """Make executions pending again whose lease has expired, and count the loss.

    Those that were in a node count one more loss; the others count as lost once, whatever happened before, so that the
    next runner is careful. While the database was down nobody could renew a lease, so none expires before it has been
    up for LEASE_S seconds.

    Returns their rows, with what `set_aside` needs, and owner_id: the runner that had them.
    """
    held = executions.alias("held")
    gone = (
        sa.select(held.c.id, held.c.owner_id)
        # `is_leased`, of an alias.
        .where(held.c.status == "running", held.c.owner_id.is_not(None), is_over(held.c.lease_until))
        .where(_is_up_long_enough())
        .order_by(held.c.id)
        .limit(1000)
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
        .where(executions.c.id == gone.c.id, executions.c.sweep_id == sweeps.c.id, sweeps.c.queued, is_visible)
        .values(
            # Where the worker died before it could say that it was in a node, that is only suspected.
            losses=sa.case((in_a_node, executions.c.losses + 1), else_=sa.func.greatest(executions.c.losses, 1)),
        )
        .returning(
            executions.c.id,
            executions.c.session_id,
            executions.c.sweep_id,
            gone.c.owner_id,
            executions.c.losses,
            executions.c.case_number,
            executions.c.repeat,
            executions.c.combinations,
            executions.c.task_id,
        )
    )
    with database.write() as connection:
        rows = fetch_records(connection, LostExecution, query)
        forget_reservations_of_lost(connection)
        insert_events(connection, [_taken_back(row) for row in rows])
    return rows


def _taken_back(row: LostExecution) -> NewEvent:
    about = of_execution(row)
    return event_row(about, "execution.taken_back", {"runner": row.owner_id, "losses": row.losses}, "warning")


def _up_since() -> sa.ColumnElement[float]:
    """When the server started, on its clock. Queues are PostgreSQL's."""
    return sa.cast(sa.extract("epoch", sa.func.pg_postmaster_start_time()), sa.Double)


def end_silent_sessions(database: Database) -> int:
    """End sessions of clients that fell silent in the middle of a transaction that writes. Returns how many.

    A process that was stopped there keeps its locks, and within a pipeline no timeout of PostgreSQL's counts.
    """
    query = sa.text(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
        "AND usename = current_user AND backend_xid IS NOT NULL AND wait_event_type = 'Client' "
        "AND greatest(query_start, state_change) < clock_timestamp() - make_interval(secs => :silent)"
    )
    with database.write() as connection:
        return connection.scalar(query, {"silent": SILENT_S}) or 0


def count_loss(database: Database, line: Sequence[str], reason: str) -> None:
    """Count that an execution broke its worker and was released; after several losses it is given up.

    line: its id, after the ids of the executions that it replaced; those that were not committed do not exist.
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
        gone = connection.execute(
            executions.update()
            .where(executions.c.id == row.id, executions.c.status == "pending")
            .values(status="failed", failure=failure, finished_at=now(), token=executions.c.token + 1)
        )
        if not gone.rowcount:
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
    """Slots of runners that were not seen for long are not busy."""
    stale = sa.select(runners.c.id).where(sa.not_(is_fresh()))
    database.execute(working.delete().where(working.c.runner_id.in_(stale)))


def open_sweeps(database: Database) -> list[OpenSweep]:
    """Sweeps that workers run or will run, those whose turn comes first at the head."""
    left = (
        sa.select(sa.literal(1))
        .where(executions.c.sweep_id == sweeps.c.id, executions.c.status.in_(("pending", "running", "waiting")))
        .exists()
    )
    query = (
        select_sweeps(left.label("unfinished"), (now() - sweeps.c.running_since).label("running_s"))
        .where(is_open())
        .order_by(sweeps.c.priority.desc(), sweeps.c.created_at)
    )
    return database.records(OpenSweep, query)


def unfrozen(database: Database) -> list[str]:
    """Sweeps that ended lately, and whose matrix was not kept since."""
    query = (
        sa.select(sweeps.c.id)
        .outerjoin(matrices, matrices.c.sweep_id == sweeps.c.id)
        .where(
            sweeps.c.queued,
            sweeps.c.status == "completed",
            sweeps.c.finished_at > now() - FREEZE_WITHIN_S,
            sa.func.coalesce(matrices.c.frozen_at, 0.0) < sweeps.c.finished_at,
        )
    )
    return database.scalars(query)


def finish(database: Database, sweep_id: str) -> bool:
    """Complete a sweep that has nothing left to run. Returns True if this call did."""
    # What people forked owns no cell: the sweep does not wait for them to continue with it.
    forked_by_people = sa.and_(executions.c.origin == "manual", executions.c.status.in_(("waiting", "paused")))
    left = sa.select(sa.literal(1)).where(
        executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS), ~forked_by_people
    )
    if database.scalar(left.limit(1)) is not None:
        return False
    # Asked before anything is locked: there may be a million cells.
    finished_at = database.scalar(last_outcome(sweep_id))
    with database.write() as connection:
        status = connection.scalar(
            sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id, sweeps.c.queued).with_for_update()
        )
        if status != "running" or connection.execute(left.limit(1)).first() is not None:
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
