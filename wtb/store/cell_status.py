"""The cells of executions, and the status of cells as readers see it.

No row of a cell has the status "running": a version of the row of every cell would be written for that. The cells of
executions that somebody runs now are running.

There is no index of cells by the execution that they name, since each of their two versions would have an entry. An
execution lists the combinations that it stands for, and these lead to its cells by their key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from wtb.store.bulk import fetch_among, update_rows
from wtb.store.tables.column_types import array_elements
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cells, executions, is_running, pooled

_KEY: Final = ("sweep_id", "case_number", "repeat", "combination")
_elements = array_elements(executions.c.combinations).table_valued("value")
_combination = sa.cast(_elements.c.value, sa.Integer)
executions_with_combinations: Final = executions.join(_elements, sa.true())
"""Executions with the combinations that they stand for, one a row: `combination`."""
combination: Final = _combination.label("combination")
# A scalar subquery, so that the cell is looked up by its whole key: of a join PostgreSQL, which knows nothing of a new
# sweep, and SQLite read all cells of the case, for each of its executions.
_named_by_cell = (
    sa.select(cells.c.execution_id)
    .where(*(cells.c[name] == executions.c[name] for name in _KEY[:3]), cells.c.combination == _combination)
    .correlate_except(cells)
)


def has_cell(*which: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition for `executions_with_combinations` that the cell of its sweep names the execution.

    Args:
        which: Conditions for the cell.
    """
    return _named_by_cell.where(*which).scalar_subquery() == executions.c.id


_running: Final = (
    sa.select(*(executions.c[name] for name in _KEY[:3]), combination)
    .select_from(executions_with_combinations)
    .where(is_running)
    .subquery("running_cells")
)
_is_same: Final = sa.and_(*(cells.c[name] == _running.c[name] for name in _KEY))
_is_pending: Final = cells.c.status == "pending"

cells_and_running: Final = cells.outerjoin(_running, _is_same)
"""What a query with `cell_status` selects from."""
cell_status: Final = sa.case(
    (sa.and_(_is_pending, _running.c.combination.is_not(None)), "running"), else_=cells.c.status
).label("status")
cell_columns: Final[list[sa.ColumnElement[Any]]] = [
    cell_status if column is cells.c.status else column for column in cells.c
]
"""The columns of `cells`, for the same queries."""


def running_cells(connection: sa.Connection, sweep_ids: Iterable[str]) -> dict[str, dict[int, int]]:
    """Count the cells of sweeps that are running.

    Args:
        connection: In a transaction.
        sweep_ids: The sweeps.

    Returns:
        Sweep -> combination -> how many cells; what has none is left out. Their rows count as pending.
    """
    by = _running.c.sweep_id, _running.c.combination
    query = sa.select(*by, sa.func.count()).select_from(_running.join(cells, _is_same)).where(_is_pending).group_by(*by)
    found: dict[str, dict[int, int]] = {}
    for sweep_id, combination, count in fetch_among(connection, query, _running.c.sweep_id, sweep_ids):
        found.setdefault(sweep_id, {})[combination] = count
    return found


def with_running(counts: dict[str, int], running: int) -> dict[str, int]:
    """Return counts of cells by their status, in which so many that are pending in their rows are running."""
    if not running:
        return counts
    pending = counts["pending"] - running
    rest = {status: count for status, count in counts.items() if status != "pending"}
    return {**({"pending": pending} if pending else {}), **rest, "running": running}


def named_executions(sweep_id: str, *which: sa.ColumnElement[bool]) -> sa.CompoundSelect[Any]:
    """Select the ids of executions that cells of a sweep name, or cells of pools that the sweep is part of.

    Args:
        sweep_id: The sweep.
        which: Conditions for its cells.
    """
    pools = sa.select(pooled.c.pool_id).where(pooled.c.sweep_id == sweep_id)
    id = sa.select(cells.c.execution_id)
    own = id.where(cells.c.sweep_id == sweep_id, *which)
    return own.union_all(id.where(cells.c.sweep_id.in_(pools), cells.c.execution_id.is_not(None)))


def end_waiting(connection: sa.Connection, rows: Iterable[ExecutionRow]) -> None:
    """Have the cells of executions that waited be pending again."""
    waiting = [
        {**{name: getattr(row, name) for name in _KEY[:3]}, "combination": number, "execution_id": row.id}
        for row in rows
        for number in row.combinations
    ]
    changed = [{**cell, "status": "pending"} for cell in waiting]
    update_rows(connection, cells, changed, (*_KEY, "execution_id"), only={"status": ("waiting",)})
