"""Counting in SQL what a report shows beside the matrix: who shared which node run, what failed and why, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.core.status import ENDED_SWEEPS, FAILED_CELLS
from wtb.store.bulk import fetch_records
from wtb.store.cell_status import cell_status, cells_and_running
from wtb.store.database import Database
from wtb.store.read.queries import select_sweeps
from wtb.store.rows.sweeps import EarlierSweep
from wtb.store.tables.schema import cases, cells, executions, fires, is_kept, node_runs, scores, sweeps, workflows
from wtb.store.tables.sweeps import SweepRow

Rows = list[tuple[Any, ...]]
MESSAGE = 300  # characters of an error that tell causes apart
FAILED_CASES = 10_000  # that are looked at to list those of a cause


def shared_runs(database: Database, sweep_id: str) -> Rows:
    """(node, variant, combinations as JSON text, node runs accepted, cells that took part in these, runs that failed,
    seconds and US dollars of accepted attempts).

    One row for each group of combinations that ran a node together, in the order in which nodes first ran.
    """
    group = sa.cast(executions.c.combinations, sa.Text)
    accepted = node_runs.c.status == "succeeded"
    query = (
        sa.select(
            node_runs.c.node,
            node_runs.c.variant,
            group,
            sa.func.sum(sa.case((accepted, 1), else_=0)),
            sa.func.sum(sa.case((accepted, node_runs.c.cells), else_=0)),
            sa.func.sum(sa.case((node_runs.c.status == "failed", 1), else_=0)),
            sa.func.sum(node_runs.c.duration_s),
            sa.func.sum(node_runs.c.usd),
        )
        .join(executions, executions.c.id == node_runs.c.execution_id)
        .where(node_runs.c.sweep_id == sweep_id)
        .group_by(node_runs.c.node, node_runs.c.variant, group)
        .order_by(sa.func.min(node_runs.c.started_at))
    )
    return database.tuples(query)


def _failed_cells() -> sa.Select[Any]:
    node, kind, type_, message = (cells.c.failure[key].as_string() for key in ("node", "kind", "type", "message"))
    final = cells.c.failure["final"].as_boolean()
    cause = (cells.c.combination, cells.c.status, node, kind, type_, final, sa.func.substr(message, 1, MESSAGE))
    query = sa.select(*cause, sa.func.count(), sa.func.min(cells.c.execution_id), sa.func.min(cells.c.case_number))
    return query.where(cells.c.status.in_(FAILED_CELLS)).group_by(*cause)


_FAILED_CELLS = _failed_cells()  # made once: to make it takes as long as to have it answered


def failed_cells(database: Database, sweep_id: str) -> Rows:
    """What failed, by cause.

    (combination, status, node, kind, type, final, message, cells, an execution, its case's number).
    """
    return database.tuples(_FAILED_CELLS.where(cells.c.sweep_id == sweep_id))


def failed_cases(database: Database, sweep_id: str) -> Rows:
    """(node, type, message, number of a case, cells, an execution) of the first failed cells, in the order of cases."""
    node, type_, message = (cells.c.failure[key].as_string() for key in ("node", "type", "message"))
    cause = (node, type_, sa.func.substr(message, 1, MESSAGE), cells.c.case_number)
    query = (
        sa.select(*cause, sa.func.count(), sa.func.min(cells.c.execution_id))
        .where(cells.c.sweep_id == sweep_id, cells.c.status.in_(FAILED_CELLS))
        .group_by(*cause)
        .order_by(cells.c.case_number)
        .limit(FAILED_CASES)
    )
    return database.tuples(query)


def failed_scores(database: Database, sweep_id: str) -> Rows:
    """(metric, message, combination, scores) of the scores that failed."""
    cause = (scores.c.metric, sa.func.substr(scores.c.error, 1, MESSAGE), scores.c.combination)
    query = (
        sa.select(*cause, sa.func.count())
        .where(scores.c.sweep_id == sweep_id, scores.c.error.is_not(None))
        .group_by(*cause)
    )
    return database.tuples(query)


def executions_of(database: Database, sweep_id: str, case: int, combinations: Sequence[int]) -> dict[int, str]:
    """Combination -> the execution with its outcome for a case, all of the first repeat that has one for each."""
    query = (
        sa.select(cells.c.repeat, cells.c.combination, cells.c.execution_id)
        .where(
            cells.c.sweep_id == sweep_id,
            cells.c.case_number == case,
            cells.c.combination.in_(list(combinations)),
            cells.c.status.in_(("succeeded", "failed", "set_aside")),
        )
        .order_by(cells.c.repeat)
    )
    found: dict[int, dict[int, str]] = {}
    for repeat, combination, execution in database.tuples(query):
        found.setdefault(repeat, {})[combination] = execution
    return next((one for one in found.values() if len(one) == len(set(combinations))), {})


def outcomes_of(database: Database, sweep_id: str, case: int) -> Rows:
    """(combination, status, execution or None) of a case, in its first repeat."""
    query = (
        sa.select(cells.c.combination, cell_status, cells.c.execution_id)
        .select_from(cells_and_running)
        .where(cells.c.sweep_id == sweep_id, cells.c.case_number == case, cells.c.repeat == 0)
        .order_by(cells.c.combination)
    )
    return database.tuples(query)


def case_numbers(database: Database, sweep_id: str, names: Iterable[str] | None = None) -> dict[str, int]:
    """Case -> its number, in their order; of all cases where none are named."""
    query = sa.select(cases.c.id, cases.c.number).where(cases.c.sweep_id == sweep_id, is_kept).order_by(cases.c.number)
    if names is not None:
        query = query.where(cases.c.id.in_(list(names)))
    return {str(name): number for name, number in database.tuples(query)}


def case_count(database: Database, sweep_id: str) -> int:
    return database.scalar(sa.select(sa.func.count()).where(cases.c.sweep_id == sweep_id, is_kept)) or 0


def earlier(database: Database, sweep: SweepRow, limit: int) -> list[EarlierSweep]:
    """Sweeps of this one's schedule, or of its name, workflow and session where none fired it, up to it: oldest first.

    Those that have ended, and this one. Each with `case_count`, and `fire_at` and `verdict` of its fire, or None.
    """
    schedule = sa.select(fires.c.schedule_id).where(fires.c.sweep_id == sweep.id).scalar_subquery()
    workflow = sa.select(workflows.c.name).where(workflows.c.id == sweep.workflow_id).scalar_subquery()
    whose = sweeps.c.session_id == sweep.session_id, sweeps.c.project == sweep.project
    alike = sa.and_(sweeps.c.name == sweep.name, workflows.c.name == workflow, *whose)
    of_sweep = sa.select(sa.func.count()).where(cases.c.sweep_id == sweeps.c.id, is_kept)
    count = of_sweep.scalar_subquery().label("case_count")
    with database.read() as connection:
        fired = connection.scalar(sa.select(schedule)) is not None
        query = (
            select_sweeps(fires.c.fire_at, fires.c.verdict, count)
            .join(workflows, workflows.c.id == sweeps.c.workflow_id)
            .outerjoin(fires, fires.c.sweep_id == sweeps.c.id)
            .where(
                fires.c.schedule_id == schedule if fired else alike,
                sweeps.c.created_at <= sweep.created_at,
                sa.or_(sweeps.c.status.in_(ENDED_SWEEPS), sweeps.c.id == sweep.id),
            )
            .order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())
            .limit(limit)
        )
        return fetch_records(connection, EarlierSweep, query)[::-1]


def cell_statuses(database: Database, sweep_id: str) -> list[tuple[int, int, int, str]]:
    """(combination, case number, repeat, status) of every cell."""
    query = sa.select(cells.c.combination, cells.c.case_number, cells.c.repeat, cells.c.status)
    return database.tuples(query.where(cells.c.sweep_id == sweep_id))


def cell_scores(database: Database, sweep_id: str, metric: str) -> list[tuple[int, int, int, float]]:
    """(combination, case number, repeat, score) of every cell that has one."""
    query = sa.select(scores.c.combination, scores.c.case_number, scores.c.repeat, scores.c.value)
    wanted = scores.c.sweep_id == sweep_id, scores.c.metric == metric, scores.c.value.is_not(None)
    return database.tuples(query.where(*wanted))


def is_binary(database: Database, sweep_id: str, metric: str) -> bool:
    """Return whether a metric has scores, and all of them are 0 or 1."""
    own = sa.select(scores.c.value).where(scores.c.sweep_id == sweep_id, scores.c.metric == metric)
    found = own.where(scores.c.value.is_not(None)).limit(1)
    other = own.where(scores.c.value.not_in((0.0, 1.0))).limit(1)
    return database.scalar(found) is not None and database.scalar(other) is None
