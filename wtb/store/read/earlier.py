"""Sweeps before one, over the same cases: what had been tried there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.tables.sweeps import cases, combinations, scores, sweeps, workflows

MOST = 1_000  # sweeps that are looked at, the newest

Row = dict[str, Any]


def earlier_sweeps(database: Database, sweep: Mapping[str, Any]) -> list[Row]:
    """The sweeps of a workflow that were submitted before one: id, fingerprints, baseline, choices and final.

    Of its project where it has one, else of its session.
    """
    name = sa.select(workflows.c.name).where(workflows.c.id == sweep["workflow_id"]).scalar_subquery()
    whose = (
        sa.and_(sweeps.c.session_id == sweep["session_id"], sweeps.c.project.is_(None))
        if sweep["project"] is None
        else sweeps.c.project == sweep["project"]
    )
    before = sa.or_(
        sweeps.c.created_at < sweep["created_at"],
        sa.and_(sweeps.c.created_at == sweep["created_at"], sweeps.c.id < sweep["id"]),
    )
    query = (
        sa.select(
            sweeps.c.id,
            sweeps.c.fingerprints,
            sweeps.c.spec["baseline_row"].label("baseline"),
            sweeps.c.spec["final"].label("final"),
        )
        .join(workflows, workflows.c.id == sweeps.c.workflow_id)
        .where(workflows.c.name == name, sweeps.c.kind == "sweep", whose, before)
        .order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())
        .limit(MOST)
    )
    with database.read() as connection:
        found = {row["id"]: {**row, "choices": []} for row in connection.execute(query).mappings()}
        chosen = sa.select(combinations.c.sweep_id, combinations.c.choices)
        for id, choices in connection.execute(chosen.where(combinations.c.sweep_id.in_(list(found)))):
            found[id]["choices"].append(choices)
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
        theirs.c.input == cases.c.input,
        theirs.c.expected.is_not_distinct_from(cases.c.expected),
        theirs.c.workspace.is_not_distinct_from(cases.c.workspace),
    )
    query = (
        sa.select(theirs.c.sweep_id)
        .select_from(cases.join(theirs, sa.and_(*same)))
        .where(cases.c.sweep_id == sweep_id, cases.c.number.in_(list(numbers)), theirs.c.sweep_id.in_(list(others)))
        .group_by(theirs.c.sweep_id)
        .having(sa.func.count() >= least)
    )
    return database.scalars(query)


def scored(database: Database, ids: Collection[str], metric: str) -> set[str]:
    """Those of some sweeps that have a score by a metric."""
    one = sa.exists().where(scores.c.sweep_id == sweeps.c.id, scores.c.metric == metric, scores.c.value.is_not(None))
    return set(database.scalars(sa.select(sweeps.c.id).where(sweeps.c.id.in_(list(ids)), one)))
