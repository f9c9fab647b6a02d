"""Rows that a runner has recorded since its last flush, gathered by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from wtb.core.values import Value
from wtb.store.access.reservations import Settlement
from wtb.store.tables.control import NewInvocation, NewQuestion
from wtb.store.tables.executions import NewCheckpoint, NewDecision, NewExecution, NewFile
from wtb.store.tables.node_runs import NewAttempt, NewCall, NewNodeRun
from wtb.store.tables.results import HeldCell, NewMetric, NewScore, Outcome
from wtb.store.tables.sweeps import NewEvent

# Kinds of rows that are kept unchanged until the flush.
_UNCHANGED = ("files", "outcomes", "held", "questions", "settled", "decisions", "scores")


class Appended(TypedDict, total=False):
    """Rows that no later ones change."""

    attempts: Iterable[NewAttempt]
    events: Iterable[NewEvent]
    calls: Iterable[NewCall]
    invocations: Iterable[NewInvocation]
    decisions: Iterable[NewDecision]
    scores: Iterable[NewScore]
    settled: Iterable[Settlement]


class Recorded(TypedDict, total=False):
    """The rows of one step of an execution."""

    born: Iterable[NewExecution]
    change: NewExecution | None
    values: Iterable[Value]
    files: Iterable[NewFile]
    checkpoints: Iterable[NewCheckpoint]
    node_run: NewNodeRun | None
    node_run_change: tuple[str, NewNodeRun] | None
    outcomes: Iterable[Outcome]
    held: Iterable[HeldCell]
    questions: Iterable[NewQuestion]
    metrics: Iterable[NewMetric]
    appended: Appended


@dataclass
class Batch:
    """Rows that a runner has recorded since its last flush, by execution.

    Attributes:
        leases: The token under which each execution was claimed, for executions that are in the database already.
        born: Rows of executions that this batch adds; `parents` leads from each to the execution that it came from.
        events: The number of events. Events that another row stands for count, and the row has their number as its id.
        last: The number of the last event of each execution.
    """

    leases: dict[str, int] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    born: dict[str, NewExecution] = field(default_factory=dict)
    changed: dict[str, NewExecution] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)
    files: list[tuple[str, NewFile]] = field(default_factory=list)
    checkpoints: list[tuple[str, NewCheckpoint]] = field(default_factory=list)
    node_runs: dict[str, tuple[str, NewNodeRun]] = field(default_factory=dict)
    node_run_changes: dict[str, tuple[str, NewNodeRun]] = field(default_factory=dict)
    metrics: list[NewMetric] = field(default_factory=list)
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    held: list[tuple[str, HeldCell]] = field(default_factory=list)
    questions: list[tuple[str, NewQuestion]] = field(default_factory=list)
    attempts: dict[tuple[str, str, int], tuple[str, NewAttempt]] = field(default_factory=dict)
    repeated_attempts: set[tuple[str, str, int]] = field(default_factory=set)
    new_events: list[tuple[str, int, NewEvent]] = field(default_factory=list)
    settled: list[tuple[str, Settlement]] = field(default_factory=list)
    calls: list[tuple[str, NewCall]] = field(default_factory=list)
    invocations: list[tuple[str, NewInvocation]] = field(default_factory=list)
    decisions: list[tuple[str, NewDecision]] = field(default_factory=list)
    scores: list[tuple[str, NewScore]] = field(default_factory=list)
    released: set[str] = field(default_factory=set)
    events: int = 0
    last: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def add(self, execution: str, token: int, **rows: Unpack[Recorded]) -> None:
        """Add the rows of a step. Rows that it changes are changed in this batch if they are not written yet."""
        self.size += 1
        # An execution that is born in this batch has no row whose lease could be renewed:
        # `lost` decides about it by its parent.
        if execution not in self.born:
            self.leases[execution] = token
        for kind, rows_of_kind in rows.items():
            if rows_of_kind:
                _TAKES[kind](self, execution, rows_of_kind)

    def _bear(self, execution: str, rows: Iterable[NewExecution]) -> None:
        for row in rows:
            self.born[row["id"]] = row
            self.parents[row["id"]] = execution

    def _change(self, execution: str, change: NewExecution) -> None:
        # The event that a row stands for is numbered when the row arrives,
        # so that the log has the order of steps.
        if (before := change.get("ended_event")) is not None:
            change["ended_event"] = self._take_number(execution, before)
        (self.born.get(execution) or self.changed.setdefault(execution, {})).update(change)

    def _take_values(self, _: str, rows: Iterable[Value]) -> None:
        self.values.update(rows)  # pairs of a digest and its data

    def _take_checkpoints(self, execution: str, rows: Iterable[NewCheckpoint]) -> None:
        for row in rows:
            if (before := row.get("created_event")) is not None:
                row["created_event"] = self._take_number(execution, before)
            self.checkpoints.append((execution, row))

    def _begin_node_run(self, execution: str, row: NewNodeRun) -> None:
        if (before := row.get("started_event")) is not None:
            row["started_event"] = self._take_number(execution, before)
        self.node_runs[row["id"]] = (execution, row)

    def _change_node_run(self, execution: str, keyed: tuple[str, NewNodeRun]) -> None:
        key, change = keyed
        recorded = self.node_runs.get(key)
        if change.get("ended_event") is not None:
            before = 0 if recorded is None else self._hold_start(execution, recorded[1])
            change["ended_event"] = self._take_number(execution, before)
        row = recorded or self.node_run_changes.setdefault(key, (execution, {}))
        row[1].update(change)

    def _hold_start(self, execution: str, row: NewNodeRun) -> int:
        """Move the start of a node run that ends to the position of its end, if no event of its execution is between.

        Its row then has one entry in the indexes of the log, not two.

        Returns:
            The number of events that it stands for before the event of its end.
        """
        if (start := row.get("started_event")) is None or self.last[execution] != start:
            return 0
        row["started_event"], row["started_transaction"] = None, 0  # the flush replaces it
        # One that replaces another node run stands for two events at its start.
        return 1 if row["replaces"] is None else 2

    def _append(self, execution: str, appended: Appended) -> None:
        for table, rows in appended.items():
            if rows:
                _TAKES[table](self, execution, rows)

    def _take_attempts(self, execution: str, rows: Iterable[NewAttempt]) -> None:
        for row in rows:
            # One that spends while it runs is written each time, `again` from the second on: the last counts.
            key = (execution, row["node_run_id"], row["number"])
            if row.pop("again", False) and key not in self.attempts:
                self.repeated_attempts.add(key)
            self.attempts[key] = (execution, row)

    def _take_events(self, execution: str, rows: Iterable[NewEvent]) -> None:
        for row in rows:
            self.new_events.append((execution, self._take_number(execution), row))

    def _take_calls(self, execution: str, rows: Iterable[NewCall]) -> None:
        for row in rows:
            row["logged_event"] = self._take_number(execution)
            self.calls.append((execution, row))

    def _take_invocations(self, execution: str, rows: Iterable[NewInvocation]) -> None:
        for row in rows:
            row["logged_event"] = self._take_number(execution)
            self.invocations.append((execution, row))

    def _take_number(self, execution: str, before: int = 0) -> int:
        """Number an event, or a row that stands for several, in the order in which they happened.

        Args:
            execution: The execution of the event.
            before: The number of events of the row before its last one, whose number is returned.
        """
        self.events += before + 1
        self.last[execution] = self.events - 1
        return self.events - 1

    def drop(self, rows: Recorded) -> None:
        """Drop the rows of an execution that were recorded under a lost lease, but release its reservations."""
        # The calls have ended, so their reservations must not count against the limits any longer.
        ended = [row["id"] for row in rows.get("appended", Appended()).get("settled", ()) if row["left"] is None]
        self.released.update(ended)
        self.size += len(ended)

    def lost(self, answered: Iterable[str]) -> set[str]:
        """Return the executions whose lease was not renewed, and those of this batch that came from them."""
        lost_ids = self.leases.keys() - set(answered)
        for child in self.born:  # in order of birth, so a parent is decided before its children
            if self.parents.get(child) in lost_ids:
                lost_ids.add(child)
        return lost_ids


def _keep(kind: str) -> Callable[[Batch, str, Iterable[Any]], None]:
    """Keep rows as they are, each with its execution."""

    def take(batch: Batch, execution: str, rows: Iterable[Any]) -> None:
        getattr(batch, kind).extend((execution, row) for row in rows)

    return take


# How a batch takes each kind of what is recorded.
_TAKES: dict[str, Callable[[Batch, str, Any], None]] = {
    "born": Batch._bear,
    "change": Batch._change,
    "values": Batch._take_values,
    "checkpoints": Batch._take_checkpoints,
    "node_run": Batch._begin_node_run,
    "node_run_change": Batch._change_node_run,
    "metrics": lambda batch, _, rows: batch.metrics.extend(rows),
    "appended": Batch._append,
    "attempts": Batch._take_attempts,
    "events": Batch._take_events,
    "calls": Batch._take_calls,
    "invocations": Batch._take_invocations,
    **{kind: _keep(kind) for kind in _UNCHANGED},
}
