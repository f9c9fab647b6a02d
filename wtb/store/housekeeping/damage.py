"""Damaged values, whose bytes do not match their hash, and going back to the nearest intact checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from wtb.core.ids import new_id
from wtb.core.serialization.codec import digest
from wtb.core.status import FINAL_CELLS, OPEN_EXECUTIONS
from wtb.store.bulk import fetch_among, insert_rows, parts
from wtb.store.control.approvals import withdraw
from wtb.store.database import Database
from wtb.store.events import add_event, of_execution
from wtb.store.log import keep_events
from wtb.store.read.lineage import is_edited
from wtb.store.read.queries import as_bytes, stored_bytes
from wtb.store.rows.executions import CellsOfExecution, OpenHead
from wtb.store.runs.leases import of_cells
from wtb.store.runs.node_progress import record_first_attempts
from wtb.store.runs.submit import next_id
from wtb.store.tables.executions import ExecutionRow, NewExecution
from wtb.store.tables.schema import cells, checkpoints, executions, node_runs, sweeps, values
from wtb.store.tables.sweeps import SweepRow


def find_damaged(database: Database, digests: Iterable[str]) -> set[str]:
    """Those of `digests` whose value is missing or has another hash."""
    wanted = set(digests)
    query = sa.select(values.c.digest, stored_bytes(database))
    with database.read() as connection:
        stored = fetch_among(connection, query, values.c.digest, wanted)
        return wanted - {key for key, data in stored if digest(as_bytes(data)) == key}


def open_heads(database: Database, sweep_id: str) -> list[OpenHead]:
    """Executions that nobody works on and that have begun, with the state of their head."""
    query = (
        sa.select(executions, checkpoints.c.state)
        .join(checkpoints, checkpoints.c.id == executions.c.head_id)
        .where(
            executions.c.sweep_id == sweep_id,
            executions.c.status.in_(OPEN_EXECUTIONS),
            executions.c.status != "running",
        )
    )
    return database.records(OpenHead, query)


def waiting_cases(database: Database, sweep_id: str) -> set[int]:
    """The cases of executions that have not begun."""
    query = sa.select(executions.c.case_number).where(
        executions.c.sweep_id == sweep_id, executions.c.status == "pending", executions.c.head_id.is_(None)
    )
    return set(database.scalars(query))


def writes_from(database: Database, checkpoint_ids: Iterable[str]) -> dict[str, list[str]]:
    """Node run -> the digests that it wrote, of accepted node runs that started from these checkpoints."""
    query = sa.select(node_runs.c.id, node_runs.c.writes).where(node_runs.c.status == "succeeded")
    with database.read() as connection:
        found = fetch_among(connection, query, node_runs.c.checkpoint_id, checkpoint_ids)
        return {id: list((writes or {}).values()) for id, writes in found}


def go_back(
    database: Database,
    sweep: SweepRow,
    lost: Iterable[str],
    again: Iterable[str],
    moves: Mapping[tuple[int, int, str | None, str | None], Sequence[ExecutionRow]],
) -> None:
    """Start anew from where all is well, in one transaction.

    lost: digests of values that are of no use to anybody. again: node runs whose result was lost. moves: executions
    by (case, repeat, checkpoint to go back to, id of one that a person forked); those of one key go on as one
    execution. Without a checkpoint it begins from the case's input.
    """
    with database.write() as connection:
        connection.execute(sa.select(sweeps.c.id).where(sweeps.c.id == sweep.id).with_for_update())
        for part in parts(sorted(set(lost))):
            connection.execute(values.delete().where(values.c.digest.in_(part)))
        for part in parts(sorted(set(again))):
            keep_events(connection, node_runs, part)
            record_first_attempts(connection, node_runs.c.id.in_(part))
            connection.execute(node_runs.update().where(node_runs.c.id.in_(part)).values(status="failed", writes=None))
        for (case, repeat, checkpoint, _), members in moves.items():
            _replace(connection, sweep, case, repeat, checkpoint, members)


def _replace(
    connection: sa.Connection,
    sweep: SweepRow,
    case: int,
    repeat: int,
    checkpoint: str | None,
    members: Sequence[ExecutionRow],
) -> None:
    """Replace executions by one that continues their cells at the same checkpoint."""
    combinations = sorted(number for row in members for number in row.combinations)
    made_id = new_id() if members[0].choices is not None else next_id(connection, sweep.id)
    first, paused = members[0], all(row.status == "paused" for row in members)
    replacement: NewExecution = {
        "id": made_id,
        "session_id": sweep.session_id,
        "sweep_id": sweep.id,
        "parent_id": first.id,
        "origin": "retry" if first.choices is None else "manual",
        "case_number": case,
        "repeat": repeat,
        "combinations": combinations,
        "status": "paused" if paused else "pending",
        "reason": first.reason if paused else None,
        "head_id": checkpoint,
        "queue": first.queue,
        "choices": first.choices,
        "edited": is_edited(connection, checkpoint, any(row.edited for row in members)),
        "created_at": time.time(),
    }
    insert_rows(connection, executions, [replacement])
    ids = [row.id for row in members]
    connection.execute(
        executions.update()
        .where(executions.c.id.in_(ids), executions.c.status.in_(OPEN_EXECUTIONS))
        .values(status="cancelled", reason="a stored value was damaged", finished_at=time.time())
    )
    withdraw(connection, ids)
    new = CellsOfExecution(made_id, sweep.session_id, sweep.id, case, repeat, combinations)
    mine = of_cells(cells, new)
    connection.execute(cells.update().where(*mine, cells.c.status == "waiting").values(status="pending"))
    connection.execute(cells.update().where(*mine, cells.c.status.not_in(FINAL_CELLS)).values(execution_id=made_id))
    data = {"checkpoint": checkpoint, "executions": len(members), "cells": len(combinations)}
    add_event(connection, of_execution(new), "execution.rewound", data, "warning")
