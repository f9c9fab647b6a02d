"""Looking at workers: who lives and what they take, what waits for them, and whether anybody looks after it."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple

import sqlalchemy as sa

from wtb.store.access.scope import in_scope
from wtb.store.database import Database
from wtb.store.log import last_times
from wtb.store.rows.sweeps import WorkerRow
from wtb.store.runs.queue import busy_slots, is_live_worker, is_open, queue_of_row
from wtb.store.runs.slots import is_fresh
from wtb.store.tables.schema import (
    events,
    executions,
    is_leased,
    is_pending,
    is_running,
    is_visible,
    now,
    runners,
    sweeps,
    working,
)


def worker_rows(database: Database) -> list[WorkerRow]:
    """The workers that were seen lately, by name."""
    query = (
        sa.select(runners, busy_slots().label("busy"), (now() - runners.c.seen_at).label("seen_s"))
        .where(is_live_worker())
        .order_by(runners.c.worker, runners.c.created_at, runners.c.id)
    )
    return database.records(WorkerRow, query)


def slots_on(database: Database, sweep_id: str) -> int:
    """How many slots of workers that were seen lately work on a sweep."""
    query = (
        sa.select(sa.func.count())
        .select_from(working.join(runners, runners.c.id == working.c.runner_id))
        .where(working.c.sweep_id == sweep_id, is_fresh())
    )
    return database.scalar(query) or 0


def waiting(database: Database, sweep_id: str | None = None) -> dict[str, int]:
    """Pending executions by queue, of a sweep, or of all that workers may take from now."""
    queue = queue_of_row()
    query = sa.select(queue.label("queue"), sa.func.count().label("count")).where(is_pending)
    if sweep_id is not None:
        query = query.where(executions.c.sweep_id == sweep_id)
    else:
        query = query.join(sweeps, sweeps.c.id == executions.c.sweep_id).where(is_open(), *in_scope(database, sweeps))
    return dict(database.tuples(query.group_by(queue)))


def count_claimed(database: Database, sweep_id: str) -> int:
    """The number of executions of a sweep that are claimed under a lease that has not expired."""
    query = sa.select(sa.func.count()).where(
        executions.c.sweep_id == sweep_id, is_running, executions.c.lease_until > now()
    )
    return database.scalar(query) or 0


def rejecting(database: Database, sweep_id: str) -> set[str]:
    """Return the names of live workers that reject the code of a sweep now."""
    query = sa.select(runners.c.worker, runners.c.refused).where(is_live_worker())
    return {worker for worker, refused in database.tuples(query) if sweep_id in (refused or ())}


class Refusal(NamedTuple):
    """Which worker refused a sweep, and why."""

    worker: str
    reason: str


def last_refusal(database: Database, sweep_id: str) -> Refusal | None:
    """The last refusal of a sweep by a worker, unless the sweep was set going again since."""
    query = (
        sa.select(events.c.kind, events.c.data["worker"].as_string(), events.c.data["reason"].as_string())
        .where(events.c.sweep_id == sweep_id, events.c.kind.in_(("worker.refused", "sweep.running")))
        .order_by(events.c.transaction.desc(), events.c.id.desc())
        .limit(1)
    )
    for kind, worker, reason in database.tuples(query):
        if kind == "worker.refused":
            return Refusal(worker, reason)
    return None


def overdue(database: Database, queues: Collection[str], since_s: float) -> set[str]:
    """Executions in these queues that wait although nothing has happened in their sweep for `since_s` seconds."""
    query = (
        sa.select(executions.c.id)
        .join(sweeps, sweeps.c.id == executions.c.sweep_id)
        .where(is_open(), sweeps.c.reason.is_(None), is_pending, queue_of_row().in_(list(queues)))
        .where(executions.c.created_at < now() - since_s, *(last < now() - since_s for last in last_times(sweeps.c.id)))
        .order_by(executions.c.id)
        .limit(1000)
    )
    return set(database.scalars(query))


def left_behind(database: Database, since_s: float) -> int:
    """Executions whose lease expired more than `since_s` seconds ago and that were not reclaimed."""
    query = (
        sa.select(sa.func.count())
        .select_from(executions.join(sweeps, sweeps.c.id == executions.c.sweep_id))
        .where(sweeps.c.queued, is_visible)
        .where(is_leased, executions.c.lease_until < now() - since_s)
    )
    return database.scalar(query) or 0


def clock_ahead(database: Database) -> float:
    """Seconds by which this machine's clock is ahead of the database's, to the precision of a round trip."""
    with database.read() as connection:
        connection.scalar(sa.select(now()))  # what comes first takes longer
        before = time.time()
        there = connection.scalar(sa.select(now())) or before
        return (before + time.time()) / 2 - there
