"""What came of each case under each combination of a sweep, repeats taken together: what two sweeps are compared by.

Cells whose state a person edited are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.read.aggregates import untouched
from wtb.store.tables.sweeps import cases, cells, executions, scores

Rows = list[tuple[Any, ...]]
End = tuple[str | None, dict[str, Any] | None]
FAILED = ("failed", "set_aside")


def case_contents(database: Database, sweep_id: str) -> Rows:
    """(number, id, what it consists of) of each case; equal contents are the same case."""
    columns = (cases.c.number, cases.c.id, cases.c.input, cases.c.expected, cases.c.workspace)
    found = _rows(database, sa.select(*columns).where(cases.c.sweep_id == sweep_id).order_by(cases.c.number))
    return [(number, id, content) for number, id, *content in found]


def clusters(database: Database, sweep_id: str) -> dict[int, str]:
    """Case number -> cluster, of the cases that have one."""
    query = sa.select(cases.c.number, cases.c.cluster)
    found = _rows(database, query.where(cases.c.sweep_id == sweep_id, cases.c.cluster.is_not(None)))
    return {int(number): str(cluster) for number, cluster in found}


def tags(database: Database, sweep_id: str) -> dict[int, list[str]]:
    """Case number -> its tags."""
    query = sa.select(cases.c.number, cases.c.tags).where(cases.c.sweep_id == sweep_id)
    return {int(number): found for number, found in _rows(database, query) if found}


def outcomes(database: Database, sweep_id: str) -> Rows:
    """(combination, case number, repeats that succeeded, that failed, execution of one: of a failed one if any)."""
    has_failed = cells.c.status.in_(FAILED)
    of_failed = sa.func.min(sa.case((has_failed, cells.c.execution_id)))
    query = (
        sa.select(
            cells.c.combination,
            cells.c.case_number,
            sa.func.sum(sa.case((cells.c.status == "succeeded", 1), else_=0)),
            sa.func.sum(sa.case((has_failed, 1), else_=0)),
            sa.func.coalesce(of_failed, sa.func.min(cells.c.execution_id)),
        )
        .where(cells.c.sweep_id == sweep_id, ~cells.c.edited)
        .group_by(cells.c.combination, cells.c.case_number)
    )
    return _rows(database, query)


def failed_scores(database: Database, sweep_id: str, metric: str) -> Rows:
    """(combination, case number, scores that failed) where any did."""
    query = (
        sa.select(scores.c.combination, scores.c.case_number, sa.func.count())
        .where(
            scores.c.sweep_id == sweep_id,
            scores.c.metric == metric,
            scores.c.error.is_not(None),
            *untouched(database, sweep_id),
        )
        .group_by(scores.c.combination, scores.c.case_number)
    )
    return _rows(database, query)


def ends(database: Database, ids: Iterable[str]) -> dict[str, End]:
    """Execution -> (its head, how it failed)."""
    query = sa.select(executions.c.id, executions.c.head_id, executions.c.failure)
    return {id: (head, failure) for id, head, failure in _rows(database, query.where(executions.c.id.in_(set(ids))))}


def _rows(database: Database, query: sa.Select[Any]) -> Rows:
    with database.read() as connection:
        return [tuple(row) for row in connection.execute(query)]
