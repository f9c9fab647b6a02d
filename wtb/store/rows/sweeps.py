"""Rows of sweeps, their cases, sessions, runners and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from wtb.core.documents.common import RunStatus, SweepStatus
from wtb.core.failures import StoredFailure
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.stored_code import RecordedCode
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Json
from wtb.store.rows.record import Record

if TYPE_CHECKING:
    from wtb.config.webhooks import Target
    from wtb.core.documents.common import SweepHeading


class SweepRow(Record):
    """A sweep as it stands in the database. Times are seconds since the epoch.

    Attributes:
        session: The name of its session.
        token: By which it was submitted; None for whoever has the database.
        spec: The sweep as it was submitted, and where from.
        fingerprints: Node -> variant -> code.
        root_s: Seconds that a root with its tree took a slot lately; None until that was measured.
    """

    id: str
    session_id: str
    workflow_id: str
    name: str
    project: str
    token: str | None
    status: SweepStatus
    reason: str | None
    runner_id: str | None
    queued: bool
    running_since: float | None
    spec: StoredSpec
    fingerprints: dict[str, dict[str, str]]
    kind: Literal["sweep", "single"]
    breakpoints: Sequence[str] | None
    notify: Sequence[Target] | None
    cells: int
    priority: int
    pinned: bool
    collected_usd: float
    collected_node_runs: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    root_s: float | None
    session: str

    @property
    def recorded_code(self) -> RecordedCode:
        """The code of its variants when it was submitted."""
        return RecordedCode(self.fingerprints, self.spec.get("code"))

    @property
    def heading(self) -> SweepHeading:
        """The sweep as documents of results name it."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "started_at": iso(self.started_at),
            "finished_at": iso(self.finished_at),
        }


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


class Subject(TypedDict):
    """What an event is about, as columns of `events`."""

    session_id: str | None
    sweep_id: str
    execution_id: str | None


class NewEvent(Subject):
    """An event that is about to be inserted. data: what readers get, as JSON; its kind decides what it holds."""

    kind: str
    severity: str
    at: float
    data: dict[str, Json]


class EventRow(NewEvent):
    """An event of the log: one that was inserted, or one that another row says."""

    id: int
    transaction: int


class CaseRow(Record):
    """A case of a sweep.

    Attributes:
        input: Key of the state -> digest of its value.
        expected: The digest of what is expected.
        workspace: The digest of the snapshot that its runs start with.
        cluster: What it shares with other cases, by which intervals are computed.
        erased_at: When somebody erased it; nothing but its id and number is left of it then.
        erased_by: Who did.
    """

    sweep_id: str
    number: int
    id: str
    input: dict[str, str]
    expected: str | None
    tags: list[str]
    workspace: str | None
    cluster: str | None
    erased_at: float | None
    erased_by: str | None


class SessionRow(Record):
    """A session. deleted_usd: what sweeps have spent that were deleted since."""

    id: str
    name: str
    quota: Mapping[str, float] | None
    owner: str | None
    metadata: Mapping[str, str] | None
    project: str
    archived_at: float | None
    deleted_usd: float
    created_at: float


class ListeningSweep(Record):
    """A sweep that tells somebody of its events: notify, where to send which."""

    id: str
    name: str
    notify: Sequence[Target]


class RunnerRow(Record):
    """A process that runs sweeps, with its heartbeat.

    Attributes:
        session_id: Whose slots it took when it started; workers take those of the sweeps that they run.
        worker: The name of the worker that it is, and queues: those that it takes from.
        clock_s: How far its clock is ahead of the database's.
        refused: Ids of sweeps whose code it rejects.
    """

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float
    created_at: float
    session_id: str | None
    slots: int
    seen_at: float | None
    ended_at: float | None
    worker: str | None
    pool: str | None
    queues: list[str | None] | None
    version: str | None
    clock_s: float | None
    refused: list[str] | None


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
