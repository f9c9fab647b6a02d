"""Lines of checkpoints without their states, for rollbacks and for drawing trees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.core.values import Json
from wtb.store.bulk import equal, fetch_among, fetch_records, parts
from wtb.store.cell_status import cell_status, cells_and_running
from wtb.store.database import Database
from wtb.store.records import Mark
from wtb.store.tables.control import RollbackRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cases, cells, checkpoints, events, executions, is_case, rollbacks

if TYPE_CHECKING:
    from wtb.core.documents.shared_types import Scores

Marks = Mapping[str, Mark]

_COLUMNS = [
    checkpoints.c[name]
    for name in ("id", "parent_id", "execution_id", "position", "writers", "trigger", "name", "inside", "created_at")
]


def marks(connection: sa.Connection, heads: Iterable[str | None]) -> dict[str, Mark]:
    """Return the checkpoints on the lines that lead to these heads, by id."""
    # States are left out, because a line may be long and its states large.
    by_id: dict[str, Mark] = {}
    for part in parts(sorted({head for head in heads if head is not None})):
        walk = sa.select(checkpoints.c.id, checkpoints.c.parent_id).where(checkpoints.c.id.in_(part))
        line = walk.cte("line", recursive=True)
        # UNION without ALL: lines of several heads share their beginnings, which are then walked once.
        line = line.union(
            sa.select(checkpoints.c.id, checkpoints.c.parent_id).join(line, checkpoints.c.id == line.c.parent_id)
        )
        query = sa.select(*_COLUMNS).join(line, line.c.id == checkpoints.c.id)
        by_id.update((row.id, row) for row in fetch_records(connection, Mark, query))
    return by_id


def line(marks: Marks, head: str | None) -> list[Mark]:
    """Return the marks from the root to a head, oldest first."""
    path: list[Mark] = []
    while head is not None and head in marks:
        path.append(marks[head])
        head = marks[head].parent_id
    return path[::-1]


def edits(connection: sa.Connection, marks: Iterable[Mark]) -> set[str]:
    """Return the ids of the checkpoints by which a person changed the state. Rollbacks make some without a change."""
    parents = {mark.id: mark.parent_id for mark in marks if mark.trigger == "manual" and mark.parent_id is not None}
    ids = {*parents, *filter(None, parents.values())}
    rows = fetch_among(connection, sa.select(checkpoints.c.id, checkpoints.c.state), checkpoints.c.id, sorted(ids))
    states: dict[str | None, Mapping[str, str]] = {row.id: row.state for row in rows}
    return {id for id, parent in parents.items() if parent in states and states[id] != states[parent]}


def is_edited(connection: sa.Connection, head: str | None, before: bool) -> bool:
    """Return whether a person changed the state on the line that leads to a checkpoint.

    `before` is the earlier answer, which counts if the beginning of the line was removed.
    """
    way = line(marks(connection, [head]), head)
    is_whole = head is None or (bool(way) and way[0].parent_id is None)
    return bool(edits(connection, way)) or (before and not is_whole)


def inside(connection: sa.Connection, parents: Iterable[str]) -> list[Mark]:
    """Return the checkpoints that were taken inside nodes which started from these, oldest first."""
    checkpoint_marks: list[Mark] = []
    for part in parts(sorted(set(parents))):
        query = sa.select(*_COLUMNS).where(checkpoints.c.parent_id.in_(part), checkpoints.c.inside.is_not(None))
        checkpoint_marks += fetch_records(connection, Mark, query)
    return sorted(checkpoint_marks, key=lambda mark: (mark.created_at, mark.id))


def rollbacks_of(connection: sa.Connection, execution_ids: Sequence[str]) -> list[RollbackRow]:
    """Return the rollbacks of executions, oldest first."""
    query = (
        sa.select(rollbacks)
        .where(rollbacks.c.execution_id.in_(list(execution_ids)))
        .order_by(rollbacks.c.at, rollbacks.c.id)
    )
    return fetch_records(connection, RollbackRow, query)


def rollbacks_in(connection: sa.Connection, sweep_id: str) -> list[RollbackRow]:
    query = sa.select(rollbacks).where(rollbacks.c.sweep_id == sweep_id).order_by(rollbacks.c.at, rollbacks.c.id)
    return fetch_records(connection, RollbackRow, query)


def family(
    database: Database, sweep_id: str, case_number: int | None = None, repeat: int | None = None
) -> tuple[list[ExecutionRow], dict[str, Mark], list[RollbackRow]]:
    """Return the executions of a sweep, or of one of its cases, the marks of all their lines, and their rollbacks.

    Each is sorted, the oldest first. Lines that rollbacks left are among the marks.
    """
    query = sa.select(executions).where(executions.c.sweep_id == sweep_id).order_by(executions.c.id)
    query = query.where(*equal({executions.c.case_number: case_number, executions.c.repeat: repeat}))
    with database.read() as connection:
        rows = fetch_records(connection, ExecutionRow, query)
        ids = {row.id for row in rows}
        rollback_rows = [row for row in rollbacks_in(connection, sweep_id) if row.execution_id in ids]
        heads = [row.head_id for row in rows] + [row.from_id for row in rollback_rows]
        return rows, marks(connection, heads), rollback_rows


def cells_held(database: Database, sweep_id: str, number: int) -> dict[str, dict[str, int]]:
    """Return the numbers of cells of a case by the execution that they name, and by status."""
    query = (
        sa.select(cells.c.execution_id, cell_status, sa.func.count())
        .select_from(cells_and_running)
        .where(cells.c.sweep_id == sweep_id, cells.c.case_number == number)
        .group_by(cells.c.execution_id, cell_status)
    )
    counts: dict[str, dict[str, int]] = {}
    for execution, status, count in database.tuples(query):
        counts.setdefault(execution, {})[status] = count
    return counts


def made_by_people(database: Database, sweep_id: str, checkpoint_ids: Iterable[str]) -> dict[str, dict[str, Json]]:
    """Return the data of the events by which people made checkpoints, by the id of the checkpoint."""
    ids = set(checkpoint_ids)
    if not ids:
        return {}
    kinds = ("execution.rolled_back", "execution.redone", "execution.resumed", "fork.made", "approval.answered")
    query = (
        sa.select(events.c.kind, events.c.data)
        .where(events.c.sweep_id == sweep_id, events.c.kind.in_(kinds))
        .order_by(events.c.id)
    )
    by_checkpoint: dict[str, dict[str, Json]] = {}
    for kind, details in database.tuples(query):
        if details.get("head") in ids:
            by_checkpoint.setdefault(details["head"], {"kind": kind, **details})
    return by_checkpoint


def notes(database: Database, sweep_id: str, checkpoint_ids: Iterable[str]) -> dict[str, str]:
    """Return the notes of checkpoints that people named, by their ids: the notes of their last names."""
    ids = set(checkpoint_ids)
    if not ids:
        return {}
    query = sa.select(events.c.data).where(events.c.sweep_id == sweep_id, events.c.kind == "checkpoint.named")
    last = {details["checkpoint"]: details.get("note") for (details,) in database.tuples(query.order_by(events.c.id))}
    return {id: note for id, note in last.items() if id in ids and note is not None}


def scores_told(database: Database, execution_id: str) -> Scores:
    """Return the scores, by metric, of an execution without cells, from the event of its end."""
    query = (
        sa.select(events.c.data)
        .join(executions, executions.c.id == events.c.execution_id)
        .where(
            events.c.sweep_id == executions.c.sweep_id,
            events.c.execution_id == execution_id,
            events.c.kind == "execution.completed",
        )
        .order_by(events.c.id.desc())
        .limit(1)
    )
    recorded = database.scalar(query)
    return dict((recorded or {}).get("scores") or {})


def descendants(connection: sa.Connection, execution_id: str) -> list[ExecutionRow]:
    """Return the executions that came from one by forks and retries, of any depth."""
    return rows_of(connection, ids_below(connection, execution_id))


def ids_below(connection: sa.Connection, execution_id: str, *which: sa.ColumnElement[bool]) -> list[str]:
    """Return the ids of the executions that came from one, of any depth, parents first.

    Args:
        connection: In a transaction.
        execution_id: The execution.
        which: Conditions for the executions that count.
    """
    query = sa.select(executions.c.id, executions.c.parent_id)
    query = query.where(*of_same_case(execution_id), executions.c.parent_id.is_not(None), *which)
    children: defaultdict[str, list[str]] = defaultdict(list)
    for id, parent_id in connection.execute(query):
        children[parent_id].append(id)
    ids = [execution_id]
    for id in ids:  # the list grows meanwhile
        ids += children.pop(id, ())
    return ids[1:]


def of_same_case(execution_id: str) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that executions are of the same case and repeat as one, as all its descendants are.

    There is an index for that, and none of parents.
    """
    this = executions.alias("one")
    return [
        executions.c[name] == sa.select(this.c[name]).where(this.c.id == execution_id).scalar_subquery()
        for name in ("sweep_id", "case_number", "repeat")
    ]


def rows_of(connection: sa.Connection, ids: Sequence[str]) -> list[ExecutionRow]:
    """Return executions by their ids, oldest first."""
    rows = [ExecutionRow(*row) for row in fetch_among(connection, sa.select(executions), executions.c.id, ids)]
    return sorted(rows, key=lambda row: row.id)


def case_numbers(connection: sa.Connection, sweep_id: str, case: str | None = None) -> list[int]:
    """Return the numbers of the cases of a sweep's executions, in order."""
    query = sa.select(executions.c.case_number).where(executions.c.sweep_id == sweep_id).distinct()
    if case is not None:
        same = (cases.c.sweep_id == executions.c.sweep_id, cases.c.number == executions.c.case_number)
        query = query.where(sa.exists().where(*same, is_case(case)))
    return list(connection.scalars(query.order_by(executions.c.case_number)))
