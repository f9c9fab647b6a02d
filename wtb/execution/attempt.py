"""Recorders of what attempts report, as it happens, so that a report outlives a lost attempt."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from wtb.authoring.boundary import CheckpointReport, CostReport, DecisionReport
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.tools import ToolReport
from wtb.core.errors import StateError
from wtb.core.failures import RUNNING, UNFINISHED
from wtb.core.ids import new_id
from wtb.core.scoring.unknown_costs import is_free
from wtb.core.serialization.codec import digest
from wtb.core.serialization.plain_json import storable
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Inside, NodeTask
from wtb.core.values import Json, Value, Values
from wtb.execution import rows
from wtb.execution.engine.protocol import Result
from wtb.execution.engine.resource_usage import PRINTED, SAMPLE
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal
from wtb.execution.runtime.budgets import Reserved
from wtb.execution.state import NodePlan, RunningSweep, SweepIds
from wtb.store.database import Database
from wtb.store.read.queries import load_values
from wtb.store.runs.batch import Appended, Recorded
from wtb.store.runs.node_progress import asked_above, ends_of_attempts, last_inside, taken_at, tool_calls
from wtb.store.tables.control import InvocationRow, NewInvocation
from wtb.store.tables.executions import NewExecution
from wtb.store.tables.node_runs import FIRST_HAS_ROW, NewAttempt, NewNodeRun, NodeRunRow
from wtb.store.tables.sweeps import NewEvent


@dataclass
class Visit:
    """The state that the attempts of a node run leave to the next one.

    Attributes:
        saved: Values of the last checkpoint inside the node.
        workspace: Snapshot of files at that checkpoint.
        calls: Tool calls that are not made again.
        earlier: All tool calls, including those of failed attempts.
        number: The number of the next tool call.
    """

    saved: Values = field(default_factory=dict)
    workspace: str | None = None
    calls: list[ToolReport] = field(default_factory=list)
    earlier: list[ToolReport] = field(default_factory=list)
    number: int = 0


def keeps_calls(kind: str | None, fine: bool) -> bool:
    """Return whether the next attempt reuses the tool calls of one that failed with `kind`; None: it never ended."""
    return kind == "waiting" or (fine and kind in (None, "killed", "lost", RUNNING))


def load_visit(database: Database, execution: Execution, task: NodeTask, variant: str, fine: bool) -> Visit:
    """Load the state that a node run starts from: its own earlier attempts, or the visit that a rollback leads into.

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
    """Add the saved values and tool calls of an earlier node run."""
    if (last := last_inside(database, run)) is not None and last.inside is not None:
        stored = load_values(database, last.inside.saved.values())
        visit.saved = {name: stored[key] for name, key in last.inside.saved.items()}
        visit.workspace = last.workspace
    kinds = ends_of_attempts(database, run.id)
    first = run.attempts + 1
    # Tool calls carry over from as many attempts as ended in a way that keeps them; an older one that failed ends the
    # line.
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


ARGUMENTS = 2000  # characters of those of a call, in the event of a decision about it
SEVERITIES = ("debug", "info", "warning", "error")


class NodeRunRecorder:
    """Writes the progress of one node run to the journal, under the claim of its execution. Its methods raise Lost.

    Attributes:
        about: The task and its variant, as fields of events.
        pending: Rows of the last attempt, which are recorded with the end of the node run, or before the next attempt.
    """

    def __init__(
        self, ids: SweepIds, journal: Journal, execution: Execution, task: NodeTask, plan: NodePlan, id: str
    ) -> None:
        self.ids = ids
        self.journal = journal
        self.execution = execution
        self.task = task
        self.plan = plan
        self.id = id
        self.about = plan.about if task.key == plan.node else {**plan.about, "task": task.key}
        self.pending: Appended = {}

    def event(self, kind: str, severity: str = "info", **data: Any) -> NewEvent:
        """The row of an event about this node run."""
        return rows.event(self.ids, self.execution.id, kind, severity, **self.about, **data)

    def record(self, **recorded: Unpack[Recorded]) -> None:
        """Buffer rows as one unit: all of them are committed, or none."""
        self.journal.record(self.execution.id, self.execution.token, **recorded)

    def append(self, **appended: Unpack[Appended]) -> None:
        """Buffer rows of tables that are only appended to, by table."""
        self.record(appended=appended)

    def record_pending(self, number: int, *events: NewEvent) -> None:
        """Record the rows of an attempt by its number, and events, though the node run has not ended."""
        appended: Appended = {**self.pending, "events": events}
        if number == 1:  # until now the row of the node run described the attempt
            self.record(appended=appended, node_run_change=(self.id, {**FIRST_HAS_ROW}))
        else:
            self.record(appended=appended)
        self.pending = {}

    def commit(self, *, force: bool) -> None:
        """Wait for the commit of what was recorded, if `force` is set or the journal is to commit at once."""
        if force or not self.journal.durability:
            self.journal.flush(self.execution.id, force=force)

    def inside(self, saved: Values) -> Inside:
        """The position of a checkpoint that is taken inside this node run."""
        digests = {name: value.digest for name, value in saved.items()}
        return Inside(self.id, self.task.node, self.plan.variant, digests, self.about.get("task"))


class Attempt:
    """One attempt of a node run, which records its reports, from any thread, until it ends. Raises Lost.

    Attributes:
        start_is_recorded: Whether the beginning of the attempt is recorded.
    """

    def __init__(
        self, run: NodeRunRecorder, visit: Visit, number: int, reserved: Reserved, sweep: RunningSweep
    ) -> None:
        self.visit = visit
        self.number = number
        self.reserved = reserved
        self.start_is_recorded = False
        self.stalled = False
        self._run = run
        self._disk = sweep.limits.disk
        self._written = sweep.written
        self._policies = sweep.policies
        self._sums: list[Any] = [0.0, 0, 0]
        self._has_spent = False
        self._connections: list[str] = []
        self._started_at = 0.0
        self._output: Mapping[str, str | None] = {"stdout": None, "stderr": None}
        self._last_event_at = time.monotonic()
        self._listening = True
        self._lock = threading.RLock()

    def end(self) -> None:
        """Ignore events that arrive after the attempt has ended, e.g. from threads that it left behind.

        Connections that no recorded call explains are recorded now, also if its process was killed.
        """
        with self._lock:
            self._listening = False
            # An attempt that reported spending accounts for its connections itself.
            for where in () if self._has_spent else self._connections:
                if not is_free(where, self._run.plan.free_hosts):
                    self._unknown_cost({"cause": "connection", "what": where})
            if self.stalled:
                self._end_stall()

    def on_event(self, kind: str, report: Any) -> None:
        """Record one report of the attempt."""
        with self._lock:
            if not self._listening:
                return
            self._record(kind, report)
            if kind == PRINTED or (kind == "event" and report[0] == SAMPLE):
                return  # told by the runner, so no sign that the node is alive
            if kind == "checkpoint" and _is_timed(report):
                return  # taken beside the node, which may be stuck
            self._last_event_at = time.monotonic()
            if self.stalled:
                self._end_stall()

    def _record(self, kind: str, report: Any) -> None:
        if kind == RUNNING:
            self._start()
        elif kind == "event":
            self._event(*report)
        elif kind == "call":
            self._run.append(calls=rows.calls(self._run.ids, self._run.id, self.number, [report]))
        elif kind == "tool":
            self._tool(report)
        elif kind == "checkpoint":
            self._checkpoint(report)
        elif kind == "spent":
            self._spent(report)
        elif kind == PRINTED:
            self._printed(report)
        else:
            self._note(kind, report)

    def _note(self, kind: str, report: Any) -> None:
        """Record a report that no call of the context caused."""
        if kind == "unknown_cost":
            self._unknown_cost(report)
        elif kind == "connected":
            self._connections.append(report)
        elif kind == "written":
            self._note_written(*report)
        elif kind == "decided":
            self._decided(report)

    def _note_written(self, file: str, node: str) -> None:
        """Record, once a sweep, that nodes write a file which was taken for code."""
        if (words := self._written.note(file, node)) is not None:
            self._event("node.log", time.time(), {"message": words, "level": "info"})

    def _decided(self, decision: DecisionReport) -> None:
        """Record a decision of policies. Of calls that are allowed, the 1st, 2nd, 4th, 8th ... attempt is recorded."""
        if self._policies is None:
            return
        details: dict[str, Json] = {
            "operation": decision["action"],
            "by": self._policies.by,
            "allowed": decision["allowed"],
            "rules": [*decision["rules"]],
            "errors": [*decision["errors"]],
            "on": decision["on"],
            "attempt": self.number,
        }
        if decision["asked"] or not decision["allowed"] or decision["answered_by"] is not None:
            arguments = decision["arguments"]
            details["arguments"] = None if arguments is None else storable(arguments, ARGUMENTS)
            details |= {"asked": decision["asked"], "answered_by": decision["answered_by"]}
        else:
            key = (decision["action"], decision["on"], *decision["rules"])
            allowed = self._run.plan.allowed
            allowed[key] += 1
            # Zero exactly for powers of two.
            if allowed[key] & (allowed[key] - 1):
                return
        event = self._run.event("policy.decided", "info" if decision["allowed"] else "warning", **details)
        self._run.append(events=[{**event, "at": decision["at"]}])

    def stall(self, limit: float) -> None:
        """Record that the attempt has stalled, if it reported nothing for longer than `limit` seconds."""
        with self._lock:
            silent = time.monotonic() - self._last_event_at
            if not self._listening or self.stalled or silent < limit:
                return
            self.stalled = True
            self._emit("execution.stalled", "warning", {"stalled_at": time.time() - silent}, silent_s=round(silent, 3))

    def _end_stall(self) -> None:
        self.stalled = False
        self._emit("execution.unstalled", "info", {"stalled_at": None})

    def _emit(self, kind: str, severity: str, change: NewExecution, **more: Any) -> None:
        event = self._run.event(kind, severity, attempt=self.number, **more)
        self._run.record(change=change, appended={"events": [event]})

    def _event(self, kind: str, at: float, details: Mapping[str, Json]) -> None:
        level = "debug" if kind == SAMPLE else details.get("level", "info")
        event = self._run.event(kind, level if level in SEVERITIES else "info")
        run = {"node_run": self._run.id} if kind in (SAMPLE, "node.metric") else {}
        self._run.append(events=[{**event, "at": at, "data": {**self._run.about, **run, **details}}])

    def _tool(self, call: ToolReport) -> None:
        row: NewInvocation = {
            **call,
            "node_run_id": self._run.id,
            "attempt": self.number,
            "number": self.visit.number,
            **rows.logged(self._run.ids),
        }
        numbered: ToolReport = {**call, "number": self.visit.number}
        self.visit.calls.append(numbered)
        # Policies can depend on all earlier calls; without policies the list would only grow.
        if self._policies is not None:
            self.visit.earlier.append(numbered)
        self.visit.number += 1
        self._run.append(invocations=[row])

    def _checkpoint(self, report: CheckpointReport) -> None:
        """Record a checkpoint that the attempt took, or log that the disk quota has no room for its files."""
        ids, head = self._run.ids, self._run.execution.at
        saved = {name: _value(text) for name, text in report["saved"].items()}
        files = [(key, size) for key, size in report["files"]]
        try:
            self._disk.take(files)
        except StateError as error:
            refused = {"message": f"a checkpoint inside was not kept: {error}", "level": "warning"}
            self._event("node.log", report["at"], refused)
            return
        checkpoint = Checkpoint(
            CheckpointId(new_id()),
            head.id,
            head.position,
            head.state,
            workspace=report["workspace"],
            totals=head.totals,
            trigger=report["trigger"],
            name=None if _is_timed(report) else report["name"] or self._of_tool(),
            created_at=report["at"],
            inside=self._run.inside(saved),
        )
        # Only after the quota had room: the next attempt continues from this, and its files must exist.
        self.visit.saved, self.visit.workspace = saved, report["workspace"]
        position = checkpoint.position
        event = self._run.event(
            "checkpoint.created", checkpoint=checkpoint.id, step=position.step, next=position.next, name=checkpoint.name
        )
        self._run.record(
            values=saved.values(),
            files=rows.files(ids, files),
            checkpoints=[rows.checkpoint(ids, self._run.execution.id, checkpoint)],
            appended={"events": [event]},
        )

    def _of_tool(self) -> str | None:
        last = self.visit.calls[-1] if self.visit.calls else None
        return None if last is None else f"{last['tool']} #{last['number']}"

    def _start(self) -> None:
        """Record that the attempt has begun. It counts as begun only once this is recorded."""
        self._started_at = time.time()
        if self.number == 1:
            self._change_node_run({"attempts": 1, "begun_at": self._started_at})
        else:  # as if it ended now, without a result: its end replaces the row
            change: NewNodeRun = {"attempts": self.number}
            self._run.record(node_run_change=(self._run.id, change), appended={"attempts": [self._row()]})
        self.start_is_recorded = True
        # A durable node must not have an effect that the database does not know of, so its start is committed first.
        self._run.commit(force=self._run.plan.rules.durable)

    def _spent(self, amounts: Sequence[Any]) -> None:
        self._has_spent = True
        self._sums = [a + b for a, b in zip(self._sums, amounts, strict=True)]
        usd, tokens_in, tokens_out = amounts
        settlements = self.reserved.spent(usd, tokens_in + tokens_out)
        if self.number == 1:
            usd, tokens_in, tokens_out = self._sums
            self._change_node_run({"usd": usd, "tokens_in": tokens_in, "tokens_out": tokens_out}, settled=settlements)
        else:
            self._run.append(attempts=[self._row()], settled=settlements)

    def _unknown_cost(self, reason: CostReport) -> None:
        """Record that the cost of this variant is not known, with the sweep, which outlives the executions of a case.

        The reason is the same for all node runs of a variant, so that the 1st, 2nd, 4th, 8th ... report is recorded:
        one may be lost with the claim of its execution.
        """
        plan = self._run.plan
        reports = plan.unknown_costs[reason["cause"], reason["what"]] + 1
        plan.unknown_costs[reason["cause"], reason["what"]] = reports
        # True exactly for powers of two: few events even if a million node runs report it.
        if reports & (reports - 1) == 0:
            event = rows.event(self._run.ids, None, "cost.unknown", "warning", **plan.about, **reason)
            self._run.append(events=[event])

    def _printed(self, output: Mapping[str, str | None]) -> None:
        """Record what the attempt has printed so far; its end replaces that."""
        # Without a recorded start there is no row that the output could belong to.
        if not self.start_is_recorded:
            return
        self._output = output
        if self.number == 1:
            self._change_node_run({"stdout": output["stdout"], "stderr": output["stderr"]})
        else:
            self._run.append(attempts=[self._row()])

    def _change_node_run(self, change: NewNodeRun, **appended: Unpack[Appended]) -> None:
        """Record a change of the node run's row, which describes the first attempt until that fails."""
        self._run.record(node_run_change=(self._run.id, change), appended=appended)

    def _row(self) -> NewAttempt:
        """Make the row of a running attempt after the first, as if it had failed: it stays so if its runner dies."""
        usd, tokens_in, tokens_out = self._sums
        record = Record(usd=usd, tokens_in=tokens_in, tokens_out=tokens_out)
        stdout, stderr = self._output["stdout"], self._output["stderr"]
        so_far = Result(self._started_at, 0.0, record, failure=UNFINISHED, stdout=stdout, stderr=stderr)
        row = rows.attempt(self._run.id, self.number, so_far, self._run.plan.fingerprint)
        return {**row, "again": self.start_is_recorded}


def _value(text: str) -> Value:
    content = text.encode()
    return Value(digest(content), content)


def _is_timed(checkpoint: CheckpointReport) -> bool:
    """Return whether a checkpoint was taken by time, without the node asking for it."""
    return checkpoint["trigger"] == "time" and checkpoint["name"] is None
