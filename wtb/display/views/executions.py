"""Executions as documents: what `show` and `history` say of one, for scripts and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from wtb.core.errors import InputError
from wtb.core.failures import Failure
from wtb.core.serialization.plain_json import iso, readable
from wtb.core.tree.checkpoints import Checkpoint, ExecutionHistory, NodeBoundary, shown
from wtb.execution.engine.protocol import BEGUN
from wtb.store.database import Database
from wtb.store.read import details, lineage, queries
from wtb.store.read.references import find_one
from wtb.store.rows.executions import ExecutionRow, NodeRunRow
from wtb.store.rows.sweeps import SweepRow

if TYPE_CHECKING:
    from pydantic import JsonValue

    from wtb.core.documents.executions import (
        AttemptDocument,
        CallDocument,
        CheckpointHeading,
        ExecutionCell,
        ExecutionDocument,
        ExecutionHeading,
        InvocationDocument,
        LeftLine,
        NodeRunDocument,
        PathStep,
        ShownStep,
        TaskDocument,
        TotalsDocument,
    )
    from wtb.core.documents.lineage import BoundaryDocument, DecisionDocument, HistoryDocument
    from wtb.core.documents.sweeps import SweepOfExecution


@dataclass(frozen=True)
class Trace:
    """An execution, or a checkpoint of one, with the line that leads to it and the node runs on it.

    project: whose it is.
    """

    project: str
    about: ExecutionHeading | CheckpointHeading
    line: Sequence[Checkpoint]
    runs: Mapping[str, NodeRunRow]
    unfinished: Sequence[NodeRunRow]

    @property
    def execution(self) -> ExecutionHeading | None:
        """The execution; None where it is a checkpoint that is looked at."""
        return cast("ExecutionHeading", self.about) if "case" in self.about else None

    @property
    def head(self) -> Checkpoint | None:
        return self.line[-1] if self.line else None


def trace(database: Database, row: ExecutionRow) -> Trace:
    """The trace of an execution. The row is one of `find_execution`."""
    sweep = queries.find_sweep(database, row.sweep_id)
    every = queries.choices(database, row.sweep_id)
    choices = [every[number] for number in row.combinations]
    if row.choices is not None:
        choices = [row.choices]
    case = queries.case_rows(database, row.sweep_id, [row.case_number])[row.case_number]
    line = queries.line(database, row.head_id) if row.head_id else []
    graph = queries.workflow_graph(database, sweep.workflow_id)
    defaults = {node["name"]: node["default"] for node in graph.get("nodes", ())}
    failure = Failure(**row.failure) if row.failure else None
    about: ExecutionHeading = {
        "id": row.id,
        "sweep": sweep_of_execution(sweep),
        "status": row.status,
        "reason": row.reason,
        "origin": row.origin,
        "parent": row.parent_id,
        "children": [child.id for child in details.children(database, row.id)],
        "case": case.id,
        "repeat": row.repeat,
        "combinations": choices,
        "edited": row.edited,
        "head": row.head_id,
        "error": str(failure) if failure else None,
        "trace": failure.trace if failure else "",
        "created_at": iso(row.created_at),
        "finished_at": iso(row.finished_at),
    }
    left = []
    if line and row.status not in ("forked", "completed"):
        wanted = {(node, c.get(node, defaults.get(node))) for c in choices for node in line[-1].position.next}
        left = [run for run in queries.node_runs_from(database, line[-1].id) if (run.node, run.variant) in wanted]
    return Trace(sweep.project, about, line, _runs(database, line), left)


def trace_of(database: Database, ref: str) -> Trace:
    """The trace of an execution or a checkpoint by its id. Raises InputError where it is neither."""
    try:
        return trace(database, find_one(database, ref))
    except InputError as no_execution:
        try:
            checkpoint, sweep_id = details.find_checkpoint(database, ref)
        except InputError as no_checkpoint:
            several = [text for one in (no_execution, no_checkpoint) for text in one.problems if "several" in text]
            nothing = (
                f"there is no execution or checkpoint {ref!r}; `wtb show SWEEP --cells` lists a sweep's executions"
            )
            raise InputError(*(several or [nothing])) from None
    line = queries.line(database, checkpoint.id)
    sweep = queries.find_sweep(database, sweep_id)
    about: CheckpointHeading = {
        "id": checkpoint.id,
        "sweep": {"id": sweep.id, "name": sweep.name, "status": sweep.status},
        "status": "checkpoint",
    }
    return Trace(sweep.project, about, line, _runs(database, line), [])


def _runs(database: Database, line: Sequence[Checkpoint]) -> dict[str, NodeRunRow]:
    ids = [writer.node_run for checkpoint in line for writer in checkpoint.writers]
    return {run.id: run for run in queries.node_runs_by_id(database, ids)}


def sweep_of_execution(sweep: SweepRow) -> SweepOfExecution:
    """Return which sweep an execution is of, from its row."""
    return {"id": sweep.id, "name": sweep.name, "status": sweep.status, "kind": sweep.kind}


def task_of(row: NodeRunRow, tasks: int) -> TaskDocument:
    """The task of a node run and how many its node has in the step, where it has several."""
    return {} if row.task == row.node else {"task": row.task, "tasks": tasks}


def _run(row: NodeRunRow, tasks: int) -> NodeRunDocument:
    """tasks: how many its node has in the step."""
    return {
        "node_run": row.id,
        **task_of(row, tasks),
        "node": row.node,
        "variant": row.variant,
        "visit": row.visit,
        "status": row.status,
        "attempts": row.attempts,
        "cells": row.cells,
        "duration_s": row.duration_s,
        "usd": row.usd,
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
        "started_at": iso(row.started_at),
    }


def path(found: Trace) -> list[PathStep]:
    """The node runs in the order in which they ran, each with its step; those that have not ended come last."""
    done = [
        cast("PathStep", {"step": one.step, "checkpoint": one.id, "before": one.parent, **run})
        for one in found.line
        for run in _writers(found, one)
    ]
    if found.head is None:
        return done
    count, step = found.head.position.fan_out, found.head.step + 1
    left = [cast("PathStep", {"step": step, **_run(run, count.get(run.node, 1))}) for run in found.unfinished]
    return done + left


def _writers(found: Trace, checkpoint: Checkpoint) -> list[NodeRunDocument]:
    count = Counter(writer.node for writer in checkpoint.writers)
    return [_run(found.runs[writer.node_run], count[writer.node]) for writer in checkpoint.writers]


def state(database: Database, head: Checkpoint | None) -> dict[str, JsonValue]:
    """The state at a checkpoint as plain JSON."""
    if head is None:
        return {}
    seen = shown(head.state)
    stored = queries.load_values(database, seen.values())
    return {key: readable(stored[value].data) for key, value in seen.items()}


def execution_document(database: Database, row: ExecutionRow, *, calls: bool = False) -> ExecutionDocument:
    """An execution as `wtb show EXECUTION` tells it, with its cells, path, attempts and state."""
    own_trace = trace(database, row)
    runs = [*own_trace.runs.values(), *own_trace.unfinished]
    ids = [run.id for run in runs]
    tried: dict[str, list[AttemptDocument]] = {}
    latest = {(run.id, run.attempts) for run in runs if run.status == "running"}
    for attempt in queries.attempt_rows(database, ids):
        failure = Failure(**attempt.failure) if attempt.failure else None
        goes_on = failure is not None and failure.kind == BEGUN
        if goes_on and (attempt.node_run_id, attempt.number) in latest:  # it has not ended
            attempt, failure = replace(attempt, status="running"), None
        tried.setdefault(attempt.node_run_id, []).append(
            {
                "number": attempt.number,
                "status": "waiting" if failure is not None and failure.kind == "waiting" else attempt.status,
                "started_at": iso(attempt.started_at),
                "duration_s": attempt.duration_s,
                "usd": attempt.usd,
                "error": None if failure is None else str(failure),
                "trace": "" if failure is None else failure.trace,
                "stdout": attempt.stdout,
                "stderr": attempt.stderr,
            }
        )
    wrote = {run.id: shown(run.writes or {}) for run in runs}
    stored = queries.load_values(database, {key for writes in wrote.values() for key in writes.values()})
    made: list[ShownStep] = [
        {
            **cast("ShownStep", step),
            "writes": {key: readable(stored[value].data) for key, value in wrote[step["node_run"]].items()},
            "tried": tried.get(step["node_run"], []),
        }
        for step in path(own_trace)
    ]
    for step in made:
        if step["status"] == "running" and step["tried"] and step["tried"][-1]["status"] == "waiting":
            step["status"] = "waiting"
    if calls:
        _add_calls(database, made, ids)
    return {
        "execution": cast("ExecutionHeading", own_trace.about),
        "left": _left(database, row),
        "cells": _cells(database, row),
        "scores": lineage.scores_told(database, row.id) if row.origin == "manual" else {},
        "path": made,
        "totals": totals_of(own_trace.head),
        "next": list(own_trace.head.position.next) if own_trace.head else [],
        "state": state(database, own_trace.head),
    }


def _add_calls(database: Database, made: Sequence[ShownStep], ids: Sequence[str]) -> None:
    by_run: dict[str, list[CallDocument]] = {}
    for call in queries.call_rows(database, ids):
        by_run.setdefault(call.node_run_id, []).append(
            {
                "attempt": call.attempt,
                "model": call.model,
                "tool": call.tool,
                "tokens_in": call.tokens_in,
                "tokens_out": call.tokens_out,
                "usd": call.usd,
                "duration_s": call.duration_s,
                "prompt": None if call.prompt is None else readable(call.prompt.encode()),
                "response": None if call.response is None else readable(call.response.encode()),
                "at": iso(call.at),
            }
        )
    used: dict[str, list[InvocationDocument]] = {}
    for row in queries.invocation_rows(database, ids):
        used.setdefault(row.node_run_id, []).append(
            {
                "attempt": row.attempt,
                "number": row.number,
                "tool": row.tool,
                "status": row.status,
                "error": row.error,
                "duration_s": row.duration_s,
                "arguments": readable(row.arguments.encode()),
                "result": None if row.result is None else readable(row.result.encode()),
                "at": iso(row.at),
                "undone_at": iso(row.undone_at),
            }
        )
    for step in made:
        step["calls"] = by_run.get(step["node_run"], [])
        step["invocations"] = used.get(step["node_run"], [])


def _cells(database: Database, row: ExecutionRow) -> list[ExecutionCell]:
    choices = queries.choices(database, row.sweep_id)
    place = {metric.name: metric.number for metric in queries.metric_rows(database, row.sweep_id)}
    found = details.execution_scores(database, row)
    scores: dict[int, dict[str, float | str | None]] = {}
    for score in sorted(found, key=lambda score: place.get(score.metric, 0)):
        value = score.value if score.error is None else score.error
        scores.setdefault(score.combination, {})[score.metric] = value
    return [
        {
            "combination": choices[cell.combination],
            "status": cell.status,
            "scores": scores.get(cell.combination, {}),
            "error": str(Failure(**cell.failure)) if cell.failure else None,
        }
        for cell in details.execution_cells(database, row)
    ]


def totals_of(head: Checkpoint | None) -> TotalsDocument | None:
    if head is None:
        return None
    totals = head.totals
    return {
        "elapsed_s": totals.elapsed_s,
        "usd": totals.usd,
        "tokens_in": totals.tokens_in,
        "tokens_out": totals.tokens_out,
        "node_runs": totals.node_runs,
    }


def history_document(database: Database, row: ExecutionRow) -> HistoryDocument:
    """The line of checkpoints of an execution, with who wrote each, and the boundaries of its nodes."""
    own_trace = trace(database, row)
    by_hand = [one.id for one in own_trace.line if one.trigger == "manual" and not one.writers]
    made = lineage.made_by_people(database, row.sweep_id, by_hand)
    why: dict[str, list[DecisionDocument]] = {}
    for one in details.decision_rows(database, [checkpoint.id for checkpoint in own_trace.line]):
        decision: DecisionDocument = {"node": one.node, "to": one.to, "key": one.key, "why": one.why}
        why.setdefault(one.checkpoint_id, []).append(decision)
    history = ExecutionHistory(own_trace.line)
    wrote: dict[tuple[str, str], list[NodeRunRow]] = {}
    for checkpoint in own_trace.line:
        for writer in checkpoint.writers:
            wrote.setdefault((checkpoint.id, writer.node), []).append(own_trace.runs[writer.node_run])
    return {
        "execution": cast("ExecutionHeading", own_trace.about),
        "checkpoints": [
            {
                "id": checkpoint.id,
                "parent": checkpoint.parent,
                "step": checkpoint.step,
                "name": checkpoint.name,
                "trigger": checkpoint.trigger,
                "created_at": iso(checkpoint.created_at),
                "made": made.get(checkpoint.id),
                "writers": _writers(own_trace, checkpoint),
                "next": list(checkpoint.position.next),
                "decisions": why.get(checkpoint.id, []),
                "totals": totals_of(checkpoint),
            }
            for checkpoint in own_trace.line
        ],
        "boundaries": [_boundary(own_trace, boundary, wrote) for boundary in history.boundaries()],
        "rollback_targets": {**history.rollback_targets()},
        "left": _left(database, row),
    }


def _left(database: Database, row: ExecutionRow) -> list[LeftLine]:
    """The lines that rollbacks of an execution left, the last first."""
    with database.read() as connection:
        found = lineage.rollbacks_of(connection, [row.id])
    return [
        {
            "from_id": one.from_id,
            "to_id": one.to_id,
            "head_id": one.head_id,
            "status": one.status,
            "nodes": one.nodes,
            "superseded": one.superseded,
            "by": one.by,
            "reason": one.reason,
            "at": iso(one.at),
            "redone_at": iso(one.redone_at),
        }
        for one in reversed(found)
    ]


def _boundary(
    own_trace: Trace, boundary: NodeBoundary, wrote: Mapping[tuple[str, str], Sequence[NodeRunRow]]
) -> BoundaryDocument:
    """A boundary with the status and time of its node run: waiting and pauses are not counted as work.

    Of a node with several tasks: of the one that took longest, and the status of those that have not succeeded.

    wrote: the node runs by the checkpoint that they wrote and their node: what a person changed before a node ran lies
    between its entry and where its run began.
    """
    if boundary.exit is not None:
        runs = wrote[boundary.exit, boundary.node]
    else:
        runs = [run for run in own_trace.unfinished if run.node == boundary.node]
    status = next((run.status for run in runs if run.status != "succeeded"), "succeeded" if runs else "pending")
    duration = max((run.duration_s for run in runs), default=None)
    return {
        "node": boundary.node,
        "visit": boundary.visit,
        "entry": boundary.entry,
        "exit": boundary.exit,
        "status": status,
        "duration_s": duration,
    }
