"""The status of cells as readers see it.

No row of a cell has the status "running": a version of the row of every cell would be written for that. The cells of
executions that somebody runs now are running.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from wtb.store.bulk import fetch_among
from wtb.store.tables.column_types import array_elements
from wtb.store.tables.schema import cells, executions, is_running

_KEY: Final = ("sweep_id", "case_number", "repeat", "combination")
_elements = array_elements(executions.c.combinations).table_valued("value")
_running: Final = (
    sa.select(
        *(executions.c[name] for name in _KEY[:3]),
        sa.cast(_elements.c.value, sa.Integer).label("combination"),
    )
    .select_from(executions.join(_elements, sa.true()))
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
