"""Executions as documents: what `show` and `history` say of one, for scripts and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.core.errors import InputError
from wtb.core.failures import Failure
from wtb.core.serialization.plain_json import iso, readable
from wtb.core.tree.checkpoints import Checkpoint, ExecutionHistory, NodeBoundary, shown
from wtb.display.views.sweeps import find_one
from wtb.execution.engine.protocol import BEGUN
from wtb.store.database import Database
from wtb.store.read import details, lineage, queries

Document = dict[str, Any]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """An execution, or a checkpoint of one, with the line that leads to it and the node runs on it."""

    about: Document
    line: Sequence[Checkpoint]
    runs: Mapping[str, Row]
    unfinished: Sequence[Row]

    @property
    def head(self) -> Checkpoint | None:
        return self.line[-1] if self.line else None


def trace(database: Database, row: Row) -> Trace:
    """The trace of an execution. The row is one of `find_execution`."""
    sweep = queries.find_sweep(database, row["sweep_id"])
    every = queries.choices(database, row["sweep_id"])
    choices = [every[number] for number in row["combinations"]]
    if row["choices"] is not None:
        choices = [row["choices"]]
    case = queries.case_rows(database, row["sweep_id"], [row["case_number"]])[row["case_number"]]
    line = queries.line(database, row["head_id"]) if row["head_id"] else []
    graph = queries.workflow_graph(database, sweep["workflow_id"])
    defaults = {node["name"]: node["default"] for node in graph.get("nodes", ())}
    failure = Failure(**row["failure"]) if row["failure"] else None
    about = {
        "id": row["id"],
        "sweep": {key: sweep[key] for key in ("id", "name", "status", "kind")},
        "status": row["status"],
        "reason": row["reason"],
        "origin": row["origin"],
        "parent": row["parent_id"],
        "children": [child["id"] for child in details.children(database, row["id"])],
        "case": case["id"],
        "repeat": row["repeat"],
        "combinations": choices,
        "edited": row["edited"],
        "head": row["head_id"],
        "error": str(failure) if failure else None,
        "trace": failure.trace if failure else "",
        "created_at": iso(row["created_at"]),
        "finished_at": iso(row["finished_at"]),
    }
    left = []
    if line and row["status"] not in ("forked", "completed"):
        wanted = {(node, c.get(node, defaults.get(node))) for c in choices for node in line[-1].position.next}
        left = [run for run in queries.node_runs_from(database, line[-1].id) if (run["node"], run["variant"]) in wanted]
    return Trace(about, line, _runs(database, line), left)


def trace_of(database: Database, ref: str) -> Trace:
    """The trace of an execution or a checkpoint by its id. Raises InputError where it is neither."""
    try:
        return trace(database, find_one(database, ref))
    except InputError as no_execution:
        try:
            found, sweep_id = details.find_checkpoint(database, ref)
        except InputError as no_checkpoint:
            several = [text for one in (no_execution, no_checkpoint) for text in one.problems if "several" in text]
            nothing = (
                f"there is no execution or checkpoint {ref!r}; `wtb show SWEEP --cells` lists a sweep's executions"
            )
            raise InputError(*(several or [nothing])) from None
    line = queries.line(database, found.id)
    sweep = queries.find_sweep(database, sweep_id)
    about = {"id": found.id, "sweep": {key: sweep[key] for key in ("id", "name", "status")}, "status": "checkpoint"}
    return Trace(about, line, _runs(database, line), [])


def _runs(database: Database, line: Sequence[Checkpoint]) -> dict[str, Row]:
    ids = [writer.node_run for checkpoint in line for writer in checkpoint.writers]
    return {run["id"]: run for run in queries.node_runs_by_id(database, ids)}


def task_of(row: Row, tasks: int) -> Document:
    """The task of a node run and how many its node has in the step, where it has several."""
    return {} if row["task"] == row["node"] else {"task": row["task"], "tasks": tasks}


def _run(row: Row, tasks: int) -> Document:
    """tasks: how many its node has in the step."""
    kept = ("node", "variant", "visit", "status", "attempts", "cells", "duration_s", "usd", "tokens_in", "tokens_out")
    return {
        "node_run": row["id"],
        **task_of(row, tasks),
        **{key: row[key] for key in kept},
        "started_at": iso(row["started_at"]),
    }


def path(found: Trace) -> list[Document]:
    """The node runs in the order in which they ran, each with its step; those that have not ended come last."""
    done = [{"step": one.step, **run} for one in found.line for run in _writers(found, one)]
    if found.head is None:
        return done
    count = found.head.position.fan_out
    return done + [{"step": found.head.step + 1, **_run(run, count.get(run["node"], 1))} for run in found.unfinished]


def _writers(found: Trace, checkpoint: Checkpoint) -> list[Document]:
    count = Counter(writer.node for writer in checkpoint.writers)
    return [_run(found.runs[writer.node_run], count[writer.node]) for writer in checkpoint.writers]


def state(database: Database, head: Checkpoint | None) -> Document:
    """The state at a checkpoint as plain JSON."""
    if head is None:
        return {}
    seen = shown(head.state)
    stored = queries.load_values(database, seen.values())
    return {key: readable(stored[value].data) for key, value in seen.items()}


def execution_document(database: Database, row: Row, *, calls: bool = False) -> Document:
    """An execution as `wtb show EXECUTION` tells it, with its cells, path, attempts and state."""
    found = trace(database, row)
    runs = [*found.runs.values(), *found.unfinished]
    ids = [run["id"] for run in runs]
    tried: dict[str, list[Document]] = {}
    latest = {(run["id"], run["attempts"]) for run in runs if run["status"] == "running"}
    for attempt in queries.attempt_rows(database, ids):
        failure = Failure(**attempt["failure"]) if attempt["failure"] else None
        goes_on = failure is not None and failure.kind == BEGUN
        if goes_on and (attempt["node_run_id"], attempt["number"]) in latest:  # it has not ended
            attempt, failure = {**attempt, "status": "running"}, None
        tried.setdefault(attempt["node_run_id"], []).append(
            {
                "number": attempt["number"],
                "status": "waiting" if failure is not None and failure.kind == "waiting" else attempt["status"],
                "started_at": iso(attempt["started_at"]),
                "duration_s": attempt["duration_s"],
                "usd": attempt["usd"],
                "error": None if failure is None else str(failure),
                "trace": "" if failure is None else failure.trace,
                "stdout": attempt["stdout"],
                "stderr": attempt["stderr"],
            }
        )
    wrote = {run["id"]: shown(run["writes"] or {}) for run in runs}
    stored = queries.load_values(database, {key for writes in wrote.values() for key in writes.values()})
    made = path(found)
    for step in made:
        step["writes"] = {key: readable(stored[value].data) for key, value in wrote[step["node_run"]].items()}
        step["tried"] = tried.get(step["node_run"], [])
        if step["status"] == "running" and step["tried"] and step["tried"][-1]["status"] == "waiting":
            step["status"] = "waiting"
    if calls:
        _add_calls(database, made, ids)
    return {
        "execution": found.about,
        "cells": _cells(database, row),
        "scores": lineage.scores_told(database, row["id"]) if row["origin"] == "manual" else {},
        "path": made,
        "totals": totals_of(found.head),
        "next": list(found.head.position.next) if found.head else [],
        "state": state(database, found.head),
    }


def _add_calls(database: Database, made: Sequence[Document], ids: Sequence[str]) -> None:
    by_run: dict[str, list[Document]] = {}
    for call in queries.call_rows(database, ids):
        kept = ("attempt", "model", "tool", "tokens_in", "tokens_out", "usd", "duration_s")
        texts = {key: None if call[key] is None else readable(call[key]) for key in ("prompt", "response")}
        one = {**{key: call[key] for key in kept}, **texts, "at": iso(call["at"])}
        by_run.setdefault(call["node_run_id"], []).append(one)
    used: dict[str, list[Document]] = {}
    for row in queries.invocation_rows(database, ids):
        tool_keys = ("attempt", "number", "tool", "status", "error", "duration_s")
        result = None if row["result"] is None else readable(row["result"].encode())
        one = {
            **{key: row[key] for key in tool_keys},
            "arguments": readable(row["arguments"].encode()),
            "result": result,
        }
        one |= {"at": iso(row["at"]), "undone_at": iso(row["undone_at"])}
        used.setdefault(row["node_run_id"], []).append(one)
    for step in made:
        step["calls"] = by_run.get(step["node_run"], [])
        step["invocations"] = used.get(step["node_run"], [])


def _cells(database: Database, row: Row) -> list[Document]:
    choices = queries.choices(database, row["sweep_id"])
    place = {metric["name"]: metric["number"] for metric in queries.metric_rows(database, row["sweep_id"])}
    found = details.execution_scores(database, dict(row))
    scores: dict[int, Document] = {}
    for score in sorted(found, key=lambda score: place.get(score["metric"], 0)):
        value = score["value"] if score["error"] is None else score["error"]
        scores.setdefault(score["combination"], {})[score["metric"]] = value
    return [
        {
            "combination": choices[cell["combination"]],
            "status": cell["status"],
            "scores": scores.get(cell["combination"], {}),
            "error": str(Failure(**cell["failure"])) if cell["failure"] else None,
        }
        for cell in details.execution_cells(database, dict(row))
    ]


def totals_of(head: Checkpoint | None) -> Document | None:
    if head is None:
        return None
    totals = head.totals
    return {name: getattr(totals, name) for name in ("elapsed_s", "usd", "tokens_in", "tokens_out", "node_runs")}


def history_document(database: Database, row: Row) -> Document:
    """The line of checkpoints of an execution, with who wrote each, and the boundaries of its nodes."""
    found = trace(database, row)
    by_hand = [one.id for one in found.line if one.trigger == "manual" and not one.writers]
    made = lineage.made_by_people(database, row["sweep_id"], by_hand)
    why: dict[str, list[Document]] = {}
    for decision in details.decision_rows(database, [checkpoint.id for checkpoint in found.line]):
        kept = {key: decision[key] for key in ("node", "to", "key", "why")}
        why.setdefault(decision["checkpoint_id"], []).append(kept)
    history = ExecutionHistory(found.line)
    wrote: dict[tuple[str, str], list[Row]] = {}
    for one in found.line:
        for writer in one.writers:
            wrote.setdefault((one.id, writer.node), []).append(found.runs[writer.node_run])
    return {
        "execution": found.about,
        "checkpoints": [
            {
                "id": checkpoint.id,
                "parent": checkpoint.parent,
                "step": checkpoint.step,
                "name": checkpoint.name,
                "trigger": checkpoint.trigger,
                "created_at": iso(checkpoint.created_at),
                "made": made.get(checkpoint.id),
                "writers": _writers(found, checkpoint),
                "next": list(checkpoint.position.next),
                "decisions": why.get(checkpoint.id, []),
                "totals": totals_of(checkpoint),
            }
            for checkpoint in found.line
        ],
        "boundaries": [_boundary(found, boundary, wrote) for boundary in history.boundaries()],
        "rollback_targets": history.rollback_targets(),
        "left": _left(database, row),
    }


def _left(database: Database, row: Row) -> list[Document]:
    """The lines that rollbacks of an execution left, the last first."""
    with database.read() as connection:
        found = lineage.rollbacks_of(connection, [row["id"]])
    kept = ("from_id", "to_id", "head_id", "status", "nodes", "superseded", "by", "reason")
    return [
        {**{key: one[key] for key in kept}, "at": iso(one["at"]), "redone_at": iso(one["redone_at"])}
        for one in reversed(found)
    ]


def _boundary(found: Trace, boundary: NodeBoundary, wrote: Mapping[tuple[str, str], Sequence[Row]]) -> Document:
    """A boundary with the status and time of its node run: waiting and pauses are not counted as work.

    Of a node with several tasks: of the one that took longest, and the status of those that have not succeeded.

    wrote: the node runs by the checkpoint that they wrote and their node: what a person changed before a node ran lies
    between its entry and where its run began.
    """
    if boundary.exit is not None:
        runs = wrote[boundary.exit, boundary.node]
    else:
        runs = [run for run in found.unfinished if run["node"] == boundary.node]
    status = next((run["status"] for run in runs if run["status"] != "succeeded"), "succeeded" if runs else "pending")
    duration = max((run["duration_s"] for run in runs), default=None)
    return {
        "node": boundary.node,
        "visit": boundary.visit,
        "entry": boundary.entry,
        "exit": boundary.exit,
        "status": status,
        "duration_s": duration,
    }
