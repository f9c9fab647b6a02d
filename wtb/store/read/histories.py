"""Histories of executions and checkpoints, read from the database: the line, its node runs and what is inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from wtb.core.failures import Failure
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.tree.history import Decision, ExecutionHistory, RecordedRun
from wtb.store.bulk import fetch_among
from wtb.store.database import Database
from wtb.store.read import details, lineage, queries
from wtb.store.tables.checkpoints import CheckpointRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.node_runs import AttemptRow, NodeRunRow
from wtb.store.tables.schema import checkpoints


def read_line(database: Database, head_id: str | None) -> ExecutionHistory:
    """Read the line that leads to a checkpoint, with the node runs that wrote it."""
    line = queries.line(database, head_id) if head_id else []
    ids = [writer.node_run for checkpoint in line for writer in checkpoint.writers]
    runs = {row.id: _run(row, None) for row in queries.node_runs_by_id(database, ids)}
    return ExecutionHistory(line, runs=runs)


def read_execution(database: Database, row: ExecutionRow) -> ExecutionHistory:
    """Read the line of an execution, and the node runs at its head that have not succeeded."""
    history = replace(read_line(database, row.head_id), execution=row.id)
    if history.latest is None or row.status in ("forked", "completed"):
        return history
    chosen = _chosen_variants(database, row, history.latest.position.next)
    rows = queries.node_runs_from(database, history.latest.id)
    return replace(
        history, unfinished=_runs(database, [run for run in rows if run.variant in chosen.get(run.node, ())])
    )


def read_history(database: Database, row: ExecutionRow) -> ExecutionHistory:
    """Read all that is known of the way of an execution: also inside its nodes, and on lines that rollbacks left."""
    history = with_reasons(database, row.sweep_id, read_execution(database, row))
    left, inside = _beside(database, row, history)
    return with_notes(database, row.sweep_id, replace(history, inside=inside, left=left))


def with_reasons(database: Database, sweep_id: str, history: ExecutionHistory) -> ExecutionHistory:
    """Add why a history went where it went, and who made checkpoints of it by hand."""
    by_hand = [checkpoint.id for checkpoint in history if checkpoint.trigger == "manual" and not checkpoint.writers]
    decisions: dict[str, list[Decision]] = {}
    for row in details.decision_rows(database, [checkpoint.id for checkpoint in history]):
        tried = None if row.tried is None else [(to, when, is_taken) for to, when, is_taken in row.tried]
        decisions.setdefault(row.checkpoint_id, []).append(Decision(row.node, row.to, row.key, row.why, tried))
    return replace(history, decisions=decisions, manual_events=lineage.made_by_people(database, sweep_id, by_hand))


def with_notes(database: Database, sweep_id: str, history: ExecutionHistory) -> ExecutionHistory:
    """Add the notes of checkpoints that people named."""
    named = [c.id for c in (*history, *history.inside, *history.left) if c.name is not None]
    return replace(history, notes=lineage.notes(database, sweep_id, named))


def _beside(
    database: Database, row: ExecutionRow, history: ExecutionHistory
) -> tuple[list[Checkpoint], list[Checkpoint]]:
    """Checkpoints of lines that rollbacks left, and those inside nodes, under the variants of the execution."""
    with database.read() as connection:
        rollbacks = lineage.rollbacks_of(connection, [row.id])
        marks = lineage.marks(connection, [rollback.from_id for rollback in rollbacks])
        on_line = {checkpoint.id for checkpoint in history}
        elsewhere = [id for id in marks if id not in on_line]
        query = sa.select(checkpoints.c.parent_id, checkpoints.c.id).where(checkpoints.c.inside.is_not(None))
        within = list(fetch_among(connection, query, checkpoints.c.parent_id, [*on_line, *elsewhere]))
    known = on_line.union(elsewhere)
    taken = _checkpoints(database, [id for _, id in within if id not in known])
    nodes = {checkpoint.inside.node for checkpoint in taken if checkpoint.inside is not None}
    chosen = _chosen_variants(database, row, sorted(nodes))
    return _checkpoints(database, elsewhere), [
        checkpoint
        for checkpoint in taken
        if checkpoint.inside is not None and checkpoint.inside.variant in chosen[checkpoint.inside.node]
    ]


def _checkpoints(database: Database, ids: Sequence[str]) -> list[Checkpoint]:
    """Read checkpoints by id, oldest first."""
    rows: list[CheckpointRow] = []
    if ids:
        with database.read() as connection:
            rows = [
                CheckpointRow(*row) for row in fetch_among(connection, sa.select(checkpoints), checkpoints.c.id, ids)
            ]
    rows.sort(key=lambda row: (row.created_at, row.id))
    return [queries.as_checkpoint(row, queries.state_order(database, row.sweep_id)) for row in rows]


def _chosen_variants(database: Database, row: ExecutionRow, nodes: Sequence[str]) -> Mapping[str, set[str | None]]:
    """Return the variants of nodes that an execution runs, by node."""
    if not nodes:
        return {}
    choices = queries.choices_of_execution(database, row)
    sweep = queries.find_sweep(database, row.sweep_id)
    graph = queries.workflow_graph(database, sweep.workflow_id)
    defaults = {node["name"]: node["default"] for node in graph.get("nodes", ())}
    return {node: {choice.get(node, defaults.get(node)) for choice in choices} for node in nodes}


def _runs(database: Database, rows: Sequence[NodeRunRow]) -> list[RecordedRun]:
    """Return node runs with how the last attempts of those that have not succeeded ended."""
    open_ids = [row.id for row in rows if row.status != "succeeded"]
    last: dict[str, AttemptRow] = {}
    for attempt in queries.attempt_rows(database, open_ids) if open_ids else ():
        last[attempt.node_run_id] = attempt
    return [_run(row, last.get(row.id)) for row in rows]


def _run(row: NodeRunRow, last: AttemptRow | None) -> RecordedRun:
    """Return a node run; the last attempt of one that has not succeeded gives its error and end."""
    status, error, ended_at = row.status, None, row.ended_at
    if row.status == "succeeded" and ended_at is None:
        ended_at = row.started_at + row.duration_s
    if last is not None and last.failure is not None:
        failure = Failure(**last.failure)
        if row.status == "running" and failure.kind == "waiting":
            status = "waiting"
        elif row.status != "running":
            error, ended_at = str(failure), last.started_at + last.duration_s
    return RecordedRun(
        row.id,
        row.task,
        row.node,
        row.variant,
        row.visit,
        status,
        row.started_at,
        row.duration_s,
        ended_at,
        row.attempts,
        row.cells,
        row.usd,
        row.tokens_in,
        row.tokens_out,
        row.writes or {},
        error,
        row.lag_s,
    )
