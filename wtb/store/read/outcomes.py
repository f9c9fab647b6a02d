"""What came of each case under each combination of a sweep, repeats taken together: what two sweeps are compared by.

And sweeps before one over the same cases: what had been tried there.

Cells whose state a person edited are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.providers.faults import LOST_TO
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.read.aggregates import untouched
from wtb.store.rows.sweeps import SweepRow
from wtb.store.tables.schema import (
    cases,
    cells,
    combinations,
    executions,
    is_kept,
    is_visible,
    scores,
    sweeps,
    workflows,
)

Rows = list[tuple[Any, ...]]
End = tuple[str | None, dict[str, Any] | None]
FAILED = ("failed", "set_aside")
MOST = 1_000  # earlier sweeps that are looked at, the newest


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
    has_ended_so = cells.c.status.in_(FAILED)
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


@dataclass(frozen=True)
class TriedSweep:
    """What was tried in a sweep.

    Attributes:
        baseline: The combination that it compared others with.
        final: Whether its cases are to be used once.
        choices: Its combinations.
    """

    id: str
    fingerprints: Mapping[str, Mapping[str, str]]
    baseline: Mapping[str, str] | None
    final: bool | None
    choices: list[Mapping[str, str]] = field(default_factory=list)


def earlier_sweeps(database: Database, sweep: SweepRow) -> list[TriedSweep]:
    """The sweeps of a workflow that were submitted before one.

    Of its project; of the default one those of its session.
    """
    name = sa.select(workflows.c.name).where(workflows.c.id == sweep.workflow_id).scalar_subquery()
    whose = [sweeps.c.project == sweep.project]
    if sweep.project == DEFAULT_PROJECT:
        whose.append(sweeps.c.session_id == sweep.session_id)
    before = sa.or_(
        sweeps.c.created_at < sweep.created_at,
        sa.and_(sweeps.c.created_at == sweep.created_at, sweeps.c.id < sweep.id),
    )
    query = (
        sa.select(
            sweeps.c.id,
            sweeps.c.fingerprints,
            sweeps.c.spec["baseline_row"].label("baseline"),
            sweeps.c.spec["final"].label("final"),
        )
        .join(workflows, workflows.c.id == sweeps.c.workflow_id)
        .where(workflows.c.name == name, sweeps.c.kind == "sweep", is_visible, before, *whose)
        .order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())
        .limit(MOST)
    )
    with database.read() as connection:
        found = {row.id: row for row in fetch_records(connection, TriedSweep, query)}
        chosen = sa.select(combinations.c.sweep_id, combinations.c.choices)
        for id, choices in connection.execute(chosen.where(combinations.c.sweep_id.in_(list(found)))):
            found[id].choices.append(choices)
    return list(found.values())


def over_same_cases(
    database: Database, sweep_id: str, others: Collection[str], numbers: Sequence[int], least: int
) -> list[str]:
    """Those of other sweeps that have at least so many of some cases of a sweep, with the same content.

    numbers: of these cases.
    """
    if not others:
        return []
    theirs = cases.alias("theirs")
    same = (
        theirs.c.id == cases.c.id,
        theirs.c.erased_at.is_(None),
        theirs.c.input == cases.c.input,
        theirs.c.expected.is_not_distinct_from(cases.c.expected),
        theirs.c.workspace.is_not_distinct_from(cases.c.workspace),
    )
    query = (
        sa.select(theirs.c.sweep_id)
        .select_from(cases.join(theirs, sa.and_(*same)))
        .where(
            cases.c.sweep_id == sweep_id,
            is_kept,
            cases.c.number.in_(list(numbers)),
            theirs.c.sweep_id.in_(list(others)),
        )
        .group_by(theirs.c.sweep_id)
        .having(sa.func.count() >= least)
    )
    return database.scalars(query)


def scored(database: Database, ids: Collection[str], metric: str) -> set[str]:
    """Those of some sweeps that have a score by a metric."""
    any_ = sa.exists().where(scores.c.sweep_id == sweeps.c.id, scores.c.metric == metric, scores.c.value.is_not(None))
    return set(database.scalars(sa.select(sweeps.c.id).where(sweeps.c.id.in_(list(ids)), any_)))
