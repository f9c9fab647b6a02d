"""Rows of sweeps, their cases, sessions, runners and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.core.documents.common import RunStatus
from wtb.core.failures import StoredFailure
from wtb.core.values import Json
from wtb.store.rows.record import Record
from wtb.store.tables.sweeps import RunnerRow, SweepRow

if TYPE_CHECKING:
    from wtb.config.webhooks import Target


class ListedSweep(SweepRow):
    """A sweep of a list.

    Attributes:
        workflow: The name of its workflow.
        metadata: That of its workflow, if that has any.
        shown_status: Its status; of a single execution, that of the execution.
        execution: The id of a single execution, beside `execution_reason` and `failure`; None for a sweep.
        counts: Its cells by status.
    """

    workflow: str
    version: str
    metadata: dict[str, Json] | None
    shown_status: RunStatus
    execution: str | None
    execution_reason: str | None
    failure: StoredFailure | None
    counts: Mapping[str, int]


class EarlierSweep(SweepRow):
    """A sweep of a series.

    Attributes:
        fire_at: When its schedule was due, where one fired it.
        verdict: Of its fire, once it has one.
        case_count: How many cases it has.
    """

    fire_at: float | None
    verdict: str | None
    case_count: int


class OpenSweep(SweepRow):
    """A sweep that workers run or will run.

    Attributes:
        unfinished: Whether any of its executions is.
        running_s: For how many seconds it has run, where it runs.
    """

    unfinished: bool
    running_s: float | None


class BehindSweep(SweepRow):
    """A sweep of which something is still to be sent.

    Attributes:
        transaction: Up to where of its log everything was sent, with `event`.
    """

    transaction: int
    event: int


class ListeningSweep(Record):
    """A sweep that tells somebody of its events: notify, where to send which."""

    id: str
    name: str
    notify: Sequence[Target]


class OwnerRow(RunnerRow):
    """A runner that runs a sweep or has claimed executions of it.

    Attributes:
        expired: Whether all its leases have run out.
        sweep: One of the sweeps.
    """

    expired: bool
    sweep: str


class WorkerRow(RunnerRow):
    """A worker that was seen lately. busy: how many of its slots are; seen_s: seconds since its heartbeat."""

    worker: str
    version: str
    clock_s: float
    busy: int
    seen_s: float


class RunnerOfSession(Record):
    """A runner, and a session of which it uses something."""

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float
    session_id: str


class MemoryRow(RunnerOfSession):
    """What the node processes of a runner use for a session, in bytes."""

    used: int
    largest: int


class SlotHolder(RunnerOfSession):
    """A runner that holds slots of a session."""

    slots: int
