"""Rows for the journal: the work of a runner as the database stores it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from wtb.authoring.boundary import CallReport
from wtb.authoring.graph import Decision
from wtb.core.failures import MESSAGE, Failure
from wtb.core.ids import new_id, short_id
from wtb.core.questions import Question
from wtb.core.scoring.measure import Score
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.tree.checkpoints import Checkpoint, Inside, NodeTask, StoredInside, Totals, visible_state
from wtb.core.values import Json
from wtb.execution.engine.protocol import Result
from wtb.execution.execution import Execution
from wtb.execution.state import NodePlan, SweepIds
from wtb.store.tables.control import NewQuestion
from wtb.store.tables.executions import NewCheckpoint, NewDecision, NewExecution, NewFile
from wtb.store.tables.node_runs import Logged, NewAttempt, NewCall, NewNodeRun
from wtb.store.tables.results import HeldCell, NewMetric, NewScore, Outcome
from wtb.store.tables.sweeps import NewEvent

_OF_DECISION: tuple[Literal["node", "to", "key", "why", "tried"], ...] = ("node", "to", "key", "why", "tried")


class Happened(NamedTuple):
    """An event of an execution: its kind and its data."""

    kind: str
    data: Mapping[str, Json]


def event(ids: SweepIds, execution: str | None, kind: str, severity: str = "info", **data: Any) -> NewEvent:
    return {
        "session_id": ids.session_id,
        "sweep_id": ids.id,
        "execution_id": execution,
        "kind": kind,
        "severity": severity,
        "at": time.time(),
        "data": data,
    }


def checkpoint(
    ids: SweepIds, execution: str, new_checkpoint: Checkpoint, decisions: Sequence[Decision] | None = None
) -> NewCheckpoint:
    """Make the row of a checkpoint.

    Args:
        ids: Of the sweep.
        execution: The id of the execution.
        new_checkpoint: The checkpoint.
        decisions: Those that led to its next nodes. The log derives them from their rows, and then from this row that
            the checkpoint was created, unless this is None.
    """
    return {
        "id": new_checkpoint.id,
        "sweep_id": ids.id,
        "execution_id": execution,
        "parent_id": new_checkpoint.parent,
        "position": new_checkpoint.position.document(),
        "state": new_checkpoint.state,
        "writers": [[writer.node, writer.variant, writer.node_run] for writer in new_checkpoint.writers],
        "workspace": new_checkpoint.workspace,
        "totals": _totals(new_checkpoint.totals),
        "trigger": new_checkpoint.trigger,
        "name": new_checkpoint.name,
        "inside": None if new_checkpoint.inside is None else _inside(new_checkpoint.inside),
        "created_at": new_checkpoint.created_at,
        "created_transaction": None,
        "created_event": None if decisions is None else len(decisions),  # the flush replaces it
    }


def _inside(inside: Inside) -> StoredInside:
    stored = StoredInside(node_run=inside.node_run, node=inside.node, variant=inside.variant, saved=inside.saved)
    return stored if inside.task is None else {**stored, "task": inside.task}


def _totals(totals: Totals) -> list[float]:
    return [totals.elapsed_s, totals.usd, totals.tokens_in, totals.tokens_out, totals.node_runs]


def decisions(checkpoint_id: str, new_decisions: Iterable[Decision]) -> list[NewDecision]:
    return [
        {
            "checkpoint_id": checkpoint_id,
            "number": number,
            "node": decision.node,
            "to": decision.to,
            "key": decision.key,
            "why": decision.why,
            "tried": [[edge.to, edge.when, edge.is_taken] for edge in decision.tried],
        }
        for number, decision in enumerate(new_decisions)
    ]


def decided(checkpoint_id: str, new_decisions: Iterable[Decision]) -> list[Happened]:
    """Return the events of decisions whose checkpoint the log does not derive from its row."""
    return [
        Happened("decision", {"checkpoint": checkpoint_id, **{name: row[name] for name in _OF_DECISION}})
        for row in decisions(checkpoint_id, new_decisions)
    ]


def ending(execution: Execution, cell: Mapping[str, Json], failure: Failure | None) -> dict[str, Json]:
    """Return the data of the last event of an execution: for how many cells it stands, or its `cell`, and its result
    or why it failed.
    """
    count = len(execution.combinations)
    end = {"cells": count} if count else {**cell}
    if failure is None:
        return {**end, "result": {**visible_state(execution.at.state)}}
    return {**end, "error": str(failure), **({"node": failure.node} if failure.node else {})}


def born(ids: SweepIds, parent: Execution, child: Execution) -> NewExecution:
    """Make the row of a fork, which its maker has claimed already; the flush adds the lease."""
    return {
        "id": child.id,
        "session_id": ids.session_id,
        "sweep_id": ids.id,
        "parent_id": parent.id,
        "origin": "fork",
        "case_number": child.case.number,
        "repeat": child.repeat,
        "combinations": list(child.combinations),
        "status": "running",
        "reason": None,
        "head_id": child.at.id,
        "failure": None,
        "owner_id": ids.runner_id,
        "token": child.token,
        "lease_until": None,
        "kills": child.kills,
        "queue": child.queue,
        "task_id": child.record.id,
        "choices": child.choices,
        "edited": child.edited,
        "asked": None,
        "passed_id": child.passed,
        "stalled_at": None,
        "created_at": time.time(),
        "finished_at": None,
        "ended_transaction": None,
        "ended_event": None,
        "children": None,
    }


def ended(
    status: str, *, failure: Failure | None = None, reason: str | None = None, cells: int | None = None
) -> NewExecution:
    """Make the change of an execution that is released or has ended.

    Args:
        status: Its new status.
        failure: The failure that ended it, if any.
        reason: The reason that people see, if any.
        cells: The number of completed cells, if the log derives their events from this row; see `wtb/store/log.py`.
    """
    row: NewExecution = {"status": status, "owner_id": None, "lease_until": None, "reason": reason, "asked": None}
    if status not in OPEN_EXECUTIONS:
        row["finished_at"] = time.time()
    if failure is not None:
        row["failure"] = failure.stored()
    if cells is not None:
        row["ended_transaction"], row["ended_event"] = None, cells  # the flush replaces them
    return row


def forked(children: int) -> NewExecution:
    """Make the change of an execution that forked into so many."""
    return {**ended("forked", cells=0), "children": children}


def node_run(ids: SweepIds, id: str, execution: Execution, task: NodeTask, plan: NodePlan, cells: int) -> NewNodeRun:
    head = execution.at
    visit = head.position.visits.get(task.node, 0)
    replaces = plan.replaces if not visit and not task.number else None
    return {
        "id": id,
        "sweep_id": ids.id,
        "execution_id": execution.id,
        "checkpoint_id": head.id,
        "task": task.key,
        "node": task.node,
        "variant": plan.variant,
        "visit": visit,
        "status": "running",
        "attempts": 0,
        "cells": cells,
        "fingerprint": plan.fingerprint,
        "writes": None,
        "workspace": head.workspace,
        "started_at": time.time(),
        "duration_s": 0.0,
        "usd": 0.0,
        "tokens_in": 0,
        "tokens_out": 0,
        "started_transaction": None,
        "started_event": int(replaces is not None),  # the flush replaces it; see `wtb/store/log.py`
        "ended_transaction": None,
        "ended_event": None,
        "ended_at": None,
        "replaces": replaces,
        "begun_at": None,
        "stdout": None,
        "stderr": None,
        "lag_s": None,
    }


def node_run_end(status: str, number: int, outcome: Result, cells: int, fingerprint: str) -> NewNodeRun:
    """Make the change of a node run that ends. An accepted first attempt has no other row."""
    spent = outcome.record if status == "succeeded" else None
    first = outcome if spent and number == 1 else None
    return {
        "status": status,
        "attempts": number,
        "cells": cells,
        "fingerprint": fingerprint,
        "writes": {n: v.digest for n, v in outcome.writes.items()} if outcome.writes is not None else None,
        "workspace": outcome.workspace,
        "duration_s": outcome.duration_s if spent else 0.0,
        "usd": spent.usd if spent else 0.0,
        "tokens_in": spent.tokens_in if spent else 0,
        "tokens_out": spent.tokens_out if spent else 0,
        "ended_transaction": None,
        "ended_event": 0 if spent else None,
        "ended_at": time.time() if spent else None,
        "begun_at": None if first is None else first.started_at,
        "stdout": None if first is None else first.stdout,
        "stderr": None if first is None else first.stderr,
        "lag_s": outcome.lag_s if spent else None,
    }


def attempt(node_run_id: str, number: int, outcome: Result, fingerprint: str) -> NewAttempt:
    failure = outcome.failure
    if outcome.question is not None:
        # Stored as a failure of the kind "waiting": the node starts again with the answer.
        text, node = outcome.question.text[:MESSAGE], outcome.question.node
        failure = Failure("waiting", "Asked", text, node=node, asked=outcome.asked)
    return {
        "node_run_id": node_run_id,
        "number": number,
        "status": "succeeded" if failure is None else "failed",
        "started_at": outcome.started_at,
        "duration_s": outcome.duration_s,
        "usd": outcome.record.usd,
        "tokens_in": outcome.record.tokens_in,
        "tokens_out": outcome.record.tokens_out,
        "failure": None if failure is None else failure.stored(),
        "fingerprint": fingerprint,
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
    }


def files(ids: SweepIds, new: Iterable[tuple[str, int]]) -> list[NewFile]:
    """Make the rows of files that snapshots of the session refer to."""
    return [{"session_id": ids.session_id, "digest": digest, "size": size} for digest, size in new]


def calls(ids: SweepIds, node_run_id: str, number: int, reports: Iterable[CallReport]) -> list[NewCall]:
    return [{**call, "id": new_id(), "node_run_id": node_run_id, "attempt": number, **logged(ids)} for call in reports]


def logged(ids: SweepIds) -> Logged:
    """Return the columns of a row that the log derives an event from; the flush replaces its position."""
    return {"sweep_id": ids.id, "logged_transaction": None, "logged_event": 0}


def outcomes(ids: SweepIds, execution: Execution, status: str, failure: Failure | None = None) -> list[Outcome]:
    """Make the change of every cell that an execution stands for."""
    totals = Totals() if execution.head is None else execution.head.totals  # None: it could not begin
    return [
        {
            **cell,
            "elapsed_s": totals.elapsed_s,
            "usd": totals.usd,
            "tokens_in": totals.tokens_in,
            "tokens_out": totals.tokens_out,
            "node_runs": totals.node_runs,
            "failure": None if failure is None else failure.stored(),
            "edited": execution.edited,
        }
        for cell in cell_changes(ids, execution, status)
    ]


def cell_changes(ids: SweepIds, execution: Execution, status: str) -> list[HeldCell]:
    """Make the change of the cells of an execution to a status, whether it pauses, waits or has ended."""
    return [
        {
            "sweep_id": ids.id,
            "case_number": execution.case.number,
            "repeat": execution.repeat,
            "combination": combination,
            "status": status,
            "execution_id": execution.id,
        }
        for combination in execution.combinations
    ]


def question(ids: SweepIds, checkpoint_id: str, question: Question) -> NewQuestion:
    """Make the row of a question at a checkpoint; the flush adds the time at which its default applies."""
    return {
        "id": short_id(),
        "session_id": ids.session_id,
        "sweep_id": ids.id,
        "checkpoint_id": checkpoint_id,
        "key": question.key,
        "kind": question.kind,
        "node": question.node,
        "number": question.number,
        "question": question.text,
        "options": list(question.options) or None,
        "context": None if question.context is None else question.context.decode(),
        "default": None if question.default is None else {"choice": question.default},
        "status": "open",
        "timeout": question.timeout,
    }


def scores(ids: SweepIds, execution: Execution, new_scores: Sequence[Score]) -> list[NewScore]:
    return [
        {
            "sweep_id": ids.id,
            "metric": score.metric,
            "case_number": execution.case.number,
            "repeat": execution.repeat,
            "combination": combination,
            "value": score.value,
            "error": score.error,
            "observed": score.observed,
            "version": score.version,
            "reason": score.reason,
        }
        for combination in execution.combinations
        for score in new_scores
    ]


def metrics(ids: SweepIds, new_scores: Iterable[Score], recorded: set[str]) -> list[NewMetric]:
    """Make rows for metrics that are not `recorded` yet. In a race one may be recorded twice, which does no harm."""
    new = [(number, score) for number, score in enumerate(new_scores) if score.metric not in recorded]
    recorded.update(score.metric for _, score in new)
    return [
        {"sweep_id": ids.id, "name": score.metric, "number": number, **score.measure.row()} for number, score in new
    ]
