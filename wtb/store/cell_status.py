"""The cells of executions, and the status of cells as readers see it.

No row of a cell has the status "running", because that would need another version of every row. Cells whose executions
are running are running.

Cells have no index by execution, because each of their two versions would have an entry. An execution lists the
combinations that it stands for, and these lead to its cells by their key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from wtb.core.failures import UNFINISHED
from wtb.store.bulk import fetch_among, update_rows
from wtb.store.records import OfExecution
from wtb.store.tables.column_types import Json, array_elements
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import attempts, cells, executions, is_running, node_runs, pooled

CELL_KEY: Final = ("sweep_id", "case_number", "repeat", "combination")
_elements = array_elements(executions.c.combinations).table_valued("value")
_combination = sa.cast(_elements.c.value, sa.Integer)
executions_with_combinations: Final = executions.join(_elements, sa.true())
"""Executions with the combinations that they stand for, one a row: `combination`."""
combination: Final = _combination.label("combination")
# A scalar subquery, so that the cell is looked up by its whole key: with a join PostgreSQL, without statistics of a new
# sweep, and SQLite read all cells of the case, for each of its executions.
_named_by_cell = (
    sa.select(cells.c.execution_id)
    .where(*(cells.c[name] == executions.c[name] for name in CELL_KEY[:3]), cells.c.combination == _combination)
    .correlate_except(cells)
)


def of_place(table: sa.Table, execution: OfExecution) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that rows of a table are of the case and repeat of an execution."""
    return [table.c[name] == getattr(execution, name) for name in CELL_KEY[:3]]


def has_cell(*which: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition for `executions_with_combinations` that the cell of its sweep names the execution.

    Args:
        which: Conditions for the cell.
    """
    return _named_by_cell.where(*which).scalar_subquery() == executions.c.id


# Few executions run at a time, so this subquery is small however large the sweep is.
_running: Final = (
    sa.select(*(executions.c[name] for name in CELL_KEY[:3]), combination)
    .select_from(executions_with_combinations)
    .where(is_running)
    .subquery("running_cells")
)
_is_same: Final = sa.and_(*(cells.c[name] == _running.c[name] for name in CELL_KEY))
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
        The numbers of running cells by sweep and combination, without zeros. Their rows count as pending.
    """
    by = _running.c.sweep_id, _running.c.combination
    query = sa.select(*by, sa.func.count()).select_from(_running.join(cells, _is_same)).where(_is_pending).group_by(*by)
    counts: dict[str, dict[int, int]] = {}
    for sweep_id, combination, count in fetch_among(connection, query, _running.c.sweep_id, sweep_ids):
        counts.setdefault(sweep_id, {})[combination] = count
    return counts


def with_running(counts: dict[str, int], running: int) -> dict[str, int]:
    """Return counts of cells by their status, with `running` of the pending ones counted as running."""
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
    """Make the cells of executions that waited pending again."""
    waiting = [
        {**{name: getattr(row, name) for name in CELL_KEY[:3]}, "combination": number, "execution_id": row.id}
        for row in rows
        for number in row.combinations
    ]
    changed = [{**cell, "status": "pending"} for cell in waiting]
    update_rows(connection, cells, changed, (*CELL_KEY, "execution_id"), only={"status": ("waiting",)})


# Every query with this join needs the condition `is_attempt`, because a node run may have no attempt yet.
of_node_run: Final = attempts.c.node_run_id == node_runs.c.id
node_runs_with_attempts: Final = node_runs.outerjoin(attempts, of_node_run)
_has_row = attempts.c.number.is_not(None)
is_attempt: Final = sa.or_(_has_row, node_runs.c.begun_at.is_not(None))

_succeeded = node_runs.c.status == "succeeded"
_OF_FIRST: Final[dict[str, sa.ColumnElement[Any]]] = {
    "node_run_id": node_runs.c.id,
    "number": sa.literal_column("1", sa.Integer),
    "status": sa.case((_succeeded, "succeeded"), else_="failed"),
    "started_at": node_runs.c.begun_at,
    "failure": sa.case((_succeeded, sa.cast(sa.null(), Json)), else_=sa.literal(UNFINISHED.stored(), Json)),
    **{name: node_runs.c[name] for name in ("duration_s", "usd", "tokens_in", "tokens_out", "fingerprint")},
    **{name: node_runs.c[name] for name in ("stdout", "stderr")},
}
"""The columns of `attempts`, of a first attempt that has no row there."""


def attempt_column(name: str) -> sa.ColumnElement[Any]:
    """Return a column of attempts for a query of `node_runs_with_attempts`."""
    column = attempts.c[name]
    return sa.type_coerce(sa.case((_has_row, column), else_=_OF_FIRST[name]), column.type).label(name)


def select_first_attempts(which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select first attempts that have no row of their own, with the columns of `attempts`.

    Args:
        which: A condition for rows of `node_runs`.
    """
    columns = (_OF_FIRST[column.name].label(column.name) for column in attempts.c)
    return sa.select(*columns).where(which, node_runs.c.begun_at.is_not(None))
