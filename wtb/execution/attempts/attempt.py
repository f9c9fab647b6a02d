"""Records what the attempts of a node run report, as it happens, so that it is not lost if the attempt is."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from wtb.authoring.boundary import CheckpointReport, CostReport, DecisionReport
from wtb.authoring.tools import ToolReport
from wtb.core.errors import StateError
from wtb.core.failures import BEGUN
from wtb.core.ids import new_id
from wtb.core.scoring.unknown_costs import is_free
from wtb.core.serialization.codec import digest
from wtb.core.serialization.plain_json import storable
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Inside, NodeTask
from wtb.core.values import Json, Value, Values
from wtb.execution import rows
from wtb.execution.attempts.visit import Visit
from wtb.execution.engine.resource_usage import PRINTED, SAMPLE
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal
from wtb.execution.node_plan import NodePlan
from wtb.execution.runtime.budgets import Reserved
from wtb.execution.state import RunningSweep, SweepIds
from wtb.store.runs.batch import Appended, Recorded
from wtb.store.tables.control import NewInvocation
from wtb.store.tables.executions import NewExecution
from wtb.store.tables.node_runs import FIRST_HAS_ROW, NewAttempt, NewNodeRun
from wtb.store.tables.sweeps import NewEvent

ARGUMENTS = 2000  # characters of those of a call, in the event of a decision about it
SEVERITIES = ("debug", "info", "warning", "error")


class NodeRunRecorder:
    """Writes what happens to one node run to the journal, under the claim of its execution. Its methods raise Lost.

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
        """Where a checkpoint stands that is taken inside this node run."""
        digests = {name: value.digest for name, value in saved.items()}
        return Inside(self.id, self.task.node, self.plan.variant, digests, self.about.get("task"))


class Attempt:
    """One attempt of a node run: it records what the attempt reports, from any thread, until it ends. Raises Lost.

    begun: whether it is recorded that the attempt has begun.
    """

    def __init__(
        self, run: NodeRunRecorder, visit: Visit, number: int, reserved: Reserved, sweep: RunningSweep
    ) -> None:
        self.visit = visit
        self.number = number
        self.reserved = reserved
        self.begun = False
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
            for where in () if self._has_spent else self._connections:
                if not is_free(where, self._run.plan.free_hosts):
                    self._unknown_cost({"cause": "connection", "what": where})
            if self.stalled:
                self._end_stall()

    def on_event(self, kind: str, data: Any) -> None:
        """Record one thing that the attempt reports."""
        with self._lock:
            if not self._listening:
                return
            self._record(kind, data)
            if kind == PRINTED or (kind == "event" and data[0] == SAMPLE):
                return  # told by the runner, so no sign that the node is alive
            if kind == "checkpoint" and _is_timed(data):
                return  # taken beside the node, which may be stuck
            self._last_event_at = time.monotonic()
            if self.stalled:
                self._end_stall()

    def _record(self, kind: str, data: Any) -> None:
        if kind == BEGUN:
            self._start()
        elif kind == "event":
            self._event(*data)
        elif kind == "call":
            self._run.append(calls=rows.calls(self._run.ids, self._run.id, self.number, [data]))
        elif kind == "tool":
            self._tool(data)
        elif kind == "checkpoint":
            self._checkpoint(data)
        elif kind == "spent":
            self._spent(data)
        elif kind == PRINTED:
            self._printed(data)
        else:
            self._note(kind, data)

    def _note(self, kind: str, data: Any) -> None:
        """Note what an attempt does without a call of its context."""
        if kind == "unknown_cost":
            self._unknown_cost(data)
        elif kind == "connected":
            self._connections.append(data)
        elif kind == "written":
            self._note_written(*data)
        elif kind == "decided":
            self._decided(data)

    def _note_written(self, file: str, node: str) -> None:
        """Record, once a sweep, that nodes write a file which was taken for code."""
        if (words := self._written.note(file, node)) is not None:
            self._event("node.log", time.time(), {"message": words, "level": "info"})

    def _decided(self, decision: DecisionReport) -> None:
        """Record a decision of policies. Of calls that are allowed, the 1st, 2nd, 4th, 8th ... attempt is recorded."""
        if self._policies is None:
            return
        data: dict[str, Json] = {
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
            data["arguments"] = None if arguments is None else storable(arguments, ARGUMENTS)
            data |= {"asked": decision["asked"], "answered_by": decision["answered_by"]}
        else:
            key = (decision["action"], decision["on"], *decision["rules"])
            allowed = self._run.plan.allowed
            allowed[key] += 1
            if allowed[key] & (allowed[key] - 1):
                return
        event = self._run.event("policy.decided", "info" if decision["allowed"] else "warning", **data)
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

    def _event(self, kind: str, at: float, data: Mapping[str, Json]) -> None:
        level = "debug" if kind == SAMPLE else data.get("level", "info")
        event = self._run.event(kind, level if level in SEVERITIES else "info")
        run = {"node_run": self._run.id} if kind in (SAMPLE, "node.metric") else {}
        self._run.append(events=[{**event, "at": at, "data": {**self._run.about, **run, **data}}])

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
        if self._policies is not None:
            self.visit.earlier.append(numbered)
        self.visit.number += 1
        self._run.append(invocations=[row])

    def _checkpoint(self, taken: CheckpointReport) -> None:
        """Record a checkpoint that the attempt took, or log that the disk quota has no room for its files."""
        ids, head = self._run.ids, self._run.execution.at
        saved = {name: _value(text) for name, text in taken["saved"].items()}
        files = [(key, size) for key, size in taken["files"]]
        try:
            self._disk.take(files)
        except StateError as error:
            refused = {"message": f"a checkpoint inside was not kept: {error}", "level": "warning"}
            self._event("node.log", taken["at"], refused)
            return
        checkpoint = Checkpoint(
            CheckpointId(new_id()),
            head.id,
            head.position,
            head.state,
            workspace=taken["workspace"],
            totals=head.totals,
            trigger=taken["trigger"],
            name=None if _is_timed(taken) else taken["name"] or self._of_tool(),
            created_at=taken["at"],
            inside=self._run.inside(saved),
        )
        self.visit.saved, self.visit.workspace = saved, taken["workspace"]
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
        self.begun = True
        self._run.commit(force=self._run.plan.rules.durable)

    def _spent(self, amounts: Sequence[Any]) -> None:
        self._has_spent = True
        self._sums = [a + b for a, b in zip(self._sums, amounts, strict=True)]
        usd, tokens_in, tokens_out = amounts
        settled = self.reserved.spent(usd, tokens_in + tokens_out)
        if self.number == 1:
            usd, tokens_in, tokens_out = self._sums
            self._change_node_run({"usd": usd, "tokens_in": tokens_in, "tokens_out": tokens_out}, settled=settled)
        else:
            self._run.append(attempts=[self._row()], settled=settled)

    def _unknown_cost(self, reason: CostReport) -> None:
        """Record that the cost of this variant is not known, with the sweep, which outlives the executions of a case.

        The reason is the same for all node runs of a variant, so that the 1st, 2nd, 4th, 8th ... report is recorded:
        one may be lost with the claim of its execution.
        """
        plan = self._run.plan
        reports = plan.unknown_costs[reason["cause"], reason["what"]] + 1
        plan.unknown_costs[reason["cause"], reason["what"]] = reports
        if reports & (reports - 1) == 0:
            event = rows.event(self._run.ids, None, "cost.unknown", "warning", **plan.about, **reason)
            self._run.append(events=[event])

    def _printed(self, output: Mapping[str, str | None]) -> None:
        """Record what the attempt has printed so far; its end replaces that."""
        if not self.begun:
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
        row = rows.begun_attempt(self._run.id, self.number, self._started_at, self._sums, self._run.plan.fingerprint)
        return {**row, "stdout": self._output["stdout"], "stderr": self._output["stderr"], "again": self.begun}


def _value(text: str) -> Value:
    data = text.encode()
    return Value(digest(data), data)


def _is_timed(checkpoint: CheckpointReport) -> bool:
    """Return whether a checkpoint was taken by time, without the node asking for it."""
    return checkpoint["trigger"] == "time" and checkpoint["name"] is None
