"""Changes that people make to an execution: its state (by a manual checkpoint at the same position), names, its
pause.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.ids import new_id
from wtb.core.values import Value
from wtb.store.bulk import fetch_record, fetch_records, insert_rows, insert_values
from wtb.store.database import Database
from wtb.store.log import add_execution_event
from wtb.store.read.lineage import is_edited
from wtb.store.runs.leases import move_cells, releasing
from wtb.store.tables.executions import CheckpointRow, ExecutionRow, NewCheckpoint
from wtb.store.tables.schema import cases, checkpoints, executions, sweeps, workflows


def edited_head(
    connection: sa.Connection, execution: ExecutionRow, changes: Mapping[str, Value], *, parent_id: str | None = None
) -> str:
    """Move an execution to a new head: a manual checkpoint below `parent_id`, or its head, with some keys changed.

    An execution that has not begun gets its root first. It counts as edited if a person changed the state on the line
    to the new head.

    Args:
        connection: In a transaction that writes.
        execution: Its row, locked by the caller, who also sets its status and `passed_id`.
        changes: New values by key.
        parent_id: The parent of the new head; by default the present head.

    Returns:
        The id of the new head.

    Raises:
        StoreError: If the parent was removed.
    """
    parent = parent_id or execution.head_id or make_root(connection, execution)
    head = manual_checkpoint(connection, execution, parent, changes)
    edited = is_edited(connection, head, execution.edited)
    moved = executions.update().where(executions.c.id == execution.id)
    connection.execute(moved.values(head_id=head, edited=edited))
    return head


def manual_checkpoint(
    connection: sa.Connection, execution: ExecutionRow, parent_id: str, changes: Mapping[str, Value] | None = None
) -> str:
    """Add a manual checkpoint below another one. Inside a node, it keeps the saved data of the visit. Returns its
    id.
    """
    parent = fetch_record(connection, CheckpointRow, sa.select(checkpoints).where(checkpoints.c.id == parent_id))
    if parent is None:
        raise StoreError(f"checkpoint {parent_id} was removed; `wtb history {execution.id}` lists the others")
    changes = changes or {}
    insert_values(connection, sorted({value.digest: value.data for value in changes.values()}.items()))
    checkpoint: NewCheckpoint = {
        "id": new_id(),
        "sweep_id": parent.sweep_id,
        "execution_id": execution.id,
        "parent_id": parent_id,
        "position": parent.position,
        "state": {**parent.state, **{name: value.digest for name, value in changes.items()}},
        "writers": [],
        "workspace": parent.workspace,
        "totals": parent.totals,
        "trigger": "manual",
        "name": None,
        "inside": parent.inside,
        "created_at": time.time(),
    }
    insert_rows(connection, checkpoints, [checkpoint])
    return checkpoint["id"]


def make_root(connection: sa.Connection, execution: ExecutionRow, nodes: Sequence[str] | None = None) -> str:
    """Add the root of an execution that has not begun: the input of its case, with the entry nodes or others next."""
    query = (
        sa.select(cases.c.input, cases.c.workspace, workflows.c.graph)
        .join(sweeps, sweeps.c.id == cases.c.sweep_id)
        .join(workflows, workflows.c.id == sweeps.c.workflow_id)
        .where(cases.c.sweep_id == execution.sweep_id, cases.c.number == execution.case_number)
    )
    input, workspace, graph = connection.execute(query).one()
    # In the order of declaration, in which the nodes of every step are.
    entries = [node["name"] for node in graph["nodes"] if node["name"] in graph["entries"]]
    root: NewCheckpoint = {
        "id": new_id(),
        "sweep_id": execution.sweep_id,
        "execution_id": execution.id,
        "parent_id": None,
        "position": {"step": 0, "next": entries if nodes is None else list(nodes), "arrived": {}, "visits": {}},
        "state": input,
        "writers": [],
        "workspace": workspace,
        "totals": [0.0, 0.0, 0, 0, 0],
        "trigger": "step",
        "name": None,
        "inside": None,
        "created_at": time.time(),
    }
    insert_rows(connection, checkpoints, [root])
    return root["id"]


def name_checkpoint(
    database: Database, execution: ExecutionRow, checkpoint_id: str, name: str, *, note: str | None, by: str
) -> None:
    """Give a checkpoint a name. Raises ConflictError if it was removed meanwhile."""
    with database.write() as connection:
        query = checkpoints.update().where(checkpoints.c.id == checkpoint_id).values(name=name)
        if not connection.execute(query).rowcount:
            raise ConflictError(f"checkpoint {checkpoint_id} was removed meanwhile")
        noted = {} if note is None else {"note": note}
        add_execution_event(
            connection, execution, "checkpoint.named", checkpoint=checkpoint_id, name=name, by=by, **noted
        )


def locked(connection: sa.Connection, execution_id: str) -> ExecutionRow:
    """Return the row of an execution, locked until the transaction ends. Raises StoreError."""
    row = fetch_record(
        connection, ExecutionRow, sa.select(executions).where(executions.c.id == execution_id).with_for_update()
    )
    if row is None:
        raise StoreError(f"execution {execution_id} was deleted with its sweep")
    return row


def grant(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Carry out the requests for executions that were released."""
    if not ids:
        return
    query = sa.select(executions).where(executions.c.id.in_(ids), executions.c.asked.is_not(None))
    for row in fetch_records(connection, ExecutionRow, query.order_by(executions.c.id)):
        if row.asked is not None:
            pause_at_once(connection, row, reason=row.asked["reason"], by=row.asked["by"])


def pause_at_once(connection: sa.Connection, row: ExecutionRow, *, reason: str, by: str) -> None:
    """Pause an execution, whose row is locked. Its runner loses it, with whatever is not committed."""
    token = executions.c.token + (1 if row.status == "running" else 0)
    paused = releasing().values(status="paused", reason=reason, asked=None, token=token)
    connection.execute(paused.where(executions.c.id == row.id))
    move_cells(connection, row, "pending")
    add_execution_event(connection, row, "execution.paused", reason=reason, by=by)
