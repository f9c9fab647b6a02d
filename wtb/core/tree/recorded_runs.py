"""The node runs on the line of an execution, as recorded, and the visits that they make up. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, visible_state

if TYPE_CHECKING:
    from wtb.core.documents.executions import NodeRunDocument, TaskDocument, TotalsDocument
    from wtb.core.documents.lineage import InsideDocument
    from wtb.core.documents.shared_types import RouteDocument


@frozen(slots=True)
class RecordedRun:
    """A node run on a line: a task of a node under a variant, and its end.

    Attributes:
        attempts: How many it has had.
        cells: How many cells share it.
        started_at: Seconds since the epoch, as `ended_at`.
        writes: SHA-256 of its writes by key.
        error: Why its last attempt failed.
        lag_s: By how much the event loop was late on average while the accepted attempt ran, if that was measured.
    """

    id: str
    task: str
    node: str
    variant: str
    visit: int
    status: str
    started_at: float
    duration_s: float
    ended_at: float | None = None
    attempts: int = 1
    cells: int = 1
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    writes: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    lag_s: float | None = None


class TaskOfNode(Protocol):
    """A node run with its node and the key of its task."""

    @property
    def task(self) -> str: ...
    @property
    def node(self) -> str: ...


class Decision(NamedTuple):
    """The reason for which an execution went from a node to the next one.

    `tried` has (to, condition or key, whether it was taken) of each edge that was tried; None in older versions.
    """

    node: str
    to: str
    key: str | None
    why: str
    tried: Sequence[tuple[str, str | None, bool]] | None = None

    def document(self) -> RouteDocument:
        """Return it as plain JSON."""
        document: RouteDocument = {"node": self.node, "to": self.to, "key": self.key, "why": self.why}
        if self.tried is not None:
            document["tried"] = [{"to": to, "when": when, "taken": is_taken} for to, when, is_taken in self.tried]
        return document


def task_document(run: TaskOfNode, tasks: int) -> TaskDocument:
    """Return the task of a node run and the number of tasks of its node in the step, if it has several."""
    return {} if run.task == run.node else {"task": run.task, "tasks": tasks}


def run_document(run: RecordedRun, tasks: int) -> NodeRunDocument:
    """Return a node run as plain JSON; `tasks` is the number of tasks of its node in the step."""
    return {
        "node_run": run.id,
        **task_document(run, tasks),
        "node": run.node,
        "variant": run.variant,
        "visit": run.visit,
        "status": run.status,
        "attempts": run.attempts,
        "cells": run.cells,
        "duration_s": run.duration_s,
        "lag_s": run.lag_s,
        "usd": run.usd,
        "tokens_in": run.tokens_in,
        "tokens_out": run.tokens_out,
        "started_at": iso(run.started_at),
    }


def totals_document(checkpoint: Checkpoint) -> TotalsDocument:
    """Return the amounts of a checkpoint's line as plain JSON."""
    return cast("TotalsDocument", asdict(checkpoint.totals))


def inside_document(checkpoint: Checkpoint) -> InsideDocument:
    """Return a checkpoint that was taken inside a node as plain JSON."""
    assert checkpoint.inside is not None, "it was taken inside a node"
    return {
        "id": checkpoint.id,
        "parent": checkpoint.parent,
        "node": checkpoint.inside.node,
        "variant": checkpoint.inside.variant,
        "node_run": checkpoint.inside.node_run,
        "name": checkpoint.name,
        "trigger": checkpoint.trigger,
        "created_at": iso(checkpoint.created_at),
    }


@frozen(slots=True)
class NodeBoundary:
    """One visit of a node, computed from the checkpoints around it and from its node runs.

    Attributes:
        node: The node.
        visit: Its visit, from 0.
        entry: The checkpoint that it started from.
        exit: The checkpoint that it wrote, or None if it has not.
        status: pending, running, waiting, succeeded, failed or skipped.
        started: When it began, in seconds since the epoch.
        ended: When it ended.
        duration: Seconds of work, without pauses and waiting; of several tasks, of the longest.
        error: Why it failed.
        output: Key of the state -> SHA-256 of what it wrote.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("counting")
        >>> wf.entry(wf.node(lambda state: {"n": state["n"] + 1}, name="count"))
        >>> history = start(wf, {"n": 1}, db="sqlite:///:memory:").wait().history()
        >>> boundary = history.boundary("count")
        >>> boundary.status, boundary.visit, boundary.exit == history.latest.id
        ('succeeded', 0, True)
    """

    node: str
    visit: int
    entry: CheckpointId
    exit: CheckpointId | None
    status: str = "pending"
    started: float | None = None
    ended: float | None = None
    duration: float | None = None
    error: str | None = None
    output: Mapping[str, str] = field(default_factory=dict)


def with_runs(boundary: NodeBoundary, runs: Sequence[RecordedRun]) -> NodeBoundary:
    """Return a boundary with the status and times of its node runs.

    A node with several tasks has the time of the one that took longest, and the status of one that has not succeeded.
    """
    if not runs:
        return boundary
    worst = next((run for run in runs if run.status != "succeeded"), runs[0])
    ends = [run.ended_at for run in runs]
    return replace(
        boundary,
        status=worst.status,
        started=min(run.started_at for run in runs),
        ended=None if None in ends else max(end for end in ends if end is not None),
        duration=max(run.duration_s for run in runs),
        error=worst.error,
        output=visible_state({key: value for run in runs for key, value in run.writes.items()}),
    )
