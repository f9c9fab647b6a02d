"""Visits of nodes: what the attempts of a node run leave to the next one, also across claims and rollbacks."""

from __future__ import annotations

from dataclasses import dataclass, field

from wtb.authoring.tools import ToolReport
from wtb.core.failures import BEGUN
from wtb.core.tree.checkpoints import NodeTask
from wtb.core.values import Values
from wtb.execution.execution import Execution
from wtb.store.database import Database
from wtb.store.read.queries import load_values
from wtb.store.runs.node_progress import asked_above, ends_of_attempts, last_inside, taken_at, tool_calls
from wtb.store.tables.control import InvocationRow
from wtb.store.tables.node_runs import NodeRunRow


@dataclass
class Visit:
    """What the attempts of a node run leave to the next one.

    saved, workspace: those of the last checkpoint inside the node.
    calls: tool calls that are not made again.
    earlier: all tool calls that were made, also those of attempts that failed.
    number: that of the next tool call.
    """

    saved: Values = field(default_factory=dict)
    workspace: str | None = None
    calls: list[ToolReport] = field(default_factory=list)
    earlier: list[ToolReport] = field(default_factory=list)
    number: int = 0


def keeps_calls(kind: str | None, fine: bool) -> bool:
    """Return whether the next attempt reuses the tool calls of one that failed with `kind`; None: it never ended."""
    return kind == "waiting" or (fine and kind in (None, "killed", "lost", BEGUN))


def load_visit(database: Database, execution: Execution, task: NodeTask, variant: str, fine: bool) -> Visit:
    """Load what a node run starts from: its own earlier attempts, or the visit into which a rollback leads back.

    Args:
        database: Where the earlier attempts are.
        execution: The execution, at its head.
        task: The task of the node run.
        variant: Its variant.
        fine: Whether each tool call is a checkpoint, so that calls of an attempt that died are not made again.
    """
    visit = Visit(workspace=execution.at.workspace)
    inside = execution.at.inside
    if inside is not None and inside.is_of(task, variant):
        visit.saved = execution.loaded.saved
        calls = tool_calls(database, inside.node_run, taken_at(database, execution.at))
        visit.calls = [_report(call) for call in calls if call.status != "undone"]
        visit.earlier = visit.calls.copy()
    if execution.at.trigger == "manual":
        for run in asked_above(database, execution.at, task.key, variant):
            _add_run(database, visit, run, fine)
    if (earlier := execution.loaded.earlier.get((task.key, variant))) is not None:
        _add_run(database, visit, earlier, fine)
        visit.number = len(tool_calls(database, earlier.id))
    return visit


def _add_run(database: Database, visit: Visit, run: NodeRunRow, fine: bool) -> None:
    """Add what the attempts of an earlier node run have left."""
    if (last := last_inside(database, run)) is not None and last.inside is not None:
        stored = load_values(database, last.inside.saved.values())
        visit.saved = {name: stored[key] for name, key in last.inside.saved.items()}
        visit.workspace = last.workspace
    kinds = ends_of_attempts(database, run.id)
    first = run.attempts + 1
    while first > 1 and keeps_calls(kinds.get(first - 1), fine):
        first -= 1
    if first > 1:  # an attempt failed, and the one after it started without tool calls
        visit.calls = []
    calls = tool_calls(database, run.id)
    visit.calls += [_report(call) for call in calls if call.attempt >= first and call.status != "undone"]
    visit.earlier += [_report(call) for call in calls if call.status != "undone"]


def _report(call: InvocationRow) -> ToolReport:
    """A recorded call, as the tool reported it."""
    return {
        "tool": call.tool,
        "arguments": call.arguments,
        "result": call.result,
        "error": call.error,
        "at": call.at,
        "duration_s": call.duration_s,
        "status": call.status,
        "version": call.version,
        "number": call.number,
    }
