"""What a visit of a node left in the database for its continuation: tool calls, and the last checkpoint inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from wtb.core.tree.checkpoints import Checkpoint
from wtb.store.database import Database
from wtb.store.read.queries import as_checkpoint
from wtb.store.tables.sweeps import attempts, checkpoints, invocations, node_runs

Row = dict[str, Any]


def tool_calls(database: Database, node_run_id: str, until: float | None = None) -> list[Row]:
    """Rows of `invocations` of a node run in their order; those made until then."""
    query = sa.select(invocations).where(invocations.c.node_run_id == node_run_id).order_by(invocations.c.number)
    if until is not None:
        query = query.where(invocations.c.at <= until)
    return database.rows(query)


def ends_of_attempts(database: Database, node_run_id: str) -> dict[int, str | None]:
    """Number -> kind of its failure, of the attempts of a node run that a runner has recorded."""
    query = sa.select(attempts.c.number, attempts.c.failure).where(attempts.c.node_run_id == node_run_id)
    with database.read() as connection:
        return {number: failure and failure["kind"] for number, failure in connection.execute(query)}


def asked_above(database: Database, head: Checkpoint, task: str, variant: str) -> list[Row]:
    """Node runs that asked a person, who then changed the state: `head` goes on with them. The first one first."""
    found: list[Row] = []
    with database.read() as connection:
        while head.trigger == "manual" and not head.writers and head.parent is not None:
            same = node_runs.c.checkpoint_id == head.parent, node_runs.c.task == task, node_runs.c.variant == variant
            last = sa.and_(attempts.c.node_run_id == node_runs.c.id, attempts.c.number == node_runs.c.attempts)
            query = sa.select(node_runs, attempts.c.failure).join(attempts, last).where(*same)
            run = connection.execute(query).mappings().one_or_none()
            if run is None or (run["failure"] or {}).get("kind") != "waiting":
                break
            found.insert(0, dict(run))
            above = sa.select(checkpoints).where(checkpoints.c.id == head.parent)
            head = as_checkpoint(dict(connection.execute(above).mappings().one()))
    return found


def last_inside(database: Database, node_run: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint that was taken last inside a node run."""
    query = (
        sa.select(checkpoints)
        .where(
            # Of whatever execution: a retry goes on with the node run under another one.
            checkpoints.c.parent_id == node_run["checkpoint_id"],
            checkpoints.c.inside.is_not(None),
            checkpoints.c.inside["node_run"].as_string() == node_run["id"],
        )
        .order_by(checkpoints.c.created_at.desc(), checkpoints.c.id.desc())
        .limit(1)
    )
    with database.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
        return None if row is None else as_checkpoint(dict(row))


def taken_at(database: Database, checkpoint: Checkpoint) -> float:
    """When what a checkpoint keeps of a visit was taken: where a rollback made it, by its parent."""
    query = sa.select(checkpoints.c.created_at).where(
        checkpoints.c.id == checkpoint.parent, checkpoints.c.inside.is_not(None)
    )
    return database.scalar(query) or checkpoint.created_at
