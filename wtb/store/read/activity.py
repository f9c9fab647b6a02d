"""What a monitoring system asks: how much of everything there is, by project and status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import field, fields
from typing import Final, NamedTuple

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.status import OPEN_SWEEPS
from wtb.store.access.scope import in_scope
from wtb.store.attempt_columns import attempt_column, is_attempt, node_runs_with_attempts
from wtb.store.bulk import fetch_records
from wtb.store.cell_status import running_cells, with_running
from wtb.store.database import Database
from wtb.store.log import LogPosition
from wtb.store.runs.queue import is_open
from wtb.store.tables.schema import (
    attempts,
    cells,
    events,
    executions,
    is_pending,
    is_visible,
    log_ids,
    node_runs,
    now,
    sweeps,
)

LAST_ID: Final = 2**63 - 1  # of an event


@frozen
class SweepState:
    """How a sweep stands.

    Attributes:
        id: Its id.
        project: What it belongs to.
        status: Its status.
        finished_at: When it ended; None while it may change.
        cells: How many it has.
        collected_usd: What attempts cost that were collected since.
        collected_node_runs: How many node runs were.
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
    """What a sweep consists of so far.

    Attributes:
        cells: Status -> how many.
        node_runs: Status -> how many.
        attempts: The same; `lost` are those that ended for the sake of another one, `running` those under way.
        usd: What they cost.
        lease_losses: How often a lease of its executions ran out in a node.
    """

    cells: Mapping[str, int] = field(default_factory=dict)
    node_runs: Mapping[str, int] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    usd: float = 0.0
    lease_losses: int = 0


@frozen
class Queue:
    """What waits for workers in a project.

    Attributes:
        project: It.
        executions: How many wait.
        oldest_s: For how long the first of them has waited.
    """

    project: str
    executions: int
    oldest_s: float


def sweep_states(database: Database) -> list[SweepState]:
    """Return how all sweeps stand that whoever asks may see."""
    columns = (sweeps.c[one.name] for one in fields(SweepState))
    with database.read() as connection:
        return fetch_records(connection, SweepState, sa.select(*columns).where(is_visible, *in_scope(database, sweeps)))


def count(database: Database, sweep_ids: Collection[str]) -> dict[str, Counts]:
    """Count what sweeps consist of: each figure reads all rows of these sweeps.

    Args:
        database: The database.
        sweep_ids: Which; some hundreds at most.

    Returns:
        Id -> counts, for each of them.
    """
    by_cell = _by_status(database, sa.select(cells.c.sweep_id, cells.c.status, sa.func.count()), cells, sweep_ids)
    with database.read() as connection:
        for id, running in running_cells(connection, [id for id in sweep_ids if by_cell[id].get("pending")]).items():
            by_cell[id] = with_running(by_cell[id], sum(running.values()))
    by_run = _by_status(
        database, sa.select(node_runs.c.sweep_id, node_runs.c.status, sa.func.count()), node_runs, sweep_ids
    )
    by_attempt, usd = _attempts(database, sweep_ids)
    losses = sa.select(executions.c.sweep_id, sa.func.sum(executions.c.losses)).where(
        executions.c.sweep_id.in_(sweep_ids), executions.c.losses > 0
    )
    lost = {id: int(number) for id, number in database.tuples(losses.group_by(executions.c.sweep_id), long=True)}
    return {id: Counts(by_cell[id], by_run[id], by_attempt[id], usd.get(id, 0.0), lost.get(id, 0)) for id in sweep_ids}


def queues(database: Database) -> list[Queue]:
    """Return what waits for workers, of the projects that whoever asks may see."""
    query = (
        sa.select(sweeps.c.project, sa.func.count(), now() - sa.func.min(executions.c.created_at))
        .select_from(executions.join(sweeps, sweeps.c.id == executions.c.sweep_id))
        .where(is_open(), is_pending, *in_scope(database, sweeps))
        .group_by(sweeps.c.project)
    )
    return [Queue(project, number, max(0.0, oldest_s)) for project, number, oldest_s in database.tuples(query)]


_ByStatus = defaultdict[str, dict[str, int]]


def _by_status(
    database: Database, query: sa.Select[tuple[str, str, int]], table: sa.Table, sweep_ids: Collection[str]
) -> _ByStatus:
    """Return sweep -> status -> how many."""
    found: _ByStatus = defaultdict(dict)
    grouped = query.where(table.c.sweep_id.in_(sweep_ids)).group_by(table.c.sweep_id, table.c.status)
    for id, status, number in database.tuples(grouped, long=True):
        found[id][status] = number
    return found


def _attempts(database: Database, sweep_ids: Collection[str]) -> tuple[_ByStatus, dict[str, float]]:
    """Return sweep -> outcome -> how many attempts, and sweep -> US dollars of all of them."""
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
    found: _ByStatus = defaultdict(dict)
    usd: dict[str, float] = defaultdict(float)
    for id, status, number, spent in database.tuples(query.group_by(each.c.sweep_id, each.c.outcome), long=True):
        found[id][status] = number
        usd[id] += spent
    return found, usd


class LivelySweep(NamedTuple):
    """A sweep that is open, or has ended lately. finished_at: of one that ended."""

    id: str
    status: str
    finished_at: float | None

    @property
    def is_open(self) -> bool:
        """Whether it runs, will run or is paused."""
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
        position: The position before all events that are committed later, and those whose transactions are open.
        settled: All transactions before this number have ended; on SQLite, which has one writer, all of them.
        newest: The number after that of each transaction which has begun to write.
    """

    position: LogPosition
    settled: int
    newest: int


def read_moment(database: Database) -> Moment:
    """Return the present moment of the log."""
    with database.read() as connection:
        if connection.dialect.name == "sqlite":
            last = connection.scalar(sa.select(log_ids.c.last))
            return Moment((0, last or connection.scalar(sa.select(sa.func.max(events.c.id))) or 0), 0, 0)
        numbers = "SELECT pg_snapshot_xmin(now)::text::bigint, pg_snapshot_xmax(now)::text::bigint"
        oldest, next_one = connection.execute(sa.text(f"{numbers} FROM pg_current_snapshot() AS now")).one()
        return Moment((oldest - 1, LAST_ID), oldest, next_one)
