"""Executions that were not run: copies of the rows of a real one, as many as a benchmark shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.workloads.chain import workflow
from wtb import Sweep
from wtb.core.ids import new_id
from wtb.core.serialization.codec import digest, encode
from wtb.store.bulk import fetch_rows, insert_rows, insert_values
from wtb.store.database import Database
from wtb.store.tables.schema import cells, checkpoints, executions, node_runs


def swept(database: Database, files: Path, combinations: int = 1) -> list[str]:
    """Run combinations of one case. Return their executions."""
    variants = ["default", *(f"v{number}" for number in range(1, combinations))]
    sweep = Sweep(workflow=workflow(), cases=[{"id": "a", "input": {"x": 1}}], vary={"C": variants}).run(
        database, files=files
    )
    query = sa.select(cells.c.execution_id).where(cells.c.sweep_id == sweep.id).order_by(cells.c.combination)
    return [execution for (execution,) in database.tuples(query)]


def lengthen(database: Database, execution: str, steps: int) -> None:
    """Add steps of one node run each after the head of an execution, each with its attempt and output."""
    with database.write() as connection:
        head_id = sa.select(executions.c.head_id).where(executions.c.id == execution).scalar_subquery()
        (head,) = fetch_rows(connection, sa.select(checkpoints).where(checkpoints.c.id == head_id))
        ((node, variant, last),) = head["writers"]
        (run,) = fetch_rows(connection, sa.select(node_runs).where(node_runs.c.id == last))
        rows: dict[str, list[dict[str, Any]]] = {"checkpoints": [], "runs": []}
        for step in range(head["position"]["step"] + 1, head["position"]["step"] + 1 + steps):
            parent, began = head["id"], run["started_at"] + step
            ran = {"id": new_id(), "checkpoint_id": parent, "visit": step, "started_at": began, "ended_at": began + 1}
            attempt = {"begun_at": began, "duration_s": 1.0, "stdout": f"line {step}\n"}
            rows["runs"].append({**run, **ran, **attempt, "started_event": step, "ended_event": step})
            position = {**head["position"], "step": step}
            head = {**head, "id": new_id(), "parent_id": parent, "position": position}
            head["writers"] = [[node, variant, ran["id"]]]
            rows["checkpoints"].append(head)
        insert_rows(connection, checkpoints, rows["checkpoints"])
        insert_rows(connection, node_runs, rows["runs"])
        _move(connection, execution, head["id"])


def give(database: Database, execution: str, key: str, text: str) -> None:
    """Put a text into the state at the head of an execution."""
    json_bytes = encode(text)
    with database.write() as connection:
        insert_values(connection, [(digest(json_bytes), json_bytes)])
        head_id = sa.select(executions.c.head_id).where(executions.c.id == execution).scalar_subquery()
        (head,) = fetch_rows(connection, sa.select(checkpoints).where(checkpoints.c.id == head_id))
        state = {**head["state"], key: digest(json_bytes)}
        connection.execute(sa.update(checkpoints).where(checkpoints.c.id == head["id"]).values(state=state))


def _move(connection: sa.Connection, execution: str, head: str) -> None:
    connection.execute(sa.update(executions).where(executions.c.id == execution).values(head_id=head))
