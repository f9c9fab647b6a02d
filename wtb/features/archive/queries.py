"""Queries of export and import: an execution with its history, out of one database and into another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import sqlalchemy as sa
from msgspec import structs

from wtb.core.errors import InputError
from wtb.store.bulk import Row, fetch_row, fetch_rows, insert_missing, insert_rows, parts
from wtb.store.database import Database
from wtb.store.log import insert_events, log_rows
from wtb.store.runs.leases import of_cells
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import (
    cases,
    cells,
    checkpoints,
    combinations,
    events,
    executions,
    metrics,
    node_runs,
    sweeps,
    workflows,
)

PART = 1_000


def line_ids(connection: sa.Connection, execution: ExecutionRow) -> list[str]:
    """Return the checkpoints that lead to an execution's head, and those on lines that it left, each after its
    parent.
    """
    start = sa.select(checkpoints.c.id, checkpoints.c.parent_id).where(
        sa.or_(checkpoints.c.id == execution.head_id, checkpoints.c.execution_id == execution.id)
    )
    return _parents_first(_with_ancestors(connection, checkpoints, start))


def ancestors(connection: sa.Connection, execution: ExecutionRow, checkpoint_ids: Sequence[str]) -> list[str]:
    """Return an execution with its ancestors, and the makers of its checkpoints, each after its parent."""
    start = sa.select(executions.c.id, executions.c.parent_id).where(executions.c.id == execution.id)
    parent_of = _with_ancestors(connection, executions, start)
    for part in parts(checkpoint_ids):
        makers = (
            sa.select(executions.c.id, executions.c.parent_id)
            .join(checkpoints, checkpoints.c.execution_id == executions.c.id)
            .where(checkpoints.c.id.in_(part))
            .distinct()
        )
        parent_of |= {row.id: row.parent_id for row in connection.execute(makers)}
    return _parents_first(parent_of)


def _with_ancestors(connection: sa.Connection, table: sa.Table, start: sa.Select[Any]) -> dict[str, str | None]:
    """Return the parent by id of the rows that a query of both columns starts with, and of all their ancestors."""
    walk = start.cte("line", recursive=True)
    # Not UNION ALL: lines that meet are followed from there only once.
    walk = walk.union(sa.select(table.c.id, table.c.parent_id).join(walk, table.c.id == walk.c.parent_id))
    return {row.id: row.parent_id for row in connection.execute(sa.select(walk))}


def _parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """Order ids so that each comes after its parent."""
    placed: dict[str, None] = {}
    # Sorted, because the database returns rows in any order, and equal exports should be equal files.
    for id in sorted(parents):
        above, at = [], id
        while at in parents and at not in placed:
            above.append(at)
            at = parents[at] or ""
        placed |= dict.fromkeys(reversed(above))
    return list(placed)


def node_run_ids(
    connection: sa.Connection, execution: ExecutionRow, checkpoint_ids: Sequence[str], choices: Mapping[str, str]
) -> list[str]:
    """Return the node runs that wrote the checkpoints, those of the execution itself, and those running at its head."""
    ids: dict[str, None] = {}
    for part in parts(checkpoint_ids):
        for row in connection.execute(
            sa.select(checkpoints.c.writers, checkpoints.c.inside).where(checkpoints.c.id.in_(part))
        ):
            ids |= dict.fromkeys(writer[2] for writer in row.writers)
            if row.inside is not None:
                ids[row.inside["node_run"]] = None
        runs = sa.select(node_runs.c.id, node_runs.c.node, node_runs.c.variant, node_runs.c.execution_id)
        at_head = node_runs.c.checkpoint_id == execution.head_id
        own = sa.or_(at_head, node_runs.c.execution_id == execution.id)
        for run in connection.execute(runs.where(node_runs.c.checkpoint_id.in_(part), own)):
            # Runs of other executions at the head count if they are of the variant that this one has chosen.
            if run.execution_id == execution.id or choices.get(run.node) == run.variant:
                ids[run.id] = None
    return sorted(ids)


def rows_of(
    connection: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]], key: str, ids: Sequence[str]
) -> Iterator[Row]:
    """Yield rows by one of their columns, in the order of `ids`."""
    for part in parts(ids):
        order = [] if key == "id" else [*table.primary_key, *([table.c.at] if "at" in table.c else [])]
        by_key: defaultdict[str, list[Row]] = defaultdict(list)
        for row in fetch_rows(connection, sa.select(*columns).where(table.c[key].in_(part)).order_by(*order)):
            by_key[row[key]].append(row)
        yield from (row for id in part for row in by_key[id])


def events_of(
    connection: sa.Connection, columns: Sequence[sa.Column[Any]], sweep_id: str, execution_ids: Sequence[str]
) -> Iterator[Row]:
    """Yield the events of executions, in the order in which they became visible."""
    for event in log_rows(connection, sweep_id, executions=execution_ids):
        row = dict(event)
        yield {str(column.name): row[column.name] for column in columns}


def cell_of(connection: sa.Connection, execution: ExecutionRow, combination: int | None) -> Row | None:
    """Return the cell of an execution for one of its combinations, if the execution holds it."""
    mine = of_cells(cells, structs.replace(execution, combinations=[] if combination is None else [combination]))
    return fetch_row(connection, sa.select(cells).where(*mine, cells.c.execution_id == execution.id))


def rows_of_cell(connection: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]], cell: Row) -> list[Row]:
    """Return the rows of a table that belong to a cell, such as its scores."""
    same = [table.c[name] == cell[name] for name in ("sweep_id", "case_number", "repeat", "combination")]
    return fetch_rows(connection, sa.select(*columns).where(*same).order_by(*table.primary_key))


def insert_sweep(
    connection: sa.Connection, sweep: Row, graph: Row, case: Row, choices: Mapping[str, str], measured: Sequence[Row]
) -> None:
    """Insert the sweep of a single execution, with its case and its one combination."""
    insert_missing(connection, workflows, [graph])
    insert_rows(connection, sweeps, [sweep])
    insert_rows(connection, cases, [{**case, "sweep_id": sweep["id"], "number": 0}])
    insert_rows(connection, combinations, [{"sweep_id": sweep["id"], "number": 0, "choices": dict(choices)}])
    insert_rows(connection, metrics, [{**metric, "sweep_id": sweep["id"]} for metric in measured])


def insert_history(connection: sa.Connection, table: sa.Table, rows: Iterable[Row]) -> None:
    """Insert rows of one table, all of the same columns, in parts."""
    insert = partial(insert_events, connection) if table is events else partial(insert_rows, connection, table)
    remaining = iter(rows)
    while part := list(islice(remaining, PART)):
        insert(part)


@contextmanager
def refusing_bad_rows(database: Database, what: str) -> Iterator[None]:
    """Raise rejections by the database's own rules as InputError."""
    # Rows may be sent by SQLAlchemy or by the driver itself, which raise different classes.
    driver = database.engine.dialect.loaded_dbapi
    refused = (sa.exc.IntegrityError, sa.exc.DataError, driver.IntegrityError, driver.DataError)
    try:
        yield
    except refused as error:
        cause = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise InputError(f"{what}: the database refuses it ({cause})") from error
