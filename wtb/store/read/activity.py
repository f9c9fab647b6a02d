"""Figures for monitoring systems: counts of everything by project and status, live workers, and work that waits."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import field, fields
from typing import Final, NamedTuple

import sqlalchemy as sa

from wtb.core.frozen import frozen
from wtb.core.status import OPEN_SWEEPS
from wtb.store.access.projects import in_scope
from wtb.store.cell_status import attempt_column, is_attempt, node_runs_with_attempts, running_cells, with_running
from wtb.store.database import Database
from wtb.store.log import LogPosition, last_times
from wtb.store.log_followers import open_transactions
from wtb.store.records import WorkerRow
from wtb.store.runs.queue import busy_slots, is_live_worker, is_open, queue_of_row
from wtb.store.runs.slots import is_fresh
from wtb.store.tables.schema import (
    attempts,
    cells,
    events,
    executions,
    is_leased,
    is_pending,
    is_running,
    is_visible,
    log_ids,
    node_runs,
    now,
    runners,
    sweeps,
    working,
)

LAST_ID: Final = 2**63 - 1  # the largest id of an event


@frozen
class SweepState:
    """The state of a sweep.

    Attributes:
        id: Its id.
        project: Its project.
        status: Its status.
        finished_at: When it ended; None while it may change.
        cells: The number of its cells.
        collected_usd: The cost of attempts that were removed by garbage collections.
        collected_node_runs: The number of node runs that were removed by garbage collections.
    """

    id: str
    project: str
    status: str
    finished_at: float | None
    cells: int
    collected_usd: float
    collected_node_runs: int


@frozen
class Counts:
    """The contents of a sweep so far.

    Attributes:
        cells: The numbers of cells by status.
        node_runs: The numbers of node runs by status.
        attempts: The numbers of attempts by status; `lost` ones were ended by the failure of another, `running` ones
            have not ended.
        usd: Their cost in US dollars.
        lease_losses: How often a lease of its executions ran out in a node.
    """

    cells: Mapping[str, int] = field(default_factory=dict)
    node_runs: Mapping[str, int] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    usd: float = 0.0
    lease_losses: int = 0


@frozen
class Queue:
    """The executions of a project that wait for workers.

    Attributes:
        project: The project.
        executions: How many wait.
        oldest_s: For how long the first of them has waited.
    """

    project: str
    executions: int
    oldest_s: float


def sweep_states(database: Database) -> list[SweepState]:
    """Return the states of all sweeps that the caller may see."""
    columns = (sweeps.c[column.name] for column in fields(SweepState))
    return database.records(SweepState, sa.select(*columns).where(is_visible, *in_scope(database, sweeps)))


def count(database: Database, sweep_ids: Collection[str]) -> dict[str, Counts]:
    """Count the contents of sweeps; each figure reads all rows of these sweeps.

    Args:
        database: The database.
        sweep_ids: The sweeps, some hundreds at most.

    Returns:
        The counts of each sweep by its id.
    """
    by_cell = _by_status(database, cells, sweep_ids)
    with database.read() as connection:
        for id, running in running_cells(connection, [id for id in sweep_ids if by_cell[id].get("pending")]).items():
            by_cell[id] = with_running(by_cell[id], sum(running.values()))
    by_run = _by_status(database, node_runs, sweep_ids)
    by_attempt, usd = _attempts(database, sweep_ids)
    losses = sa.select(executions.c.sweep_id, sa.func.sum(executions.c.losses)).where(
        executions.c.sweep_id.in_(sweep_ids), executions.c.losses > 0
    )
    lost = {id: int(number) for id, number in database.tuples(losses.group_by(executions.c.sweep_id), long=True)}
    return {id: Counts(by_cell[id], by_run[id], by_attempt[id], usd.get(id, 0.0), lost.get(id, 0)) for id in sweep_ids}


def queues(database: Database) -> list[Queue]:
    """Return the executions that wait for workers, by projects that the caller may see."""
    query = (
        sa.select(sweeps.c.project, sa.func.count(), now() - sa.func.min(executions.c.created_at))
        .select_from(executions.join(sweeps, sweeps.c.id == executions.c.sweep_id))
        .where(is_open(), is_pending, *in_scope(database, sweeps))
        .group_by(sweeps.c.project)
    )
    return [Queue(project, number, max(0.0, oldest_s)) for project, number, oldest_s in database.tuples(query)]


_ByStatus = defaultdict[str, dict[str, int]]


def _by_status(database: Database, table: sa.Table, sweep_ids: Collection[str]) -> _ByStatus:
    """Return the numbers of rows by sweep and status."""
    counts: _ByStatus = defaultdict(dict)
    by = table.c.sweep_id, table.c.status
    query = sa.select(*by, sa.func.count()).where(table.c.sweep_id.in_(sweep_ids)).group_by(*by)
    for id, status, number in database.tuples(query, long=True):
        counts[id][status] = number
    return counts


def _attempts(database: Database, sweep_ids: Collection[str]) -> tuple[_ByStatus, dict[str, float]]:
    """Return the numbers of attempts by sweep and outcome, and the US dollars of all of them by sweep."""
    status = attempt_column("status")
    lost = sa.func.coalesce(attempts.c.failure["kind"].as_string(), "") == "lost"
    under_way = sa.and_(node_runs.c.status == "running", attempt_column("number") == node_runs.c.attempts)
    failed = sa.case((under_way, "running"), (lost, "lost"), else_="failed")
    outcome = sa.case((status == "failed", failed), else_=status).label("outcome")
    each = (
        sa.select(node_runs.c.sweep_id, outcome, attempt_column("usd"))
        .select_from(node_runs_with_attempts)
        .where(node_runs.c.sweep_id.in_(sweep_ids), is_attempt)
        .subquery()
    )
    query = sa.select(each.c.sweep_id, each.c.outcome, sa.func.count(), sa.func.sum(each.c.usd))
    counts: _ByStatus = defaultdict(dict)
    usd: dict[str, float] = defaultdict(float)
    for id, status, number, spent in database.tuples(query.group_by(each.c.sweep_id, each.c.outcome), long=True):
        counts[id][status] = number
        usd[id] += spent
    return counts, usd


class LivelySweep(NamedTuple):
    """A sweep that is open, or has ended lately."""

    id: str
    status: str
    finished_at: float | None

    @property
    def is_open(self) -> bool:
        """True if it runs, will run or is paused."""
        return self.status in (*OPEN_SWEEPS, "paused")


def lively_sweeps(database: Database, within_s: float = 600.0) -> list[LivelySweep]:
    """Return the sweeps that are open, and those that have ended within some seconds."""
    open_ones = sweeps.c.status.in_((*OPEN_SWEEPS, "paused"))
    query = sa.select(sweeps.c.id, sweeps.c.status, sweeps.c.finished_at).where(
        is_visible, sa.or_(open_ones, sweeps.c.finished_at >= now() - within_s), *in_scope(database, sweeps)
    )
    return [LivelySweep(*row) for row in database.tuples(query)]


@frozen
class Moment:
    """A moment of the log of a whole database.

    Attributes:
        position: The position before all events of open and later transactions.
        settled: All transactions before this number have ended; on SQLite, which has one writer, all of them have.
        newest: The number after that of each transaction which has begun to write.
    """

    position: LogPosition
    settled: int
    newest: int


def read_moment(database: Database) -> Moment:
    """Return the present moment of the log."""
    if database.is_sqlite:
        with database.read() as connection:
            last = connection.scalar(sa.select(log_ids.c.last))
            return Moment((0, last or connection.scalar(sa.select(sa.func.max(events.c.id))) or 0), 0, 0)
    oldest, next_one = open_transactions(database)
    # Transactions before the oldest open one have ended, so all their events are visible.
    return Moment((oldest - 1, LAST_ID), oldest, next_one)


def worker_rows(database: Database) -> list[WorkerRow]:
    """Return the workers with a recent heartbeat, by name."""
    query = (
        sa.select(runners, busy_slots().label("busy"), (now() - runners.c.seen_at).label("seen_s"))
        .where(is_live_worker())
        .order_by(runners.c.worker, runners.c.created_at, runners.c.id)
    )
    return database.records(WorkerRow, query)


def slots_on(database: Database, sweep_id: str) -> int:
    """Return the number of slots of live workers that work on a sweep."""
    source = working.join(runners, runners.c.id == working.c.runner_id)
    return database.count(working.c.sweep_id == sweep_id, is_fresh(), source=source)


def waiting(database: Database, sweep_id: str | None = None) -> dict[str, int]:
    """Count pending executions by queue, of one sweep, or of all that workers may claim now."""
    queue = queue_of_row()
    query = sa.select(queue.label("queue"), sa.func.count().label("count")).where(is_pending)
    if sweep_id is not None:
        query = query.where(executions.c.sweep_id == sweep_id)
    else:
        query = query.join(sweeps, sweeps.c.id == executions.c.sweep_id).where(is_open(), *in_scope(database, sweeps))
    return dict(database.tuples(query.group_by(queue)))


def count_claimed(database: Database, sweep_id: str) -> int:
    """Return the number of executions of a sweep that are claimed under a valid lease."""
    return database.count(executions.c.sweep_id == sweep_id, is_running, executions.c.lease_until > now())


def rejecting(database: Database, sweep_id: str) -> set[str]:
    """Return the names of live workers that reject the code of a sweep now."""
    query = sa.select(runners.c.worker, runners.c.refused).where(is_live_worker())
    return {worker for worker, refused in database.tuples(query) if sweep_id in (refused or ())}


class Refusal(NamedTuple):
    """The worker that rejected a sweep, and its reason."""

    worker: str
    reason: str


def last_refusal(database: Database, sweep_id: str) -> Refusal | None:
    """Return the last rejection of a sweep by a worker, unless the sweep was started again since."""
    query = (
        sa.select(events.c.kind, events.c.data["worker"].as_string(), events.c.data["reason"].as_string())
        .where(events.c.sweep_id == sweep_id, events.c.kind.in_(("worker.refused", "sweep.running")))
        .order_by(events.c.transaction.desc(), events.c.id.desc())
        .limit(1)
    )
    for kind, worker, reason in database.tuples(query):
        # A later start of the sweep makes an earlier rejection obsolete.
        if kind == "worker.refused":
            return Refusal(worker, reason)
    return None


def overdue(database: Database, queues: Collection[str], since_s: float) -> set[str]:
    """Return executions in these queues that wait although nothing has happened in their sweep for `since_s`
    seconds.
    """
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
    """Return the number of executions whose lease expired more than `since_s` seconds ago and that were not
    reclaimed.
    """
    expired = executions.c.lease_until < now() - since_s
    source = executions.join(sweeps, sweeps.c.id == executions.c.sweep_id)
    return database.count(sweeps.c.queued, is_visible, is_leased, expired, source=source)


def clock_ahead(database: Database) -> float:
    """Return the seconds by which this machine's clock is ahead of the database's, to the precision of a round trip."""
    with database.read() as connection:
        connection.scalar(sa.select(now()))  # the first query of a connection takes longer
        before = time.time()
        database_time = connection.scalar(sa.select(now())) or before
        return (before + time.time()) / 2 - database_time
