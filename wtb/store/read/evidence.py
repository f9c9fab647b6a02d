"""Queries in SQL for what stands beside a matrix: outcomes of cases, shared node runs, failures with causes, and times.

By the outcomes of each case under each combination, over all repeats, two sweeps are compared. Cells whose state a
person edited are left out of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.core.failures import StoredFailure
from wtb.core.provider_faults import LOST_TO
from wtb.core.status import ENDED_SWEEPS, FAILED_CELLS
from wtb.core.tree.stored_spec import additions
from wtb.store.access.projects import in_scope
from wtb.store.bulk import fetch_records
from wtb.store.cell_status import cell_status, cells_and_running
from wtb.store.database import Database
from wtb.store.read.aggregates import untouched
from wtb.store.read.queries import select_sweeps
from wtb.store.records import EarlierSweep
from wtb.store.tables.schema import (
    cases,
    cells,
    executions,
    fires,
    is_kept,
    node_runs,
    pooled,
    scores,
    sweeps,
    workflows,
)
from wtb.store.tables.sweeps import SweepRow

Rows = list[tuple[Any, ...]]
MESSAGE = 300  # characters of an error by which causes are distinguished
FAILED_CASES = 10_000  # failed cells that are read to list the cases of each cause


def shared_runs(database: Database, sweep_id: str) -> Rows:
    """Return the node runs by the groups of combinations that ran a node together, in the order of their first runs.

    Returns:
        (node, variant, combinations as JSON text, accepted node runs, cells that took part in these, failed runs,
        seconds and US dollars of accepted attempts) of each group.
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


_FAILED_CELLS = _failed_cells()  # made once: making it takes as long as executing it


def failed_cells(database: Database, sweep_id: str) -> Rows:
    """Return the failed cells of a sweep by cause.

    Returns:
        (combination, status, node, kind, type, final, message, cells, an execution, its case's number) of each cause.
    """
    return database.tuples(_FAILED_CELLS.where(cells.c.sweep_id == sweep_id))


def failed_cases(database: Database, sweep_id: str) -> Rows:
    """Return the first failed cells, in the order of cases.

    Returns:
        (node, type, message, number of a case, cells, an execution) of each cause in a case.
    """
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
    """Return (metric, message, combination, scores) of the failed scores."""
    cause = (scores.c.metric, sa.func.substr(scores.c.error, 1, MESSAGE), scores.c.combination)
    query = (
        sa.select(*cause, sa.func.count())
        .where(scores.c.sweep_id == sweep_id, scores.c.error.is_not(None))
        .group_by(*cause)
    )
    return database.tuples(query)


def executions_of(database: Database, sweep_id: str, case: int, combinations: Sequence[int]) -> dict[int, str]:
    """Return the executions with the outcomes of a case by combination, all from the first repeat that has all of
    them.
    """
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
    by_repeat: dict[int, dict[int, str]] = {}
    for repeat, combination, execution in database.tuples(query):
        by_repeat.setdefault(repeat, {})[combination] = execution
    return next(
        (by_combination for by_combination in by_repeat.values() if len(by_combination) == len(set(combinations))), {}
    )


def outcomes_of(database: Database, sweep_id: str, case: int) -> Rows:
    """Return (combination, status, execution or None) of a case, in its first repeat."""
    query = (
        sa.select(cells.c.combination, cell_status, cells.c.execution_id)
        .select_from(cells_and_running)
        .where(cells.c.sweep_id == sweep_id, cells.c.case_number == case, cells.c.repeat == 0)
        .order_by(cells.c.combination)
    )
    return database.tuples(query)


def case_numbers(database: Database, sweep_id: str, names: Iterable[str] | None = None) -> dict[str, int]:
    """Return the numbers of cases by their ids, in order; of all cases if none are named."""
    query = sa.select(cases.c.id, cases.c.number).where(cases.c.sweep_id == sweep_id, is_kept).order_by(cases.c.number)
    if names is not None:
        query = query.where(cases.c.id.in_(list(names)))
    return {str(name): number for name, number in database.tuples(query)}


def case_count(database: Database, sweep_id: str) -> int:
    return database.count(cases.c.sweep_id == sweep_id, is_kept)


def earlier(database: Database, sweep: SweepRow, limit: int) -> list[EarlierSweep]:
    """Return earlier sweeps of a series up to a sweep, the oldest first.

    The series has the sweeps of its schedule or, if no schedule started it, those of its name, workflow and session.
    They have ended, except possibly the sweep itself. Each has `case_count`, and `fire_at` and `verdict` of its fire,
    or None.
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
    """Return (combination, case number, repeat, status) of every cell."""
    query = sa.select(cells.c.combination, cells.c.case_number, cells.c.repeat, cells.c.status)
    return database.tuples(query.where(cells.c.sweep_id == sweep_id))


def cell_scores(database: Database, sweep_id: str, metric: str) -> list[tuple[int, int, int, float]]:
    """Return (combination, case number, repeat, score) of every cell that has one."""
    query = sa.select(scores.c.combination, scores.c.case_number, scores.c.repeat, scores.c.value)
    conditions = scores.c.sweep_id == sweep_id, scores.c.metric == metric, scores.c.value.is_not(None)
    return database.tuples(query.where(*conditions))


def is_binary(database: Database, sweep_id: str, metric: str) -> bool:
    """Return whether a metric has scores, and all of them are 0 or 1."""
    own = sa.select(scores.c.value).where(scores.c.sweep_id == sweep_id, scores.c.metric == metric)
    scored = own.where(scores.c.value.is_not(None)).limit(1)
    other = own.where(scores.c.value.not_in((0.0, 1.0))).limit(1)
    return database.scalar(scored) is not None and database.scalar(other) is None


End = tuple[str | None, StoredFailure | None]


def case_contents(database: Database, sweep_id: str) -> Rows:
    """Return (number, id, contents) of each case; equal contents are the same case."""
    columns = (cases.c.number, cases.c.id, cases.c.input, cases.c.expected, cases.c.workspace)
    rows = database.tuples(sa.select(*columns).where(cases.c.sweep_id == sweep_id, is_kept).order_by(cases.c.number))
    return [(number, id, content) for number, id, *content in rows]


def clusters(database: Database, sweep_id: str) -> dict[int, str]:
    """Return the clusters of cases by the number of the case, without cases that have none."""
    query = sa.select(cases.c.number, cases.c.cluster)
    rows = database.tuples(query.where(cases.c.sweep_id == sweep_id, cases.c.cluster.is_not(None)))
    return {int(number): str(cluster) for number, cluster in rows}


def tags(database: Database, sweep_id: str) -> dict[int, list[str]]:
    """Return the tags of cases by the number of the case."""
    query = sa.select(cases.c.number, cases.c.tags).where(cases.c.sweep_id == sweep_id)
    return {int(number): case_tags for number, case_tags in database.tuples(query) if case_tags}


def first_executions(
    database: Database, sweep_id: str, combinations: Sequence[int], case_numbers: Sequence[int]
) -> dict[tuple[int, int], str]:
    """Return the execution of the first cell by (combination, case number)."""
    query = (
        sa.select(cells.c.combination, cells.c.case_number, sa.func.min(cells.c.execution_id))
        .where(cells.c.sweep_id == sweep_id, cells.c.combination.in_(combinations))
        .where(cells.c.case_number.in_(case_numbers))
        .group_by(cells.c.combination, cells.c.case_number)
    )
    return {(int(row), int(case)): str(execution) for row, case, execution in database.tuples(query)}


def outcomes(database: Database, sweep_id: str) -> Rows:
    """Return (combination, case number, succeeded repeats, failed ones, an execution, repeats lost to a provider).

    The execution is that of a failed cell, if there is any.
    """
    has_ended_so = cells.c.status.in_(FAILED_CELLS)
    is_lost = sa.func.coalesce(cells.c.failure["kind"].as_string(), "") == "provider"
    # Cells that a provider lost are missing, and are no result of the code under test.
    has_failed = sa.and_(has_ended_so, ~is_lost)
    of_failed = sa.func.min(sa.case((has_failed, cells.c.execution_id)))
    query = (
        sa.select(
            cells.c.combination,
            cells.c.case_number,
            sa.func.sum(sa.case((cells.c.status == "succeeded", 1), else_=0)),
            sa.func.sum(sa.case((has_failed, 1), else_=0)),
            sa.func.coalesce(of_failed, sa.func.min(cells.c.execution_id)),
            sa.func.sum(sa.case((sa.and_(has_ended_so, is_lost), 1), else_=0)),
        )
        .where(cells.c.sweep_id == sweep_id, ~cells.c.edited)
        .group_by(cells.c.combination, cells.c.case_number)
    )
    return database.tuples(query)


def first_outcomes(database: Database, sweep_id: str) -> Rows:
    """Return (combination, case number, status, head of its execution) of the first repeat, without edited cells."""
    query = (
        sa.select(cells.c.combination, cells.c.case_number, cells.c.status, executions.c.head_id)
        .join(executions, executions.c.id == cells.c.execution_id)
        .where(cells.c.sweep_id == sweep_id, cells.c.repeat == 0, ~cells.c.edited)
    )
    return database.tuples(query)


def failed_score_counts(database: Database, sweep_id: str, metric: str) -> Rows:
    """Return (combination, case number, failed scores, scores that failed for another reason than a provider)."""
    graded = sa.func.sum(sa.case((scores.c.error.startswith(LOST_TO), 0), else_=1))
    query = (
        sa.select(scores.c.combination, scores.c.case_number, sa.func.count(), graded)
        .where(
            scores.c.sweep_id == sweep_id,
            scores.c.metric == metric,
            scores.c.error.is_not(None),
            *untouched(database, sweep_id),
        )
        .group_by(scores.c.combination, scores.c.case_number)
    )
    return database.tuples(query)


def scores_lost_to_provider(database: Database, sweep_id: str) -> Rows:
    """Return (combination, case number, scores that were lost to a provider), without zeros."""
    query = (
        sa.select(scores.c.combination, scores.c.case_number, sa.func.count())
        .where(scores.c.sweep_id == sweep_id, scores.c.error.startswith(LOST_TO), *untouched(database, sweep_id))
        .group_by(scores.c.combination, scores.c.case_number)
    )
    return database.tuples(query)


def ends(database: Database, ids: Iterable[str]) -> dict[str, End]:
    """Return (head, failure) of executions, by id."""
    query = sa.select(executions.c.id, executions.c.head_id, executions.c.failure)
    return {id: (head, failure) for id, head, failure in database.tuples(query.where(executions.c.id.in_(set(ids))))}


def repeats_of(database: Database, sweep: SweepRow, ids: Sequence[str]) -> list[str]:
    """Return the sweeps that can be pooled with another one, of the same rows and cases, the oldest first.

    They exist and are completed, have the same code and evaluators, and are no pools.
    """
    pools = set(database.scalars(sa.select(pooled.c.pool_id).where(pooled.c.pool_id.in_([sweep.id, *ids]))))
    if sweep.id in pools or additions(sweep.spec):
        return []
    columns = (sweeps.c.id, sweeps.c.fingerprints, sweeps.c.spec["evaluate"])
    query = sa.select(*columns).where(sweeps.c.id.in_(set(ids) - pools), sweeps.c.status == "completed")
    query = query.where(*in_scope(database, sweeps)).order_by(sweeps.c.created_at, sweeps.c.id)
    own = (dict(sweep.fingerprints), sweep.spec.get("evaluate"))
    return [id for id, *recorded in database.tuples(query) if tuple(recorded) == own]
