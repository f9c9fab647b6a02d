"""Executions that begin at checkpoints of others: forks by people, and retries of failed cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from wtb.core.documents.execution_events import ForkMadeData
from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.values import Json, Value
from wtb.store.bulk import equal, fetch_records, insert_rows
from wtb.store.control.edits import edited_head, locked
from wtb.store.database import Database
from wtb.store.log import add_execution_event, keep_events
from wtb.store.read.queries import find_sweep
from wtb.store.records import CellsOfExecution
from wtb.store.runs.leases import claim_rows, continuing, move_cells, of_cells, try_move
from wtb.store.runs.submit import next_id
from wtb.store.tables.executions import ExecutionRow, NewExecution
from wtb.store.tables.schema import cells, checkpoints, executions, is_visible, node_runs, scores, sweeps
from wtb.store.transactions import clock


@frozen(slots=True)
class NewFork:
    """A fork that a person makes of an execution.

    Attributes:
        at: The checkpoint from which it starts.
        choices: Its variants by node.
        new_variants: Variants among them that were made for it, as in a sweep file.
        texts: The texts of files that these variants name, by SHA-256.
        changes: Changes of its state by key.
        queue: The queue of the nodes that follow.
        by: The person who forks.
        reason: The reason of that person.
        paused: Whether it does not run yet.
    """

    at: str
    choices: Mapping[str, str]
    new_variants: Mapping[str, dict[str, Json]]
    texts: Mapping[str, str]
    changes: Mapping[str, Value]
    queue: str | None
    by: str
    reason: str | None
    paused: bool


def insert_fork(database: Database, origin: ExecutionRow, fork: NewFork) -> str:
    """Add an execution that starts from a checkpoint of another one.

    Returns:
        Its id.

    Raises:
        ConflictError: If the sweep is cancelled, or has another variant by the name of a new one.
    """
    row: NewExecution = {
        **continuing(new_id(), "manual", origin, []),
        "choices": dict(fork.choices),
        "head_id": None,
        "token": 0,
        "queue": fork.queue,
        "status": "paused" if fork.paused else "pending",
        "reason": f"forked by {fork.by}" if fork.paused else None,
    }
    with database.write() as connection:
        row["created_at"] = clock(connection)
        query = sa.select(sweeps.c.status, sweeps.c.spec).where(sweeps.c.id == origin.sweep_id)
        # Rows that refer to the sweep can still be inserted under this lock, unless its spec changes.
        lock = query.with_for_update(key_share=not fork.new_variants)  # whoever cancels the sweep then finds this fork
        sweep = connection.execute(lock).one()
        if sweep.status == "cancelled":
            raise ConflictError(f"sweep {origin.sweep_id} is cancelled: none of its cells runs again")
        if fork.new_variants:
            spec = {
                **sweep.spec,
                "fork_variants": _with_new_variants(sweep.spec.get("fork_variants", {}), fork.new_variants),
            }
            if fork.texts:
                spec["texts"] = {**sweep.spec.get("texts", {}), **fork.texts}
            connection.execute(sweeps.update().values(spec=spec).where(sweeps.c.id == origin.sweep_id))
        insert_rows(connection, executions, [row])
        execution = locked(connection, row["id"])
        head = edited_head(connection, execution, fork.changes, parent_id=fork.at)
        connection.execute(executions.update().where(executions.c.id == execution.id).values(passed_id=head))
        details: ForkMadeData = {
            "from": origin.id,
            "at": fork.at,
            "head": head,
            "set": sorted(fork.changes),
            "variants": dict(fork.choices),
            "by": fork.by,
            "reason": fork.reason,
        }
        add_execution_event(connection, execution, "fork.made", **details)
    return execution.id


def _with_new_variants(
    earlier_variants: Mapping[str, Sequence[dict[str, Json]]], new_variants: Mapping[str, dict[str, Json]]
) -> dict[str, list[dict[str, Json]]]:
    """Return the variants of the forks of a sweep, by node, with those of another fork."""
    variants_by_node = {node: [*variants] for node, variants in earlier_variants.items()}
    for node, variant in new_variants.items():
        of_node = variants_by_node.setdefault(node, [])
        if variant in of_node:
            continue
        # Two people may choose the same name at the same time; the sweep is locked, so the second one is rejected here.
        if variant["name"] in [other["name"] for other in of_node]:
            raise ConflictError(f"node {node!r} was given another variant {variant['name']!r} just now: try again")
        of_node.append(variant)
    return variants_by_node


def claim_fork(database: Database, execution_id: str, runner_id: str, lease_s: float) -> list[ExecutionRow]:
    """Claim one execution, if it is pending. Returns its row, or nothing."""
    with database.write() as connection:
        which = sa.and_(executions.c.id == execution_id, executions.c.status == "pending")
        return claim_rows(connection, which, runner_id, lease_s)


def reopen_sweep(database: Database, sweep_id: str, *, by: str) -> str:
    """Let workers run the pending executions of a sweep that had ended. Returns the new status of the sweep."""
    with database.write() as connection:
        status = connection.scalar(sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id).with_for_update())
        if status in ("completed", "failed"):
            try_move(connection, sweep_id, "running", reason="a fork runs", by=by)
    return str(find_sweep(database, sweep_id).status)


RETRIED = ("failed", "cancelled", "set_aside")

# Cells that succeeded although their execution was not at its end. Workers recorded such cells before the database
# rejected them (migration 1040), with the state from before their last node.
_is_cut_short = sa.and_(
    cells.c.status == "succeeded",
    sa.or_(
        sa.cast(checkpoints.c.position["next"], sa.Text) != "[]",
        sa.exists().where(node_runs.c.checkpoint_id == executions.c.head_id, node_runs.c.status == "running"),
    ),
)


@frozen(slots=True)
class _Again:
    """A cell that is tried again, with the execution of its outcome."""

    case_number: int
    repeat: int
    combination: int
    id: str
    head_id: str | None
    queue: str | None
    edited: bool


def count_cut_short(database: Database) -> dict[str, int]:
    """Count the cells that succeeded without their last node, which `retry` repairs.

    Returns:
        The number of such cells by the id of their sweep; sweeps that have none are left out.
    """
    query = (
        sa.select(cells.c.sweep_id, sa.func.count())
        .join(executions, executions.c.id == cells.c.execution_id)
        .join(checkpoints, checkpoints.c.id == executions.c.head_id)
        .join(sweeps, sweeps.c.id == cells.c.sweep_id)
        .where(_is_cut_short, is_visible)
        .group_by(cells.c.sweep_id)
        .order_by(cells.c.sweep_id)
    )
    return dict(database.tuples(query, long=True))


def retry(
    database: Database,
    sweep_id: str,
    statuses: Sequence[str] = RETRIED,
    *,
    execution_id: str | None = None,
    kind: str | None = None,
) -> int:
    """Give failed cells new executions, and cells that succeeded without their last node.

    Cells that ended at the same head share one execution, so a node run that failed for several of them is tried
    once. The old executions stay as history.

    Args:
        database: The database.
        sweep_id: The sweep.
        statuses: The statuses of the cells.
        execution_id: Only the cells of this execution.
        kind: Only the cells with failures of this kind.

    Returns:
        The number of cells that are pending again.
    """
    of_kind = sa.and_(cells.c.status.in_(list(statuses)), cells.c.failure["kind"].as_string() == kind)
    which = sa.or_(cells.c.status.in_(list(statuses)), _is_cut_short) if kind is None else of_kind
    with database.write() as connection:
        return retry_within(connection, sweep_id, which, *equal({executions.c.id: execution_id}))


def retry_within(connection: sa.Connection, sweep_id: str, *which: sa.ColumnElement[bool]) -> int:
    """Give cells new executions as `retry` does, within a transaction.

    Args:
        connection: The transaction.
        sweep_id: The sweep.
        which: Conditions for the cells, their executions and the heads of these.

    Returns:
        The number of cells that are pending again.
    """
    place = (cells.c.case_number, cells.c.repeat, cells.c.combination)
    query = (
        sa.select(*place, executions.c.id, executions.c.head_id, executions.c.queue, executions.c.edited)
        .join(executions, executions.c.id == cells.c.execution_id)
        .outerjoin(checkpoints, checkpoints.c.id == executions.c.head_id)
        .where(cells.c.sweep_id == sweep_id, *which)
        .order_by(*place)
    )
    # The lock makes retries take turns; two at once would give the same cells an execution each.
    owner = sa.select(sweeps.c.session_id).where(sweeps.c.id == sweep_id)
    session = connection.scalar(owner.with_for_update()) or ""
    rows = fetch_records(connection, _Again, query)
    groups: defaultdict[tuple[int, int, str], list[_Again]] = defaultdict(list)
    for row in rows:
        groups[row.case_number, row.repeat, row.head_id or row.id].append(row)
    keep_events(
        connection, executions, sorted({row.id for row in rows})
    )  # some events are derived from scores, which are deleted
    at = clock(connection)  # answers of people are older, or newer, by the same clock
    for members in groups.values():
        first = members[0]
        mine = [row.combination for row in members]
        id = next_id(connection, sweep_id)
        retry = CellsOfExecution(id, session, sweep_id, first.case_number, first.repeat, mine)
        new_execution: NewExecution = {
            "id": id,
            "session_id": session,
            "sweep_id": sweep_id,
            "parent_id": first.id,
            "origin": "retry",
            "case_number": first.case_number,
            "repeat": first.repeat,
            "combinations": mine,
            "status": "pending",
            "head_id": first.head_id,
            "queue": first.queue,
            "edited": first.edited,
            "created_at": at,
        }
        insert_rows(connection, executions, [new_execution])
        move_cells(connection, retry, "pending", failure=None, finished_at=None)
        connection.execute(scores.delete().where(*of_cells(scores, retry)))
        details = {"cells": len(members), "from": first.id}
        add_execution_event(connection, retry, "execution.retried", **details)
    return len(rows)
