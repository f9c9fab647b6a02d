"""All cells of a sweep as columns of numbers, for whoever draws them."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.tables.schema import cells, scores


def cell_statuses(database: Database, sweep_id: str) -> list[tuple[int, int, int, str]]:
    """(combination, case number, repeat, status) of every cell."""
    query = sa.select(cells.c.combination, cells.c.case_number, cells.c.repeat, cells.c.status)
    return database.tuples(query.where(cells.c.sweep_id == sweep_id))


def cell_scores(database: Database, sweep_id: str, metric: str) -> list[tuple[int, int, int, float]]:
    """(combination, case number, repeat, score) of every cell that has one."""
    query = sa.select(scores.c.combination, scores.c.case_number, scores.c.repeat, scores.c.value)
    wanted = scores.c.sweep_id == sweep_id, scores.c.metric == metric, scores.c.value.is_not(None)
    return database.tuples(query.where(*wanted))
