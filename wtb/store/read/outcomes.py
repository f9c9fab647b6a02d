"""What came of each case under each combination of a sweep, repeats taken together: what two sweeps are compared by.

Cells whose state a person edited are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.core.failures import StoredFailure
from wtb.core.providers.faults import LOST_TO
from wtb.core.status import FAILED_CELLS
from wtb.core.tree.added_rows import additions
from wtb.store.access.scope import in_scope
from wtb.store.database import Database
from wtb.store.read.aggregates import untouched
from wtb.store.tables.schema import (
    cases,
    cells,
    executions,
    is_kept,
    pooled,
    scores,
    sweeps,
)
from wtb.store.tables.sweeps import SweepRow

Rows = list[tuple[Any, ...]]
End = tuple[str | None, StoredFailure | None]


def case_contents(database: Database, sweep_id: str) -> Rows:
    """(number, id, what it consists of) of each case; equal contents are the same case."""
    columns = (cases.c.number, cases.c.id, cases.c.input, cases.c.expected, cases.c.workspace)
    found = database.tuples(sa.select(*columns).where(cases.c.sweep_id == sweep_id, is_kept).order_by(cases.c.number))
    return [(number, id, content) for number, id, *content in found]


def clusters(database: Database, sweep_id: str) -> dict[int, str]:
    """Case number -> cluster, of the cases that have one."""
    query = sa.select(cases.c.number, cases.c.cluster)
    found = database.tuples(query.where(cases.c.sweep_id == sweep_id, cases.c.cluster.is_not(None)))
    return {int(number): str(cluster) for number, cluster in found}


def tags(database: Database, sweep_id: str) -> dict[int, list[str]]:
    """Case number -> its tags."""
    query = sa.select(cases.c.number, cases.c.tags).where(cases.c.sweep_id == sweep_id)
    return {int(number): found for number, found in database.tuples(query) if found}


def executions_of(
    database: Database, sweep_id: str, combinations: Sequence[int], case_numbers: Sequence[int]
) -> dict[tuple[int, int], str]:
    """(combination, case number) -> the execution of its first cell."""
    query = (
        sa.select(cells.c.combination, cells.c.case_number, sa.func.min(cells.c.execution_id))
        .where(cells.c.sweep_id == sweep_id, cells.c.combination.in_(combinations))
        .where(cells.c.case_number.in_(case_numbers))
        .group_by(cells.c.combination, cells.c.case_number)
    )
    return {(int(row), int(case)): str(execution) for row, case, execution in database.tuples(query)}


def outcomes(database: Database, sweep_id: str) -> Rows:
    """Read (combination, case number, repeats that succeeded, that failed, an execution, repeats lost to a provider).

    The execution is that of a failed cell, if there is any.
    """
    has_ended_so = cells.c.status.in_(FAILED_CELLS)
    is_lost = sa.func.coalesce(cells.c.failure["kind"].as_string(), "") == "provider"
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
    """(combination, case number, status, head of its execution) of the first repeat, of what was not edited."""
    query = (
        sa.select(cells.c.combination, cells.c.case_number, cells.c.status, executions.c.head_id)
        .join(executions, executions.c.id == cells.c.execution_id)
        .where(cells.c.sweep_id == sweep_id, cells.c.repeat == 0, ~cells.c.edited)
    )
    return database.tuples(query)


def failed_scores(database: Database, sweep_id: str, metric: str) -> Rows:
    """Read (combination, case number, scores that failed, scores that failed for another reason than a provider)."""
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
    """Read (combination, case number, scores that were lost to a provider), where there are any."""
    query = (
        sa.select(scores.c.combination, scores.c.case_number, sa.func.count())
        .where(scores.c.sweep_id == sweep_id, scores.c.error.startswith(LOST_TO), *untouched(database, sweep_id))
        .group_by(scores.c.combination, scores.c.case_number)
    )
    return database.tuples(query)


def ends(database: Database, ids: Iterable[str]) -> dict[str, End]:
    """Execution -> (its head, how it failed)."""
    query = sa.select(executions.c.id, executions.c.head_id, executions.c.failure)
    return {id: (head, failure) for id, head, failure in database.tuples(query.where(executions.c.id.in_(set(ids))))}


def repeats_of(database: Database, sweep: SweepRow, ids: Sequence[str]) -> list[str]:
    """Return those of some sweeps that can be pooled with another one, which has the same rows and cases, oldest first.

    They are there and completed, with the same code and evaluators, and are no pools.
    """
    pools = set(database.scalars(sa.select(pooled.c.pool_id).where(pooled.c.pool_id.in_([sweep.id, *ids]))))
    if sweep.id in pools or additions(sweep.spec):
        return []
    columns = (sweeps.c.id, sweeps.c.fingerprints, sweeps.c.spec["evaluate"])
    query = sa.select(*columns).where(sweeps.c.id.in_(set(ids) - pools), sweeps.c.status == "completed")
    query = query.where(*in_scope(database, sweeps)).order_by(sweeps.c.created_at, sweeps.c.id)
    own = (dict(sweep.fingerprints), sweep.spec.get("evaluate"))
    return [id for id, *recorded in database.tuples(query) if tuple(recorded) == own]
