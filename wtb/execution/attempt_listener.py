"""Records what the attempts of a node run report, as it happens, so that it is not lost if the attempt is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

from wtb.authoring.nodes import Rules
from wtb.core.errors import StateError, WTBError
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
from wtb.execution.visit import Visit
from wtb.store.runs.flush import Recorded

SEVERITIES = ("debug", "info", "warning", "error")
STALL_CHECK_S = 1.0  # at most, between two checks for stalled attempts


@dataclass(frozen=True)
class NodeRunRecorder:
    """Writes what happens to one node run to the journal, under the claim of its execution. Its methods raise Lost."""

    sweep: RunningSweep
    journal: Journal
    execution: Execution
    task: NodeTask
    variant: str
    id: str

    @cached_property
    def about(self) -> rows.Row:
        """The task and its variant, as fields of events."""
        return rows.about(self.task, self.variant)

    @cached_property
    def fingerprint(self) -> str:
        return self.sweep.fingerprint(self.task.node, self.variant)

    @property
    def rules(self) -> Rules:
        return self.sweep.bound.workflow.nodes[self.task.node].rules

    def event(self, kind: str, severity: str = "info", **data: Any) -> rows.Row:
        """The row of an event about this node run."""
        return rows.event(self.sweep, self.execution.id, kind, severity, **self.about, **data)

    def record(self, **recorded: Unpack[Recorded]) -> None:
        """Buffer rows as one unit: all of them are committed, or none."""
        self.journal.record(self.execution.id, self.execution.token, **recorded)

    def append(self, **appended: Iterable[rows.Row]) -> None:
        """Buffer rows of tables that are only appended to, by table."""
        self.record(appended=appended)

    def flush(self, *, force: bool) -> None:
        self.journal.flush(self.execution.id, force=force)

    def inside(self, saved: Values) -> Inside:
        """Where a checkpoint stands that is taken inside this node run."""
        digests = {name: value.digest for name, value in saved.items()}
        return Inside(self.id, self.task.node, self.variant, digests, self.about.get("task"))


class AttemptListener:
    """Handles the events of the attempts of one node run, one attempt at a time, from any thread. Raises Lost."""

    def __init__(self, run: NodeRunRecorder, visit: Visit) -> None:
        self.visit = visit
        self.begun = False
        self.reserved = Reserved()
        self.last_event_at = 0.0
        self.stalled = False
        self._run = run
        self._attempt = 0
        self._sums = [0.0, 0, 0]
        self._started_at = 0.0
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
                self._run.append(calls=rows.calls(self._run.id, self._attempt, [data]))
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
        event = self._run.event(kind, severity, attempt=self._attempt, **more)
        self._run.record(change=change, appended={"events": [event]})

    def _event(self, kind: str, at: float, data: Mapping[str, Any]) -> None:
        level = "debug" if kind == SAMPLE else data.get("level", "info")
        event = self._run.event(kind, level if level in SEVERITIES else "info")
        run = {"node_run": self._run.id} if kind in (SAMPLE, "node.metric") else {}
        self._run.append(events=[{**event, "at": at, "data": {**self._run.about, **run, **data}}])

    def _tool(self, call: Mapping[str, Any]) -> None:
        row = {"node_run_id": self._run.id, "attempt": self._attempt, "number": self.visit.number, **call}
        self.visit.number += 1
        self.visit.calls.append(row)
        self._run.append(invocations=[row])

    def _checkpoint(self, taken: Mapping[str, Any]) -> None:
        sweep, head = self._run.sweep, self._run.execution.at
        saved = {name: _value(text) for name, text in taken["saved"].items()}
        files = [(key, size) for key, size in taken["files"]]
        try:
            sweep.disk.take(files)
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
            inside=self._run.inside(saved),
        )
        self.visit.saved, self.visit.workspace = saved, taken["workspace"]
        data: dict[str, Any] = {"checkpoint": made.id, "step": made.step, "next": made.position.next, "name": made.name}
        self._run.record(
            values=saved.values(),
            files=rows.files(sweep, files),
            checkpoints=[rows.checkpoint(sweep, self._run.execution.id, made)],
            appended={"events": [self._run.event("checkpoint.created", **data)]},
        )

    def _of_tool(self) -> str | None:
        last = self.visit.calls[-1] if self.visit.calls else None
        return None if last is None else f"{last['tool']} #{last['number']}"

    def _start(self) -> None:
        """Write the row of the attempt as if it ended now, without a result; its end replaces the row.

        The attempt counts as begun only once this is recorded.
        """
        self._started_at = time.time()
        change = (self._run.id, {"attempts": self._attempt})
        self._run.record(node_run_change=change, appended={"attempts": [self._row()]})
        self.begun = True
        self._run.flush(force=self._run.rules.durable)

    def _spent(self, amounts: Sequence[Any]) -> None:
        self._sums = [a + b for a, b in zip(self._sums, amounts, strict=True)]
        usd, tokens_in, tokens_out = amounts
        settled = self.reserved.spent(usd, tokens_in + tokens_out)
        self._run.append(attempts=[self._row()], settled=settled)

    def _row(self) -> rows.Row:
        row = rows.begun_attempt(self._run.id, self._attempt, self._started_at, self._sums, self._run.fingerprint)
        return {**row, "again": self.begun}


def _value(text: str) -> Value:
    data = text.encode()
    return Value(digest(data), data)


class Stalls:
    """Marks attempts as stalled that report nothing for `limit` seconds, once per silence.

    Its thread runs while there is an attempt to watch.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._listeners: set[AttemptListener] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, listener: AttemptListener) -> Iterator[None]:
        """Watch the attempts of a listener during the block."""
        with self._changed:
            self._listeners.add(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="wtb-stalls", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._listeners.discard(listener)

    def _look(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(min(STALL_CHECK_S, self.limit / 4))
                if not self._listeners:
                    self._thread = None
                    return
                listening = list(self._listeners)
            for listener in listening:
                try:
                    listener.stall(self.limit)
                except WTBError:  # its own thread finds that out too
                    continue
