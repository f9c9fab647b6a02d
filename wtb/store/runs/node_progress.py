"""What a visit of a node left in the database for its continuation, and continuing it.

Of the executions at one head, one at a time may be in a node run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import sqlalchemy as sa

from wtb.core.tree.checkpoints import Checkpoint
from wtb.store.attempt_columns import attempt_column, is_attempt, node_runs_with_attempts, select_first_attempts
from wtb.store.bulk import fetch_record, fetch_records
from wtb.store.database import Database
from wtb.store.log import keep_events
from wtb.store.read.queries import as_checkpoint
from wtb.store.rows.executions import AskingNodeRun
from wtb.store.tables.checkpoints import CheckpointRow
from wtb.store.tables.control import InvocationRow
from wtb.store.tables.node_runs import FIRST_HAS_ROW, NodeRunRow
from wtb.store.tables.schema import attempts, checkpoints, executions, invocations, node_run_columns, node_runs

Adoption = Literal["ours", "busy", "changed", "lost"]


def tool_calls(database: Database, node_run_id: str, until: float | None = None) -> list[InvocationRow]:
    """Rows of `invocations` of a node run in their order; those made until then."""
    query = sa.select(invocations).where(invocations.c.node_run_id == node_run_id).order_by(invocations.c.number)
    if until is not None:
        query = query.where(invocations.c.at <= until)
    return database.records(InvocationRow, query)


def ends_of_attempts(database: Database, node_run_id: str) -> dict[int, str | None]:
    """Number -> kind of its failure, of the attempts of a node run that a runner has recorded."""
    query = sa.select(attempt_column("number"), attempt_column("failure")).select_from(node_runs_with_attempts)
    with database.read() as connection:
        ended = connection.execute(query.where(node_runs.c.id == node_run_id, is_attempt))
        return {number: failure and failure["kind"] for number, failure in ended}


def record_first_attempts(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Write the rows of first attempts that were lost, or whose results were, so that further ones can follow.

    Args:
        connection: In a transaction that writes, and that keeps runners from these node runs.
        which: The condition for their rows in `node_runs`.
    """
    names = [column.name for column in attempts.c]
    connection.execute(attempts.insert().from_select(names, select_first_attempts(which)))
    without_row = node_runs.c.begun_at.is_not(None)
    connection.execute(node_runs.update().where(which, without_row).values(**FIRST_HAS_ROW))


def asked_above(database: Database, head: Checkpoint, task: str, variant: str) -> list[AskingNodeRun]:
    """Node runs that asked a person, who then changed the state: `head` continues with them. The first one first."""
    asked: list[AskingNodeRun] = []
    with database.read() as connection:
        while head.trigger == "manual" and not head.writers and head.parent is not None:
            same = node_runs.c.checkpoint_id == head.parent, node_runs.c.task == task, node_runs.c.variant == variant
            last = sa.and_(attempts.c.node_run_id == node_runs.c.id, attempts.c.number == node_runs.c.attempts)
            query = sa.select(*node_run_columns, attempts.c.failure).join(attempts, last).where(*same)
            run = fetch_record(connection, AskingNodeRun, query)
            if run is None or run.failure is None or run.failure["kind"] != "waiting":
                break
            asked.insert(0, run)
            (above,) = fetch_records(
                connection, CheckpointRow, sa.select(checkpoints).where(checkpoints.c.id == head.parent)
            )
            head = as_checkpoint(above)
    return asked


def last_inside(database: Database, node_run: NodeRunRow) -> Checkpoint | None:
    """The checkpoint that was taken last inside a node run."""
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
    """When what a checkpoint keeps of a visit was taken: where a rollback made it, by its parent."""
    query = sa.select(checkpoints.c.created_at).where(
        checkpoints.c.id == checkpoint.parent, checkpoints.c.inside.is_not(None)
    )
    return database.scalar(query) or checkpoint.created_at


def adopt(database: Database, execution_id: str, token: int, head_id: str, known: Mapping[str, NodeRunRow]) -> Adoption:
    """Let an execution continue node runs that started from its head: all of them, or none.

    known: their rows by id, as the execution was loaded with them. Executions that retry, or waited for an answer, may
    share them.

    Returns ours if the execution has them now, busy if another execution is in one of them, changed if another one was
    in one since they were loaded, lost if the lease of the execution is gone.
    """
    own = sa.select(executions.c.status, executions.c.token).where(executions.c.id == execution_id)
    query = (
        sa.select(node_runs.c.id, node_runs.c.status, node_runs.c.attempts)
        .add_columns(executions.c.id.label("of"), executions.c.status.label("goes"), executions.c.head_id)
        .outerjoin(executions, executions.c.id == node_runs.c.execution_id)
        .where(node_runs.c.id.in_(sorted(known)))
    )
    with database.write() as connection:
        # Lock the head in place of its node runs: with one lock for all of them there can be no deadlock.
        lock = sa.select(checkpoints.c.id).where(checkpoints.c.id == head_id)
        connection.execute(lock.with_for_update(key_share=True))
        mine = connection.execute(own).one_or_none()
        if mine is None or mine.status != "running" or mine.token != token:
            return "lost"
        rows = connection.execute(query).all()
        if any(row.of != execution_id and row.goes == "running" and row.head_id == head_id for row in rows):
            return "busy"
        if any(row.status in ("succeeded", "skipped") or row.attempts != known[row.id].attempts for row in rows):
            return "changed"
        record_first_attempts(connection, node_runs.c.id.in_(sorted(known)))
        theirs = [row.id for row in rows if row.of != execution_id]
        if theirs:
            keep_events(connection, node_runs, theirs)
            connection.execute(node_runs.update().where(node_runs.c.id.in_(theirs)).values(execution_id=execution_id))
        return "ours"
