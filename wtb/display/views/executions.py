"""Executions as documents: what `show` and `history` say of one, for scripts and for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from msgspec import structs

from wtb.core.errors import InputError, NotFound
from wtb.core.failures import RUNNING, Failure
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso, readable
from wtb.core.tree.checkpoints import Checkpoint, visible_state
from wtb.core.tree.history import ExecutionHistory
from wtb.core.tree.recorded_runs import RecordedRun, run_document, totals_document
from wtb.store.control.labels import comments_by_place
from wtb.store.database import Database
from wtb.store.read import details, lineage, queries
from wtb.store.read.details import find_one
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from pydantic import JsonValue

    from wtb.core.documents import executions as documents
    from wtb.core.documents.lineage import HistoryDocument
    from wtb.core.documents.shared_types import RouteDocument
    from wtb.core.documents.sweeps import SweepOfExecution
    from wtb.core.documents.workflows import WorkflowDocument


class _EndOfStep(TypedDict, total=False):
    """The facts about the checkpoint that a step wrote: part of `ShownStep`."""

    decisions: list[RouteDocument]
    name: str
    note: str


@frozen
class Trace:
    """An execution, or a checkpoint of one, with the line that leads to it and the node runs on it.

    Attributes:
        project: The project that it belongs to.
        about: The execution or the checkpoint.
        history: The line that leads to it.
    """

    project: str
    about: documents.ExecutionHeading | documents.CheckpointHeading
    history: ExecutionHistory

    @property
    def execution(self) -> documents.ExecutionHeading | None:
        """The execution; None where it is a checkpoint that is looked at."""
        return cast("documents.ExecutionHeading", self.about) if "case" in self.about else None

    @property
    def line(self) -> Sequence[Checkpoint]:
        return self.history.checkpoints

    @property
    def unfinished(self) -> Sequence[RecordedRun]:
        return self.history.unfinished

    @property
    def head(self) -> Checkpoint | None:
        return self.history.latest


def trace(database: Database, row: ExecutionRow) -> Trace:
    """The trace of an execution. The row is one of `find_execution`."""
    sweep = queries.find_sweep(database, row.sweep_id)
    return Trace(sweep.project, _heading(database, row, sweep), details.read_execution(database, row))


def _heading(database: Database, row: ExecutionRow, sweep: SweepRow) -> documents.ExecutionHeading:
    """Describe an execution: its cells, its place in the tree, and how it ended."""
    choices = queries.choices_of_execution(database, row)
    failure = Failure(**row.failure) if row.failure else None
    heading: documents.ExecutionHeading = {
        "id": row.id,
        "sweep": sweep_of_execution(sweep),
        "status": row.status,
        "reason": row.reason,
        "origin": row.origin,
        "parent": row.parent_id,
        "children": [child.id for child in details.children(database, row.id)],
        "case": queries.case_rows(database, row.sweep_id, [row.case_number])[row.case_number].id,
        "repeat": row.repeat,
        "combinations": choices,
        "edited": row.edited,
        "head": row.head_id,
        "error": str(failure) if failure else None,
        "trace": failure.trace if failure else "",
        "created_at": iso(row.created_at),
        "finished_at": iso(row.finished_at),
        "metadata": queries.workflow_graph(database, sweep.workflow_id).get("metadata", {}),
    }
    if row.task_id is not None:
        heading["task"] = row.task_id
    return heading


def trace_of(database: Database, ref: str) -> Trace:
    """The trace of an execution or a checkpoint by its id. Raises InputError where it is neither."""
    try:
        return trace(database, find_one(database, ref))
    except InputError as no_execution:
        try:
            checkpoint, sweep_id = details.find_checkpoint(database, ref)
        except InputError as no_checkpoint:
            # An id that begins several ids is reported as such: those messages of queries.py have the word `several`.
            several = [text for error in (no_execution, no_checkpoint) for text in error.problems if "several" in text]
            if several:
                raise InputError(*several) from None
            text = f"there is no execution or checkpoint {ref!r}; `wtb show SWEEP --cells` lists a sweep's executions"
            raise NotFound(text, kind="execution") from None
    sweep = queries.find_sweep(database, sweep_id)
    about: documents.CheckpointHeading = {
        "id": checkpoint.id,
        "sweep": {"id": sweep.id, "name": sweep.name, "status": sweep.status},
        "status": "checkpoint",
    }
    return Trace(sweep.project, about, details.read_line(database, checkpoint.id))


def sweep_of_execution(sweep: SweepRow) -> SweepOfExecution:
    """Return which sweep an execution is of, from its row."""
    return {"id": sweep.id, "name": sweep.name, "status": sweep.status, "kind": sweep.kind}


def path(own_trace: Trace) -> list[documents.PathStep]:
    """The node runs in the order in which they ran, each with its step; those that have not ended come last."""
    done = [
        cast(
            "documents.PathStep",
            {"step": checkpoint.step, "checkpoint": checkpoint.id, "before": checkpoint.parent, **run},
        )
        for checkpoint in own_trace.line
        for run in own_trace.history.writers_of(checkpoint)
    ]
    if own_trace.head is None:
        return done
    count, step = own_trace.head.position.fan_out, own_trace.head.step + 1
    unfinished = [
        cast("documents.PathStep", {"step": step, **run_document(run, count.get(run.node, 1))})
        for run in own_trace.unfinished
    ]
    return done + unfinished


def state(database: Database, head: Checkpoint | None) -> dict[str, JsonValue]:
    """The state at a checkpoint as plain JSON."""
    if head is None:
        return {}
    seen = visible_state(head.state)
    stored = queries.load_values(database, seen.values())
    return {key: readable(stored[value].data) for key, value in seen.items()}


def execution_document(database: Database, row: ExecutionRow, *, calls: bool = False) -> documents.ExecutionDocument:
    """An execution as `wtb show EXECUTION` tells it, with its cells, path, attempts and state."""
    own_trace = trace(database, row)
    runs = [*own_trace.history.runs.values(), *own_trace.unfinished]
    ids = [run.id for run in runs]
    attempts: dict[str, list[documents.AttemptDocument]] = {}
    latest = {(run.id, run.attempts) for run in runs if run.status == "running"}
    for attempt in queries.attempt_rows(database, ids):
        failure = Failure(**attempt.failure) if attempt.failure else None
        # An attempt is stored with this failure until it ends, so that it counts as lost if its process dies.
        is_running = failure is not None and failure.kind == RUNNING
        if is_running and (attempt.node_run_id, attempt.number) in latest:  # it has not ended
            attempt, failure = structs.replace(attempt, status="running"), None
        attempts.setdefault(attempt.node_run_id, []).append(
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
    wrote = {run.id: visible_state(run.writes) for run in runs}
    # One query for the values of all steps.
    stored = queries.load_values(database, {key for writes in wrote.values() for key in writes.values()})
    reasons = details.with_reasons(database, row.sweep_id, own_trace.history)
    reasons = details.with_notes(database, row.sweep_id, reasons)
    steps: list[documents.ShownStep] = [
        {
            **cast("documents.ShownStep", step),
            "writes": {key: readable(stored[value].data) for key, value in wrote[step["node_run"]].items()},
            **_end_of_step(reasons, step),
            "tried": attempts.get(step["node_run"], []),
        }
        for step in path(own_trace)
    ]
    # Prompts and responses are large, so they are read only on request.
    if calls:
        _add_calls(database, steps, ids)
    return {
        "execution": cast("documents.ExecutionHeading", own_trace.about),
        "left": _lines_left(database, row),
        "cells": _cells(database, row),
        "scores": lineage.scores_told(database, row.id) if row.origin == "manual" else {},
        "path": steps,
        "totals": totals_of(own_trace.head),
        "next": list(own_trace.head.position.next) if own_trace.head else [],
        "state": state(database, own_trace.head),
        "graph": outline(queries.workflow_graph(database, queries.find_sweep(database, row.sweep_id).workflow_id)),
    }


def _end_of_step(history: ExecutionHistory, step: documents.PathStep) -> _EndOfStep:
    """Return why an execution went on from a step where it went, and what people called the checkpoint."""
    checkpoint = history.get(step.get("checkpoint", ""))
    if checkpoint is None:
        return {}
    end: _EndOfStep = {}
    if own := [
        decision.document() for decision in history.decisions.get(checkpoint.id, ()) if decision.node == step["node"]
    ]:
        end["decisions"] = own
    if checkpoint.name is not None:
        end["name"] = checkpoint.name
    if checkpoint.id in history.notes:
        end["note"] = history.notes[checkpoint.id]
    return end


def outline(graph: WorkflowDocument) -> documents.GraphOutline:
    """Return the nodes and edges of a workflow by name."""
    edges: list[documents.EdgeOutline] = [
        {"from": source, "to": edge["to"], "label": edge["when"]} for edge in graph["edges"] for source in edge["from"]
    ]
    for branch in graph["branches"]:
        # Several keys may lead to one node. A drawing has one edge for them, with the last key.
        ends = {target: label for label, target in branch["to"].items()}
        if branch["default"] is not None:
            ends.setdefault(branch["default"], "default")
        edges += [{"from": branch["from"], "to": target, "label": label} for target, label in ends.items()]
    return {"entries": graph["entries"], "nodes": [node["name"] for node in graph["nodes"]], "edges": edges}


def _add_calls(database: Database, steps: Sequence[documents.ShownStep], ids: Sequence[str]) -> None:
    by_run: dict[str, list[documents.CallDocument]] = {}
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
    used: dict[str, list[documents.InvocationDocument]] = {}
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
    for step in steps:
        step["calls"] = by_run.get(step["node_run"], [])
        step["invocations"] = used.get(step["node_run"], [])


def _cells(database: Database, row: ExecutionRow) -> list[documents.ExecutionCell]:
    choices = queries.choices(database, row.sweep_id)
    place = {metric.name: metric.number for metric in queries.metric_rows(database, row.sweep_id)}
    score_rows = details.execution_scores(database, row)
    scores: dict[int, dict[str, float | str | None]] = {}
    reasons: dict[int, dict[str, str]] = {}
    for score in sorted(score_rows, key=lambda score: place.get(score.metric, 0)):
        score_or_error = score.value if score.error is None else score.error
        scores.setdefault(score.combination, {})[score.metric] = score_or_error
        if score.reason is not None:
            reasons.setdefault(score.combination, {})[score.metric] = score.reason
    comments = comments_by_place(database, row.sweep_id, [row.case_number])
    cells: list[documents.ExecutionCell] = []
    for cell in details.execution_cells(database, row):
        document: documents.ExecutionCell = {
            "combination": choices[cell.combination],
            "status": cell.status,
            "scores": scores.get(cell.combination, {}),
            "error": str(Failure(**cell.failure)) if cell.failure else None,
        }
        if cell.combination in reasons:
            document["reasons"] = reasons[cell.combination]
        if written := comments.get((row.case_number, row.repeat, cell.combination)):
            document["comments"] = written
        cells.append(document)
    return cells


def totals_of(head: Checkpoint | None) -> documents.TotalsDocument | None:
    return None if head is None else totals_document(head)


def history_document(database: Database, row: ExecutionRow, *, states: bool = False) -> HistoryDocument:
    """The history of an execution, with its states and the input and output of each visit if wanted."""
    history = details.read_history(database, row)
    sweep = queries.find_sweep(database, row.sweep_id)
    return {
        "execution": _heading(database, row, sweep),
        **history.document(_values(database, history) if states else None),
        "left": _lines_left(database, row),
    }


def _values(database: Database, history: ExecutionHistory) -> dict[str, JsonValue]:
    """Values of the states of a history and of what its nodes wrote, by digest, as plain JSON."""
    states = [checkpoint.state for checkpoint in history] + [boundary.output for boundary in history.boundaries]
    return readable_values(database, {digest for state in states for digest in visible_state(state).values()})


def readable_values(database: Database, digests: Iterable[str]) -> dict[str, JsonValue]:
    """Return values by digest, as plain JSON. Raises DamagedError if one is missing or damaged."""
    return {digest: readable(value.data) for digest, value in queries.load_values(database, digests).items()}


def _lines_left(database: Database, row: ExecutionRow) -> list[documents.LeftLine]:
    """The lines that rollbacks of an execution left, the last first."""
    with database.read() as connection:
        rollbacks = lineage.rollbacks_of(connection, [row.id])
    return [
        {
            "from_id": rollback.from_id,
            "to_id": rollback.to_id,
            "head_id": rollback.head_id,
            "status": rollback.status,
            "nodes": rollback.nodes,
            "superseded": rollback.superseded,
            "by": rollback.by,
            "reason": rollback.reason,
            "at": iso(rollback.at),
            "redone_at": iso(rollback.redone_at),
        }
        for rollback in reversed(rollbacks)
    ]
