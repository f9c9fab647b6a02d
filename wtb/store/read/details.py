"""Queries for people who look: single cells and checkpoints, decisions, counts of events and rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from wtb.core.errors import InputError, meant_or_known
from wtb.core.tree.checkpoints import Checkpoint
from wtb.store.access.scope import in_scope
from wtb.store.bulk import equal, fetch_among
from wtb.store.cell_status import cell_columns, cell_status, cells_and_running
from wtb.store.database import Database
from wtb.store.log import derived_counts, row_counts
from wtb.store.read.lineage import of_same_case
from wtb.store.read.queries import as_bytes, as_checkpoint, rows_by_id, state_order, stored_bytes, the_one
from wtb.store.rows.results import FoundCell
from wtb.store.tables.checkpoints import CheckpointRow, DecisionRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.results import CellRow, ScoreRow
from wtb.store.tables.schema import (
    cases,
    cells,
    checkpoints,
    decisions,
    events,
    executions,
    is_case,
    is_visible,
    scores,
    sweeps,
    values,
)

if TYPE_CHECKING:
    from wtb.core.documents.events.common import Severity


def cells_like(
    database: Database,
    sweep_id: str,
    *,
    case: str | None = None,
    repeat: int | None = None,
    combinations: Sequence[int] | None = None,
    limit: int | None = None,
) -> list[FoundCell]:
    """Cells of a sweep, each with its case's id, its status and the execution that holds it."""
    query = (
        sa.select(cells.c.combination, cells.c.repeat, cell_status, cells.c.execution_id, cases.c.id.label("case"))
        .select_from(cells_and_running)
        .join(cases, sa.and_(cases.c.sweep_id == cells.c.sweep_id, cases.c.number == cells.c.case_number))
        .where(cells.c.sweep_id == sweep_id)
        .order_by(cells.c.case_number, cells.c.repeat, cells.c.combination)
        .limit(limit)
    )
    query = query.where(*equal({cells.c.repeat: repeat}), *([] if case is None else [is_case(case)]))
    if combinations is not None:
        query = query.where(cells.c.combination.in_(combinations))
    return database.records(FoundCell, query)


def execution_cells(database: Database, execution: ExecutionRow) -> list[CellRow]:
    """The cells that an execution holds, by combination: those that it stands for and no retry has taken over."""
    query = (
        sa.select(*cell_columns)
        .select_from(cells_and_running)
        .where(
            cells.c.sweep_id == execution.sweep_id,
            cells.c.case_number == execution.case_number,
            cells.c.repeat == execution.repeat,
            cells.c.execution_id == execution.id,
        )
        .order_by(cells.c.combination)
    )
    return database.records(CellRow, query)


def execution_scores(database: Database, execution: ExecutionRow) -> list[ScoreRow]:
    """The scores of the cells of an execution's case and repeat."""
    query = sa.select(scores).where(
        scores.c.sweep_id == execution.sweep_id,
        scores.c.case_number == execution.case_number,
        scores.c.repeat == execution.repeat,
    )
    return database.records(ScoreRow, query)


def children(database: Database, execution_id: str) -> list[ExecutionRow]:
    """The executions that a fork or a retry made of one."""
    query = sa.select(executions).where(*of_same_case(execution_id), executions.c.parent_id == execution_id)
    return database.records(ExecutionRow, query.order_by(executions.c.id))


def find_checkpoint(database: Database, ref: str) -> tuple[Checkpoint, str]:
    """(a checkpoint by id or the beginning of its id, its sweep). Raises InputError."""
    query = sa.select(checkpoints).join(sweeps, sweeps.c.id == checkpoints.c.sweep_id).where(is_visible)
    query = query.where(*in_scope(database, sweeps))
    hint = "`wtb history EXECUTION` lists those of an execution"
    rows = rows_by_id(database, CheckpointRow, query, checkpoints.c.id, ref)
    row = the_one({row.id: row for row in rows}, ref, "checkpoint", hint)
    return as_checkpoint(row, state_order(database, row.sweep_id)), row.sweep_id


def execution_of(database: Database, checkpoint_id: str) -> str:
    """Return the id of the execution that took a checkpoint."""
    query = sa.select(checkpoints.c.execution_id).where(checkpoints.c.id == checkpoint_id)
    return str(database.scalar(query))


def decision_rows(database: Database, checkpoint_ids: Sequence[str]) -> list[DecisionRow]:
    """Why an execution went where it went, by checkpoint."""
    query = (
        sa.select(decisions)
        .where(decisions.c.checkpoint_id.in_(list(checkpoint_ids)))
        .order_by(decisions.c.checkpoint_id, decisions.c.number)
    )
    return database.records(DecisionRow, query)


def execution_case(database: Database, execution_id: str) -> tuple[str, int]:
    """(the id of an execution's case, its repeat)."""
    query = (
        sa.select(cases.c.id, executions.c.repeat)
        .join(
            executions, sa.and_(executions.c.sweep_id == cases.c.sweep_id, executions.c.case_number == cases.c.number)
        )
        .where(executions.c.id == execution_id)
    )
    ((case, repeat),) = database.tuples(query)
    return case, repeat


def cases_of(database: Database, execution_ids: Sequence[str]) -> dict[str, str]:
    """The ids of executions' cases, by execution."""
    same = sa.and_(executions.c.sweep_id == cases.c.sweep_id, executions.c.case_number == cases.c.number)
    query = sa.select(executions.c.id, cases.c.id).join(cases, same)
    with database.read() as connection:
        return dict(fetch_among(connection, query, executions.c.id, execution_ids))


def check_case(database: Database, sweep_id: str, case: str) -> None:
    """Check that a sweep has a case of this id. Raises InputError with near matches, or with the cases that it has."""
    query = sa.select(cases.c.id).where(cases.c.sweep_id == sweep_id)
    with database.read() as connection:
        if connection.scalar(query.where(is_case(case))) is None:
            known = list(connection.scalars(query.order_by(cases.c.number).limit(1000)))
            raise InputError(f"the sweep has no case {case!r}{meant_or_known(case, known)}")


def stored_values(database: Database, digests: Iterable[str]) -> dict[str, bytes]:
    """Read those of some values that are stored, by digest; `queries.load_values` raises an error for others."""
    with database.read() as connection:
        rows = fetch_among(connection, sa.select(values.c.digest, stored_bytes(database)), values.c.digest, digests)
        return {digest: as_bytes(data) for digest, data in rows}


class CountedEvents(NamedTuple):
    """How many events there are of a kind and severity."""

    kind: str
    severity: Severity
    number: int


def event_counts(database: Database, sweep_id: str, execution: str | None = None) -> list[CountedEvents]:
    """How many events there are of each kind and severity."""
    query = (
        sa.select(events.c.kind, events.c.severity, sa.func.count().label("count"))
        .where(events.c.sweep_id == sweep_id)
        .group_by(events.c.kind, events.c.severity)
        .order_by(events.c.kind, events.c.severity)
    )
    query = query.where(*equal({events.c.execution_id: execution}))
    with database.read() as connection:
        counts = {(kind, severity): count for kind, severity, count in connection.execute(query)}
        for kind, count in derived_counts(connection, sweep_id, execution).items():
            counts[kind, "info"] = counts.get((kind, "info"), 0) + count
    return [CountedEvents(*key, counts[key]) for key in sorted(counts)]


def belongings(database: Database, sweep_id: str) -> dict[str, int]:
    """How many rows of each kind belong to a sweep."""
    with database.read() as connection:
        found, derived = row_counts(connection, sweep_id)
        for table in (cells, scores, events):
            count = sa.select(sa.func.count()).where(table.c.sweep_id == sweep_id)
            found[table.name] = connection.scalar(count) or 0
    found["events"] += sum(derived.values())
    return {name: found[name] for name in ("cells", "executions", "checkpoints", "node_runs", "scores", "events")}
