"""The records of an earlier visit of a node, and continuing that visit.

Of the executions at one head, one at a time may be in a node run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import sqlalchemy as sa

from wtb.core.tree.checkpoints import Checkpoint
from wtb.store.bulk import fetch_record, fetch_records
from wtb.store.cell_status import attempt_column, is_attempt, node_runs_with_attempts, select_first_attempts
from wtb.store.database import Database
from wtb.store.log import keep_events
from wtb.store.read.queries import as_checkpoint
from wtb.store.records import AskingNodeRun
from wtb.store.tables.control import InvocationRow
from wtb.store.tables.executions import CheckpointRow
from wtb.store.tables.node_runs import FIRST_HAS_ROW, NodeRunRow
from wtb.store.tables.schema import attempts, checkpoints, executions, invocations, node_run_columns, node_runs

TransferOutcome = Literal["ours", "busy", "changed", "lost"]


def tool_calls(database: Database, node_run_id: str, until: float | None = None) -> list[InvocationRow]:
    """Return the tool calls of a node run in their order, up to a time if one is given."""
    query = sa.select(invocations).where(invocations.c.node_run_id == node_run_id).order_by(invocations.c.number)
    if until is not None:
        query = query.where(invocations.c.at <= until)
    return database.records(InvocationRow, query)


def ends_of_attempts(database: Database, node_run_id: str) -> dict[int, str | None]:
    """Return the kinds of failure of the recorded attempts of a node run, by number."""
    query = sa.select(attempt_column("number"), attempt_column("failure")).select_from(node_runs_with_attempts)
    ended = database.tuples(query.where(node_runs.c.id == node_run_id, is_attempt))
    return {number: failure and failure["kind"] for number, failure in ended}


def record_first_attempts(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Write the rows of first attempts that were lost, or whose results were lost, so that more attempts can follow.

    Args:
        connection: In a transaction that writes, and that keeps runners from these node runs.
        which: The condition for their rows in `node_runs`.
    """
    names = [column.name for column in attempts.c]
    connection.execute(attempts.insert().from_select(names, select_first_attempts(which)))
    without_row = node_runs.c.begun_at.is_not(None)
    connection.execute(node_runs.update().where(which, without_row).values(**FIRST_HAS_ROW))


def asked_above(database: Database, head: Checkpoint, task: str, variant: str) -> list[AskingNodeRun]:
    """Return the node runs with questions that `head` continues after a person changed the state, the first one
    first.
    """
    runs: list[AskingNodeRun] = []
    with database.read() as connection:
        while head.trigger == "manual" and not head.writers and head.parent is not None:
            same = node_runs.c.checkpoint_id == head.parent, node_runs.c.task == task, node_runs.c.variant == variant
            last = sa.and_(attempts.c.node_run_id == node_runs.c.id, attempts.c.number == node_runs.c.attempts)
            query = sa.select(*node_run_columns, attempts.c.failure).join(attempts, last).where(*same)
            run = fetch_record(connection, AskingNodeRun, query)
            if run is None or run.failure is None or run.failure["kind"] != "waiting":
                break
            runs.insert(0, run)
            (above,) = fetch_records(
                connection, CheckpointRow, sa.select(checkpoints).where(checkpoints.c.id == head.parent)
            )
            head = as_checkpoint(above)
    return runs


def last_inside(database: Database, node_run: NodeRunRow) -> Checkpoint | None:
    """Return the last checkpoint that was taken inside a node run."""
    query = (
        sa.select(checkpoints)
        .where(
            # Of whatever execution: a retry continues with the node run under another one.
            checkpoints.c.parent_id == node_run.checkpoint_id,
            checkpoints.c.inside.is_not(None),
            checkpoints.c.inside["node_run"].as_string() == node_run.id,
        )
        .order_by(checkpoints.c.created_at.desc(), checkpoints.c.id.desc())
        .limit(1)
    )
    row = database.record(CheckpointRow, query)
    return None if row is None else as_checkpoint(row)


def taken_at(database: Database, checkpoint: Checkpoint) -> float:
    """Return when the visit was interrupted that a checkpoint continues. A copy by a rollback has the time of its
    parent.
    """
    query = sa.select(checkpoints.c.created_at).where(
        checkpoints.c.id == checkpoint.parent, checkpoints.c.inside.is_not(None)
    )
    return database.scalar(query) or checkpoint.created_at


def transfer_node_runs(
    database: Database, execution_id: str, token: int, head_id: str, loaded: Mapping[str, NodeRunRow]
) -> TransferOutcome:
    """Transfer node runs that started from the head of an execution to it: all of them, or none.

    Args:
        database: The database.
        execution_id: The execution.
        token: Its fencing token.
        head_id: Its head.
        loaded: The rows of the node runs by id, as loaded with the execution. Executions that retry, or that waited for
            an answer, may share them.

    Returns:
        "ours" if the execution has them now, "busy" if another execution is in one of them, "changed" if another one
        was in one since they were loaded, "lost" if the lease of the execution is lost.
    """
    own = sa.select(executions.c.status, executions.c.token).where(executions.c.id == execution_id)
    query = (
        sa.select(node_runs.c.id, node_runs.c.status, node_runs.c.attempts)
        .add_columns(executions.c.id.label("of"), executions.c.status.label("goes"), executions.c.head_id)
        .outerjoin(executions, executions.c.id == node_runs.c.execution_id)
        .where(node_runs.c.id.in_(sorted(loaded)))
    )
    with database.write() as connection:
        # Lock the head instead of its node runs: with one lock for all of them there can be no deadlock.
        lock = sa.select(checkpoints.c.id).where(checkpoints.c.id == head_id)
        connection.execute(lock.with_for_update(key_share=True))
        mine = connection.execute(own).one_or_none()
        if mine is None or mine.status != "running" or mine.token != token:
            return "lost"
        rows = connection.execute(query).all()
        if any(row.of != execution_id and row.goes == "running" and row.head_id == head_id for row in rows):
            return "busy"
        if any(row.status in ("succeeded", "skipped") or row.attempts != loaded[row.id].attempts for row in rows):
            return "changed"
        record_first_attempts(connection, node_runs.c.id.in_(sorted(loaded)))
        theirs = [row.id for row in rows if row.of != execution_id]
        if theirs:
            # Events that are derived from these rows belong to the other execution,
            # so they are stored before the rows change.
            keep_events(connection, node_runs, theirs)
            connection.execute(node_runs.update().where(node_runs.c.id.in_(theirs)).values(execution_id=execution_id))
        return "ours"
