"""What people say of cells: one label of a rater for each metric and cell, the last one that they gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.store.access.scope import in_scope
from wtb.store.bulk import insert_rows
from wtb.store.database import Database
from wtb.store.housekeeping.retention import locked_sweep
from wtb.store.tables.results import LabelRow
from wtb.store.tables.schema import is_visible, labels, sweeps

_KEY = ("case_number", "repeat", "combination", "rater")


class NewLabel(NamedTuple):
    """A label of a cell. value: None takes back what the rater said of it."""

    case_number: int
    repeat: int
    combination: int
    rater: str
    value: float | None
    asked: str
    probability: float | None


def label_rows(database: Database, sweep_id: str, metric: str | None = None) -> list[LabelRow]:
    """Labels of a sweep, of one metric or all, in the order of cells and raters."""
    query = sa.select(labels).where(labels.c.sweep_id == sweep_id)
    if metric is not None:
        query = query.where(labels.c.metric == metric)
    return database.records(LabelRow, query.order_by(labels.c.metric, *(labels.c[name] for name in _KEY)))


def has_labels(database: Database, sweep_id: str) -> bool:
    """Return whether anybody has labelled anything of a sweep."""
    return database.scalar(sa.select(labels.c.metric).where(labels.c.sweep_id == sweep_id).limit(1)) is not None


def labelled_sweeps(database: Database, project: str, metric: str, limit: int = 20) -> list[str]:
    """The ids of sweeps of a project that have labels for a metric, the newest first."""
    labelled = sa.exists().where(labels.c.sweep_id == sweeps.c.id, labels.c.metric == metric)
    query = sa.select(sweeps.c.id).where(sweeps.c.project == project, is_visible, *in_scope(database, sweeps), labelled)
    return database.scalars(query.order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc()).limit(limit))


def write_labels(database: Database, sweep_id: str, metric: str, given: Sequence[NewLabel]) -> None:
    """Write labels in one transaction, in the place of what the same raters said of the same cells.

    Raises:
        ConflictError: If the sweep is being deleted.
    """
    same = sa.and_(
        labels.c.sweep_id == sweep_id,
        labels.c.metric == metric,
        *(labels.c[name] == sa.bindparam(f"{name}_") for name in _KEY),
    )
    with database.write() as connection:
        if locked_sweep(connection, sweep_id) is None:  # which also has two raters of one name take turns
            raise ConflictError(f"sweep {sweep_id} is being deleted, or was")
        connection.execute(
            labels.delete().where(same), [{f"{name}_": getattr(one, name) for name in _KEY} for one in given]
        )
        kept = [one._asdict() for one in given if one.value is not None]
        if kept:
            insert_rows(connection, labels, [{"sweep_id": sweep_id, "metric": metric, **row} for row in kept])
