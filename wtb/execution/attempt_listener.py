"""Records what the attempts of a node run report, as it happens, so that it is not lost if the attempt is."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wtb.core.errors import StateError
from wtb.core.ids import new_id
from wtb.core.serialization.codec import digest
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Inside, NodeTask
from wtb.core.values import Value, Values
from wtb.execution import rows
from wtb.execution.engine.protocol import BEGUN
from wtb.execution.engine.resource_usage import SAMPLE
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal
from wtb.execution.runtime.budgets import Reserved
from wtb.execution.state import RunningSweep
from wtb.store.database import Database
from wtb.store.read.queries import load_values
from wtb.store.runs.node_progress import asked_above, ends_of_attempts, last_inside, taken_at, tool_calls

SEVERITIES = ("debug", "info", "warning", "error")


@dataclass
class Visit:
    """What the attempts of a node run leave to the next one.

    saved, workspace: of the last checkpoint inside the node. calls: tool calls that are not made again. number: of the
    next tool call.
    """

    saved: Values = field(default_factory=dict)
    workspace: str | None = None
    calls: list[rows.Row] = field(default_factory=list)
    number: int = 0


def keeps_calls(kind: str | None, fine: bool) -> bool:
    """Whether the next attempt reuses the tool calls of one that failed with this kind. None: it never ended."""
    return kind == "waiting" or (fine and kind in (None, "killed", BEGUN))


def load_visit(
    database: Database,
    execution: Execution,
    task: NodeTask,
    variant: str,
    earlier: Mapping[str, Any] | None,
    fine: bool,
) -> Visit:
    """What a node run starts from: its own earlier attempts, or the visit into which a rollback leads back."""
    visit = Visit(workspace=execution.at.workspace)
    inside = execution.at.inside
    if inside is not None and inside.is_of(task, variant):
        visit.saved = execution.saved
        calls = tool_calls(database, inside.node_run, taken_at(database, execution.at))
        visit.calls = [call for call in calls if call["status"] != "undone"]
    if execution.at.trigger == "manual":
        for run in asked_above(database, execution.at, task.key, variant):
            _add_run(database, visit, run, fine)
    if earlier is not None:
        _add_run(database, visit, earlier, fine)
        visit.number = len(tool_calls(database, earlier["id"]))
    return visit


def _add_run(database: Database, visit: Visit, run: Mapping[str, Any], fine: bool) -> None:
    """Add what the attempts of a node run have left."""
    if (last := last_inside(database, run)) is not None and last.inside is not None:
        stored = load_values(database, last.inside.saved.values())
        visit.saved = {name: stored[key] for name, key in last.inside.saved.items()}
        visit.workspace = last.workspace
    kinds = ends_of_attempts(database, run["id"])
    first = run["attempts"] + 1
    while first > 1 and keeps_calls(kinds.get(first - 1), fine):
        first -= 1
    if first > 1:  # an attempt failed, and the one after it started without tool calls
        visit.calls = []
    made = tool_calls(database, run["id"])
    visit.calls += [call for call in made if call["attempt"] >= first and call["status"] != "undone"]


class AttemptListener:
    """Handles the events of the attempts of one node run, one attempt at a time, from any thread. Raises Lost."""

    def __init__(
        self,
        sweep: RunningSweep,
        journal: Journal,
        execution: Execution,
        run_id: str,
        task: NodeTask,
        variant: str,
        fingerprint: str,
        visit: Visit,
    ) -> None:
        self.visit = visit
        self.begun = False
        self.reserved = Reserved()
        self.last_event_at = 0.0
        self.stalled = False
        self._sweep = sweep
        self._journal = journal
        self._execution = execution
        self._run_id = run_id
        self._task, self._variant = task, variant
        self._about = rows.about(task, variant)
        self.fingerprint = fingerprint
        self._attempt = 0
        self._sums = [0.0, 0, 0]
        self._started_at = 0.0
        self._durable = sweep.bound.workflow.nodes[task.node].rules.durable
        self._listening = False
        self._lock = threading.RLock()

    def begin(self, attempt: int, reserved: Reserved) -> None:
        """Start listening to an attempt."""
        self._attempt, self.reserved = attempt, reserved
        self._sums, self.begun = [0.0, 0, 0], False
        self.last_event_at = time.monotonic()
        self._listening = True

    def end(self) -> None:
        """Ignore events that arrive after the attempt has ended, e.g. from threads that it left behind."""
        with self._lock:
            self._listening = False
            if self.stalled:
                self._end_stall()

    def on_event(self, kind: str, data: Any) -> None:
        """Record one thing that the attempt reports."""
        with self._lock:
            if not self._listening:
                return
            if kind == BEGUN:
                self._start()
            elif kind == "event":
                self._event(*data)
                if data[0] == SAMPLE:  # measured by the runner, so no sign that the node is alive
                    return
            elif kind == "call":
                self._append(calls=rows.calls(self._run_id, self._attempt, [data]))
            elif kind == "tool":
                self._tool(data)
            elif kind == "checkpoint":
                self._checkpoint(data)
            elif kind == "spent":
                self._spent(data)
            self.last_event_at = time.monotonic()
            if self.stalled:
                self._end_stall()

    def stall(self, limit: float) -> None:
        """Record that the attempt has stalled, if it reported nothing for longer than `limit` seconds."""
        with self._lock:
            silent = time.monotonic() - self.last_event_at
            if not self._listening or self.stalled or silent < limit:
                return
            self.stalled = True
            self._emit("execution.stalled", "warning", {"stalled_at": time.time() - silent}, silent_s=round(silent, 3))

    def _end_stall(self) -> None:
        self.stalled = False
        self._emit("execution.unstalled", "info", {"stalled_at": None})

    def _emit(self, kind: str, severity: str, change: rows.Row, **more: Any) -> None:
        data = {**self._about, "attempt": self._attempt, **more}
        event = rows.event(self._sweep, self._execution.id, kind, severity, **data)
        self._append(change=change, events=[event])

    def _event(self, kind: str, at: float, data: Mapping[str, Any]) -> None:
        level = "debug" if kind == SAMPLE else data.get("level", "info")
        made = rows.event(self._sweep, self._execution.id, kind, level if level in SEVERITIES else "info")
        run = {"node_run": self._run_id} if kind in (SAMPLE, "node.metric") else {}
        self._append(events=[{**made, "at": at, "data": {**self._about, **run, **data}}])

    def _tool(self, call: Mapping[str, Any]) -> None:
        row = {"node_run_id": self._run_id, "attempt": self._attempt, "number": self.visit.number, **call}
        self.visit.number += 1
        self.visit.calls.append(row)
        self._append(invocations=[row])

    def _checkpoint(self, taken: Mapping[str, Any]) -> None:
        head = self._execution.at
        saved = {name: _value(text) for name, text in taken["saved"].items()}
        files = [(key, size) for key, size in taken["files"]]
        try:
            self._sweep.disk.take(files)
        except StateError as error:
            refused = {"message": f"a checkpoint inside was not kept: {error}", "level": "warning"}
            self._event("node.log", taken["at"], refused)
            return
        made = Checkpoint(
            CheckpointId(new_id()),
            head.id,
            head.position,
            head.state,
            workspace=taken["workspace"],
            totals=head.totals,
            trigger=taken["trigger"],
            name=taken["name"] or self._of_tool(),
            created_at=taken["at"],
            inside=Inside(
                self._run_id,
                self._task.node,
                self._variant,
                {n: v.digest for n, v in saved.items()},
                self._about.get("task"),
            ),
        )
        self.visit.saved, self.visit.workspace = saved, taken["workspace"]
        data: dict[str, Any] = {
            **self._about,
            "checkpoint": made.id,
            "step": made.step,
            "next": made.position.next,
            "name": made.name,
        }
        self._append(
            values=saved.values(),
            files=rows.files(self._sweep, files),
            checkpoints=[rows.checkpoint(self._sweep, self._execution.id, made)],
            events=[rows.event(self._sweep, self._execution.id, "checkpoint.created", **data)],
        )

    def _of_tool(self) -> str | None:
        last = self.visit.calls[-1] if self.visit.calls else None
        return None if last is None else f"{last['tool']} #{last['number']}"

    def _start(self) -> None:
        """Write the row of the attempt as if it ended now, without a result; its end replaces the row.

        The attempt counts as begun only once this is recorded.
        """
        self._started_at = time.time()
        self._append(node_run_change=(self._run_id, {"attempts": self._attempt}), attempts=[self._row()])
        self.begun = True
        self._journal.flush(self._execution.id, force=self._durable)

    def _spent(self, amounts: Sequence[Any]) -> None:
        self._sums = [a + b for a, b in zip(self._sums, amounts, strict=True)]
        usd, tokens_in, tokens_out = amounts
        settled = self.reserved.spent(usd, tokens_in + tokens_out)
        self._append(attempts=[self._row()], settled=settled)

    def _row(self) -> rows.Row:
        row = rows.begun_attempt(self._run_id, self._attempt, self._started_at, self._sums, self.fingerprint)
        return {**row, "again": self.begun}

    def _append(
        self,
        *,
        change: rows.Row | None = None,
        node_run_change: tuple[str, rows.Row] | None = None,
        values: Any = (),
        files: Sequence[rows.Row] = (),
        checkpoints: Sequence[rows.Row] = (),
        **appended: Sequence[rows.Row],
    ) -> None:
        self._journal.record(
            self._execution.id,
            self._execution.token,
            change=change,
            node_run_change=node_run_change,
            values=values,
            files=files,
            checkpoints=checkpoints,
            appended=appended,
        )


def _value(text: str) -> Value:
    data = text.encode()
    return Value(digest(data), data)
