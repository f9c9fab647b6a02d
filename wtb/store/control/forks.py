"""Executions that people fork: beside their origin, without cells of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.documents.events.executions import ForkMadeData
from wtb.core.errors import ConflictError
from wtb.core.ids import new_id
from wtb.core.values import Json, Value
from wtb.store.bulk import insert_rows
from wtb.store.control.edits import edited_head, locked
from wtb.store.database import Database
from wtb.store.events import add_execution_event
from wtb.store.read.queries import find_sweep
from wtb.store.runs.leases import claim_rows, try_move
from wtb.store.tables.executions import ExecutionRow, NewExecution
from wtb.store.tables.schema import executions, sweeps
from wtb.store.transactions import clock


@frozen(slots=True)
class NewFork:
    """What somebody forks: from which checkpoint, with which variants by node and which changes of its state by key.

    new_variants: those of the variants that were made for it, as a sweep file has them. texts: of the files that these
    name, by SHA-256. queue: of the nodes that follow. paused: whether it is not to run yet.
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
    """Add an execution that starts from a checkpoint of another one. Returns its id.

    Raises ConflictError where the sweep is cancelled, or has another variant by the name of one that was made for it.
    """
    row: NewExecution = {
        "id": new_id(),
        "session_id": origin.session_id,
        "sweep_id": origin.sweep_id,
        "parent_id": origin.id,
        "origin": "manual",
        "case_number": origin.case_number,
        "repeat": origin.repeat,
        "combinations": [],
        "choices": dict(fork.choices),
        "status": "paused" if fork.paused else "pending",
        "reason": f"forked by {fork.by}" if fork.paused else None,
        "head_id": None,
        "token": 0,
        "queue": fork.queue,
        "edited": origin.edited,
    }
    with database.write() as connection:
        row["created_at"] = clock(connection)
        query = sa.select(sweeps.c.status, sweeps.c.spec).where(sweeps.c.id == origin.sweep_id)
        lock = query.with_for_update(key_share=not fork.new_variants)  # who cancels it finds this one
        sweep = connection.execute(lock).one()
        if sweep.status == "cancelled":
            raise ConflictError(f"sweep {origin.sweep_id} is cancelled for good: nothing of it runs any more")
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
        data: ForkMadeData = {
            "from": origin.id,
            "at": fork.at,
            "head": head,
            "set": sorted(fork.changes),
            "variants": dict(fork.choices),
            "by": fork.by,
            "reason": fork.reason,
        }
        add_execution_event(connection, execution, "fork.made", **data)
    return execution.id


def _with_new_variants(
    known: Mapping[str, Sequence[dict[str, Json]]], new_variants: Mapping[str, dict[str, Json]]
) -> dict[str, list[dict[str, Json]]]:
    """The variants of the forks of a sweep, by node, with those of one more."""
    found = {node: [*variants] for node, variants in known.items()}
    for node, variant in new_variants.items():
        of_node = found.setdefault(node, [])
        if variant in of_node:
            continue
        if variant["name"] in [one["name"] for one in of_node]:
            raise ConflictError(f"node {node!r} was given another variant {variant['name']!r} just now: try again")
        of_node.append(variant)
    return found


def claim_fork(database: Database, execution_id: str, runner_id: str, lease_s: float) -> list[ExecutionRow]:
    """Claim one execution, if it is pending: its row, or none."""
    with database.write() as connection:
        which = sa.and_(executions.c.id == execution_id, executions.c.status == "pending")
        return claim_rows(connection, which, runner_id, lease_s)


def let_workers_go_on(database: Database, sweep_id: str, *, by: str) -> str:
    """Have workers take what is pending of a sweep that was at its end. Returns the sweep's status then."""
    with database.write() as connection:
        status = connection.scalar(sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id).with_for_update())
        if status in ("completed", "failed"):
            try_move(connection, sweep_id, "running", reason="a fork runs", by=by)
    return str(find_sweep(database, sweep_id).status)
